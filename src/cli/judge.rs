//! `evenkeel judge`: serves a judge of one's own until a signal comes.

use std::io;

use tokio::net::TcpListener;

use super::serve::{Signals, announce};
use super::{Exit, OS_ERROR, USAGE};
use crate::config;
use crate::judge::server;

pub(super) fn run(listen: &str) -> Result<(), Exit> {
    let address = config::listen(listen).map_err(|mistake| Exit::new(USAGE, mistake))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Exit::new(OS_ERROR, error))?;
    runtime.block_on(async {
        let cannot = |error: io::Error| Exit::new(OS_ERROR, format!("cannot listen on {address}: {error}"));
        let mut signals = Signals::new().map_err(|error| Exit::new(OS_ERROR, error))?;
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        announce(listener.local_addr().map_err(cannot)?, "");
        tokio::select! {
            _ = signals.next() => Ok(()),
            () = server::serve(listener) => Ok(()),
        }
    })
}
