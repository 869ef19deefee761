//! The embedded store in the file that a gateway keeps (`pool.state`).

use super::listing::since;
use crate::cli::{CANNOT_CREATE, Exit, UNAVAILABLE, USAGE, embedded};
use crate::config;
use crate::output::note;
use crate::pool::embedded::{Embedded, KeepError, Keeper, peek};

/// The pool as a gateway has saved it. To change it, the gateway must have ended: it would save over that.
pub(in crate::cli) fn open(config: &config::Pool, changes: bool) -> Result<(Embedded, Option<Keeper>), Exit> {
    let Some(path) = &config.state else {
        let why = "the embedded store lives inside one gateway process; name a Redis with --store or pool.store, or with \
                   pool.state the file in which the gateway keeps its state";
        return Err(Exit::new(USAGE, why));
    };
    let pool = embedded(config);
    let found = peek(path, &pool).map_err(|why| Exit::new(UNAVAILABLE, why))?;
    if !changes {
        match found {
            Some(found) => note(format_args!("{}: saved {} ago", path.display(), since(found.saved_ms))),
            None => note(format_args!("{}: there is none yet", path.display())),
        }
        return Ok((pool, None));
    }
    let pool = embedded(config);
    let (keeper, _) = Keeper::open(path, pool.clone()).map_err(|error| match error {
        KeepError::Locked(_) => Exit::new(
            UNAVAILABLE,
            format!("{error}: a gateway would save its own state over what is changed here; end it first"),
        ),
        error => Exit::new(CANNOT_CREATE, error),
    })?;
    Ok((pool, Some(keeper)))
}
