//! The gateway's own pages.

use std::net::SocketAddr;

use super::client::Client;
use super::gateway::{Gateway, Setup, eventually};
use super::wire::{Message, PATIENCE};

impl Setup {
    /// With its own pages on a free port.
    pub(crate) fn admin(self) -> Self {
        self.set("admin.listen", "127.0.0.1:0")
    }
}

impl Gateway {
    /// Where they are, as its log says.
    pub(crate) fn admin(&self) -> SocketAddr {
        // What it says on standard error may come later than what it says on standard output.
        eventually(PATIENCE, "its address", || self.log().contains("/metrics\n"));
        let log = self.log();
        let at = log.split("metrics on http://").nth(1).expect("admin.listen").split("/metrics").next();
        at.unwrap().parse().expect("an address")
    }

    /// A request there, its head as it is.
    pub(crate) fn ask_admin(&self, request: impl AsRef<[u8]>) -> Message {
        Client::to(self.admin()).send(request).response()
    }

    /// The value of one counter or gauge with its labels; `None`: it is not shown.
    pub(crate) fn metric(&self, name: &str) -> Option<u64> {
        let page = self.ask_admin("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        assert_eq!(page.status(), 200);
        let text = page.text();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.map(|value| value.parse().expect("a number"))
    }
}
