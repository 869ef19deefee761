//! An upstream proxy as it is written in a configuration or on a command line.

use crate::member::{Member, Name, masked};

/// A member for the pool, byte for byte as written.
///
/// # Errors
/// Why it can never be dialed, in a sentence that shows no password.
pub fn proxy(text: &str) -> Result<Name, String> {
    const FORM: &str = "write [scheme://][user:password@]host:port, where the scheme is http, https, socks5h, socks5, socks4a or \
        socks4, or direct://[address]";
    let name = Name::copy_from_slice(text.as_bytes());
    match Member::parse(&name) {
        Ok(_) => Ok(name),
        Err(why) => Err(format!("cannot use \"{}\": {why}; {FORM}", masked(text.as_bytes()))),
    }
}
