//! The far side of SOCKS 4, 4a and 5, byte by byte.

use std::io;

use super::wire::Wire;

/// What a SOCKS proxy was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) version: u8,
    /// User and password, where there were any.
    pub(crate) login: Option<(String, String)>,
    /// An address, or a name that is ours to resolve.
    pub(crate) host: String,
    pub(crate) is_name: bool,
    pub(crate) port: u16,
}

/// A whole reply that grants a request.
pub(crate) fn granted(version: u8) -> &'static [u8] {
    if version == 4 { b"\0\x5a\0\0\0\0\0\0" } else { b"\x05\0\0\x01\0\0\0\0\0\0" }
}

/// A whole reply that refuses one: of version 5 with "connection refused".
pub(crate) fn refused(version: u8) -> &'static [u8] {
    if version == 4 { b"\0\x5b\0\0\0\0\0\0" } else { b"\x05\x05\0\x01\0\0\0\0\0\0" }
}

/// Reads up to the request, answering what comes before it through `say`. With a `password`, no other will do, or with
/// SOCKS4 no other user.
pub(crate) fn hear(
    wire: &mut Wire,
    password: Option<&str>,
    say: impl Fn(&mut Wire, &[u8]) -> io::Result<()>,
) -> io::Result<Asked> {
    let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
    let version = wire.exactly(1)?[0];
    if version == 4 {
        let head = wire.exactly(7)?;
        let user = text(wire.until(b"\0")?);
        let is_name = head[3..6] == [0, 0, 0];
        let host = if is_name { text(wire.until(b"\0")?) } else { address(&head[3..]) };
        if password.is_some_and(|password| password != user) {
            say(wire, b"\0\x5d\0\0\0\0\0\0")?;
            return Err(denied());
        }
        let login = Some((user, String::new())).filter(|(user, _)| !user.is_empty());
        return Ok(Asked { version, login, host, is_name, port: u16::from_be_bytes([head[1], head[2]]) });
    }
    let count = wire.exactly(1)?[0];
    let methods = wire.exactly(count.into())?;
    let mut login = None;
    if let Some(password) = password {
        if !methods.contains(&2) {
            say(wire, b"\x05\xff")?;
            return Err(denied());
        }
        say(wire, b"\x05\x02")?;
        let [_, length] = wire.exactly(2)?[..] else { unreachable!() };
        let user = text(wire.exactly(length.into())?);
        let length = wire.exactly(1)?[0];
        let given = text(wire.exactly(length.into())?);
        if given != password {
            say(wire, b"\x01\x01")?;
            return Err(denied());
        }
        say(wire, b"\x01\0")?;
        login = Some((user, given));
    } else {
        say(wire, b"\x05\0")?;
    }
    let kind = wire.exactly(4)?[3];
    let host = match kind {
        1 => address(&wire.exactly(4)?),
        4 => address(&wire.exactly(16)?),
        _ => {
            let length = wire.exactly(1)?[0];
            text(wire.exactly(length.into())?)
        }
    };
    let port = wire.exactly(2)?;
    Ok(Asked { version, login, host, is_name: kind == 3, port: u16::from_be_bytes([port[0], port[1]]) })
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text").trim_end_matches('\0').to_owned()
}

fn address(bytes: &[u8]) -> String {
    match <[u8; 4]>::try_from(bytes) {
        Ok(octets) => std::net::Ipv4Addr::from(octets).to_string(),
        Err(_) => std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("an address")).to_string(),
    }
}
