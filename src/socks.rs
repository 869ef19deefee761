//! SOCKS 4, 4a and 5: what is said until the proxy has connected to the target (RFC 1928, RFC 1929, and the two pages
//! that SOCKS4 and 4a were ever written down on).
//!
//! Messages are values made of bytes and bytes made of values; [`open`] says them in order. It reads exactly as many
//! bytes as a reply has, so a reply may come in pieces, and what comes behind the last one, which is the target's, stays
//! in the socket. That is why neither hyper-util's connectors (they read on and drop the rest) nor a buffer is used here.
//! Not here: deadlines, resolving ([`crate::dial`]), and methods other than "none" and user/password.

use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::error::Failure;
use crate::member::{Host, Login, Socks};

/// Asks the proxy at the other end of `socket` to connect to `host`; afterwards the socket is the target's.
///
/// # Errors
/// [`Failure::Login`], [`Failure::SocksRefused`], [`Failure::NotSocks`]; [`Failure::Closed`] when it hangs up;
/// [`Failure::Unroutable`] for a target that the protocol has no words for.
pub(crate) async fn open<S>(
    socket: &mut S,
    protocol: Socks,
    login: Option<&Login>,
    host: &Host,
    port: u16,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if matches!(protocol, Socks::V4 | Socks::V4a) {
        say(socket, &request_4(host, port, login)?).await?;
        check_reply_4(hear(socket).await?)?;
        // Six more bytes that mean nothing after a CONNECT.
        return hear::<6>(socket).await.map(drop);
    }
    // Before anything is said: a target that cannot be asked for is no fault of the proxy.
    let request = request_5(host, port)?;
    say(socket, greeting(login)).await?;
    if wants_login(hear(socket).await?, login)? {
        say(socket, &login.map(login_5).unwrap_or_default()).await?;
        check_login(hear(socket).await?)?;
    }
    say(socket, &request).await?;
    check_reply_5(hear(socket).await?)?;
    let mut rest = vec![0; rest_of_reply_5(hear(socket).await?)?];
    socket.read_exact(&mut rest).await.map_err(Failure::from_broken)?;
    Ok(())
}

async fn say<S: AsyncWrite + Unpin>(socket: &mut S, bytes: &[u8]) -> Result<(), Failure> {
    socket.write_all(bytes).await.map_err(Failure::from_broken)?;
    socket.flush().await.map_err(Failure::from_broken)
}

async fn hear<const N: usize>(socket: &mut (impl AsyncRead + Unpin)) -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes).await.map_err(Failure::from_broken)?;
    Ok(bytes)
}

/// The methods offered: "none", and user/password if there are any (RFC 1928 §3).
fn greeting(login: Option<&Login>) -> &'static [u8] {
    if login.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] }
}

/// Whether the proxy has chosen user/password.
fn wants_login([version, method]: [u8; 2], login: Option<&Login>) -> Result<bool, Failure> {
    match (version, method) {
        (5, 0) => Ok(false),
        (5, 2) if login.is_some() => Ok(true),
        (5, 0xff) => Err(Failure::Login),
        _ => Err(Failure::NotSocks),
    }
}

/// RFC 1929 §2. That both fit was checked when the member was parsed.
fn login_5(Login { user, password }: &Login) -> Vec<u8> {
    [&[1, user.len() as u8], &user[..], &[password.len() as u8], &password[..]].concat()
}

/// The version is not looked at: some say 5 where RFC 1929 has 1.
fn check_login([_, status]: [u8; 2]) -> Result<(), Failure> {
    if status == 0 { Ok(()) } else { Err(Failure::Login) }
}

/// CONNECT (RFC 1928 §4).
fn request_5(host: &Host, port: u16) -> Result<Vec<u8>, Failure> {
    let mut request = vec![5, 1, 0];
    match host {
        Host::Ip(IpAddr::V4(ip)) => {
            request.push(1);
            request.extend(ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            request.push(4);
            request.extend(ip.octets());
        }
        Host::Name(name) => {
            let length =
                u8::try_from(name.len()).map_err(|_| Failure::Unroutable("its name is too long for SOCKS5"))?;
            request.extend([3, length]);
            request.extend(name.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

/// The first half of a reply's fixed part. A refusal is one whatever follows, and with some proxies nothing does.
fn check_reply_5([version, reply]: [u8; 2]) -> Result<(), Failure> {
    match (version, reply) {
        (5, 0) => Ok(()),
        (5, code) => Err(Failure::SocksRefused(code)),
        _ => Err(Failure::NotSocks),
    }
}

/// How much of a reply follows the reserved byte, the kind of address and the first byte of the address (RFC 1928 §6). The
/// address is where the proxy dials from, or nothing in particular: it may be of any kind, and a name may be empty.
fn rest_of_reply_5([_, kind, first]: [u8; 3]) -> Result<usize, Failure> {
    const PORT: usize = 2;
    match kind {
        1 => Ok(3 + PORT),
        3 => Ok(usize::from(first) + PORT),
        4 => Ok(15 + PORT),
        _ => Err(Failure::NotSocks),
    }
}

/// CONNECT of SOCKS4; for a name that of 4a, whose address 0.0.0.1 says that a name follows.
fn request_4(host: &Host, port: u16, login: Option<&Login>) -> Result<Vec<u8>, Failure> {
    let (ip, name) = match host {
        Host::Ip(IpAddr::V4(ip)) => (ip.octets(), None),
        Host::Ip(IpAddr::V6(_)) => return Err(Failure::Unroutable("SOCKS4 knows no IPv6")),
        Host::Name(name) => ([0, 0, 0, 1], Some(name)),
    };
    let user = login.map_or(&[][..], |login| &login.user);
    let mut request = [&[4, 1], &port.to_be_bytes()[..], &ip, user, &[0]].concat();
    if let Some(name) = name {
        request.extend(name.as_bytes());
        request.push(0);
    }
    Ok(request)
}

/// The first two bytes of the reply.
fn check_reply_4([version, code]: [u8; 2]) -> Result<(), Failure> {
    match (version, code) {
        (0, 90) => Ok(()),
        (0, 91) => Err(Failure::SocksRefused(code)),
        // The user is not who identd says, or there is no identd: the member is configured wrongly.
        (0, 92 | 93) => Err(Failure::Login),
        _ => Err(Failure::NotSocks),
    }
}

/// The proxy makes no connections at all (RFC 1928 §6).
pub(crate) const NO_SUCH_COMMAND: u8 = 7;

/// What a refusal's code means (RFC 1928 §6, and SOCKS4's one).
pub(crate) fn reason(code: u8) -> &'static str {
    match code {
        1 => "general failure",
        2 => "not allowed",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "time to live expired",
        NO_SUCH_COMMAND => "it cannot do that",
        8 => "it cannot use such an address",
        91 => "rejected or failed",
        _ => "for a reason that has no name",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::of_target(text)
    }

    fn login() -> Login {
        Login { user: b"me".into(), password: b"pw".into() }
    }

    #[test]
    fn requests_are_the_bytes_of_the_rfcs() {
        assert_eq!(request_5(&host("10.0.0.7"), 443).unwrap(), [5, 1, 0, 1, 10, 0, 0, 7, 1, 187]);
        assert_eq!(request_5(&host("a.b"), 80).unwrap(), [&[5, 1, 0, 3, 3], &b"a.b"[..], &[0, 80]].concat());
        let mut v6 = vec![5, 1, 0, 4, 0x20, 0x01, 0x0d, 0xb8];
        v6.extend([0; 11]);
        v6.extend([1, 0, 80]);
        assert_eq!(request_5(&host("2001:db8::1"), 80).unwrap(), v6);
        assert_eq!(login_5(&login()), [&[1, 2], &b"me"[..], &[2], b"pw"].concat());
        assert_eq!(request_4(&host("10.0.0.7"), 80, Some(&login())).unwrap(), b"\x04\x01\x00\x50\x0a\x00\x00\x07me\0");
        assert_eq!(request_4(&host("a.b"), 80, None).unwrap(), b"\x04\x01\x00\x50\x00\x00\x00\x01\0a.b\0");
        assert!(matches!(request_4(&host("::1"), 80, None), Err(Failure::Unroutable(_))));
        assert!(matches!(request_5(&host(&"a".repeat(256)), 80), Err(Failure::Unroutable(_))));
    }

    #[test]
    fn a_method_that_was_not_offered_is_nonsense() {
        assert!(matches!(wants_login([5, 0], None), Ok(false)));
        assert!(matches!(wants_login([5, 2], Some(&login())), Ok(true)));
        assert!(matches!(wants_login([5, 2], None), Err(Failure::NotSocks)));
        assert!(matches!(wants_login([5, 1], Some(&login())), Err(Failure::NotSocks)));
        assert!(matches!(wants_login([5, 255], Some(&login())), Err(Failure::Login)));
        assert!(matches!(wants_login(*b"HT", None), Err(Failure::NotSocks)));
    }

    /// What becomes of a handshake in which the proxy says `said`, and what of it is left.
    async fn opened(protocol: Socks, said: &[u8]) -> (Result<(), Failure>, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(1024);
        far.write_all(said).await.unwrap();
        far.shutdown().await.unwrap();
        let result = open(&mut near, protocol, Some(&login()), &host("a.b"), 80).await;
        let mut left = Vec::new();
        near.read_to_end(&mut left).await.unwrap();
        (result, left)
    }

    #[tokio::test]
    async fn what_follows_the_last_reply_is_left_whatever_address_it_has() {
        let addresses: [&[u8]; 4] = [b"\x01abcd", b"\x03\x0bproxy.local", b"\x03\x00", b"\x04abcdefghijklmnop"];
        for address in addresses {
            let said = [b"\x05\x00\x05\x00\x00", address, b"\x00\x50220 ready"].concat();
            let (result, left) = opened(Socks::V5h, &said).await;
            assert!(result.is_ok() && left == b"220 ready", "{result:?} {left:?}");
            // Cut off anywhere in the replies, it is a hang-up.
            for length in 0..said.len() - 9 {
                assert!(matches!(opened(Socks::V5h, &said[..length]).await.0, Err(Failure::Closed)), "{length}");
            }
        }
        let (result, left) = opened(Socks::V4a, b"\x00\x5aabcdef220 ready").await;
        assert!(result.is_ok() && left == b"220 ready", "{result:?} {left:?}");
    }

    #[tokio::test]
    async fn a_refusal_is_one_as_soon_as_its_code_has_come() {
        assert!(matches!(opened(Socks::V5, b"\x05\x00\x05\x05").await.0, Err(Failure::SocksRefused(5))));
        assert!(matches!(opened(Socks::V5, b"\x05\x02\x01\x01").await.0, Err(Failure::Login)));
        assert!(matches!(opened(Socks::V5, b"\x05\x00\x05\x00\x00\x02x").await.0, Err(Failure::NotSocks)));
        assert!(matches!(opened(Socks::V4, b"\x00\x5b").await.0, Err(Failure::SocksRefused(91))));
        assert!(matches!(opened(Socks::V4, b"\x00\x5d").await.0, Err(Failure::Login)));
        assert!(matches!(opened(Socks::V4, b"HTTP/1.1 400 Bad").await.0, Err(Failure::NotSocks)));
    }
}
