//! The far side of TLS by hand: for what no real server does.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;

use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion, crypto, version};

use super::servers::Certificate;
use super::upstream::Conn;

/// TLS 1.2 and 1.3.
pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];

/// What a server shows.
pub(crate) fn config(certificate: &Certificate, version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let file = certificate.chain();
    let chain = CertificateDer::pem_file_iter(&file).expect("a file").collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(&file).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_protocol_versions(&[version])
        .expect("ring has its suites")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    Arc::new(config.expect("they fit"))
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    /// As TLS wants it: close_notify, then the end of the stream.
    Told,
    /// The end of the stream alone, as whoever sits on the way could make it.
    Untold,
    /// A record that nobody could have written who knows the keys.
    Forged,
    /// A TCP reset.
    Reset,
}

pub(crate) const ENDINGS: [Ending; 4] = [Ending::Told, Ending::Untold, Ending::Forged, Ending::Reset];

const FORGED: &[u8] = b"\x17\x03\x03\x00\x20abcdefghijklmnopqrstuvwxyz012345";

/// A connection with TLS on it.
pub(crate) struct TlsConn<'a> {
    conn: &'a mut Conn,
    session: ServerConnection,
}

impl<'a> TlsConn<'a> {
    pub(crate) fn accept(conn: &'a mut Conn, config: &Arc<ServerConfig>) -> io::Result<Self> {
        let mut session = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut conn.stream)?;
        }
        Ok(Self { conn, session })
    }

    /// The SNI that the client has sent.
    pub(crate) fn server_name(&self) -> Option<String> {
        self.session.server_name().map(str::to_owned)
    }

    /// The next head; nothing at the end of the stream.
    pub(crate) fn head(&mut self) -> io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if self.read(&mut byte)? == 0 {
                break;
            }
            head.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream().read(bytes)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream().write_all(bytes.as_ref())?;
        self.stream().flush()
    }

    /// Says that nothing more comes, and goes on reading.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.session.send_close_notify();
        self.session.complete_io(&mut self.conn.stream).map(drop)
    }

    pub(crate) fn end(mut self, how: Ending) -> io::Result<()> {
        match how {
            Ending::Told => self.finish()?,
            Ending::Untold => {}
            Ending::Forged => self.conn.stream.write_all(FORGED)?,
            Ending::Reset => {
                socket2::SockRef::from(&self.conn.stream).set_linger(Some(std::time::Duration::ZERO))?;
                return Ok(());
            }
        }
        self.over()
    }

    /// Sends `bytes` and what [`Ending::Forged`] means in one piece, and ends.
    pub(crate) fn send_and_forge(mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.session.writer().write_all(bytes.as_ref())?;
        let mut records = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut records)?;
        }
        records.extend_from_slice(FORGED);
        self.conn.stream.write_all(&records)?;
        self.over()
    }

    fn over(self) -> io::Result<()> {
        self.conn.stream.shutdown(Shutdown::Write)?;
        // Closing with unread bytes would be a reset.
        self.conn.until_close().map(drop)
    }

    fn stream(&mut self) -> tokio_rustls::rustls::Stream<'_, ServerConnection, std::net::TcpStream> {
        tokio_rustls::rustls::Stream::new(&mut self.session, &mut self.conn.stream)
    }
}
