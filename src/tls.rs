//! TLS to an upstream proxy, to the origin of a page that is fetched, or to Redis: which certificates are accepted, and what a
//! failed handshake is called.
//!
//! The roots are the system's, or those in `SSL_CERT_FILE`, read once when the first is dialed. A member with
//! `?insecure=1` takes any certificate; that is said in the log once.
//! Not here: TLS between client and origin, which passes through a tunnel untouched. No ALPN: HTTP/1.1 is what a proxy
//! speaks that is offered nothing.

mod session;

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

pub(crate) use session::Session;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::error::{Failure, Peer};
use crate::member::{Kind, Member, Tls};
use crate::stream::Stream;

/// Insecure members that are remembered as warned about; nobody reads more warnings than that.
const MOST_WARNED: usize = 1024;

static VERIFIER: LazyLock<Arc<dyn ServerCertVerifier>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (taken, _) = roots.add_parsable_certificates(found.certs);
    let why = found.errors.first().map(ToString::to_string);
    if taken == 0 {
        let why = why.unwrap_or_else(|| match std::env::var_os("SSL_CERT_FILE") {
            Some(file) => format!("there are none in {}", file.display()),
            None => "there are none".to_owned(),
        });
        tracing::warn!(
            why,
            "no root certificates: every https upstream proxy and page, and rediss store, will be refused"
        );
    } else if let Some(why) = why {
        tracing::warn!(why, "some root certificates cannot be read; what they have issued will be refused");
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), PROVIDER.clone()).build();
    match verifier {
        Ok(verifier) => verifier,
        // Without roots there is no verifier, and nothing to accept.
        Err(_) => Arc::new(Verifier { accepts: false }),
    }
});
static CHECKED: LazyLock<TlsConnector> = LazyLock::new(|| connector(VERIFIER.clone()));
static UNCHECKED: LazyLock<TlsConnector> = LazyLock::new(|| connector(Arc::new(Verifier { accepts: true })));
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(ring::default_provider()));

fn connector(verifier: Arc<dyn ServerCertVerifier>) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .expect("ring has the suites of TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// For a client that has its own connections and keeps of an error no more than its `Debug` text.
///
/// What is wrong with a certificate is an [`Error::General`] with a sentence, so that this is what stands there in quotes.
pub(crate) fn speaking_connector() -> TlsConnector {
    static SPEAKING: LazyLock<TlsConnector> = LazyLock::new(|| connector(Arc::new(Speaking(VERIFIER.clone()))));
    SPEAKING.clone()
}

/// Makes the connection a TLS one.
///
/// # Errors
/// [`Failure::Certificate`]; [`Failure::Tls`] for everything else, a closed connection included.
pub(crate) async fn connect(peer: Peer, tls: &Tls, socket: Stream) -> Result<Session, Failure> {
    let connector = if tls.is_insecure { &UNCHECKED } else { &CHECKED };
    let connected = connector.connect(tls.server_name.clone(), socket).await;
    connected.map(Session::new).map_err(|error| failure_of(peer, error))
}

fn failure_of(peer: Peer, error: io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(Error::InvalidCertificate(why)) => Failure::Certificate(peer, reason(why)),
        Some(Error::NoCertificatesPresented) => Failure::Certificate(peer, "it shows none"),
        _ => Failure::Tls(peer, error),
    }
}

/// In our own words: rustls names the host, and whoever reads this need not know it.
fn reason(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => "it is for another name",
        CertificateError::UnknownIssuer => "nobody known here has issued it",
        CertificateError::Revoked => "it has been revoked",
        // webpki's own word for it, which rustls passes on without a name.
        CertificateError::Other(error) if error.to_string() == "CaUsedAsEndEntity" => {
            "it is a certificate authority's own, which no server may show; have the authority issue one for this server"
        }
        _ => "it is not valid",
    }
}

/// Says in the log, once per member, that its certificate is not looked at.
pub(crate) fn warn_if_insecure(member: &Member) {
    static WARNED: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    if member.way().any(|hop| matches!(hop, Kind::Http { tls: Some(Tls { is_insecure: true, .. }), .. })) {
        let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < MOST_WARNED && warned.insert(member.id().to_owned()) {
            tracing::warn!(
                proxy = member.masked(),
                "insecure=1: whoever sits on the way to this proxy can read its password"
            );
        }
    }
}

/// All certificates, or none. Of those that are taken nothing is read, the signatures made with them included: what proves that
/// somebody owns a certificate which anybody could have shown is worth nothing, and old versions and short keys, as devices
/// make them for themselves, cannot be read here.
#[derive(Debug)]
struct Verifier {
    accepts: bool,
}

/// What servers may sign with that nobody verifies, beside what is verified here.
const UNVERIFIED: [SignatureScheme; 3] =
    [SignatureScheme::ECDSA_NISTP521_SHA512, SignatureScheme::ED448, SignatureScheme::RSA_PKCS1_SHA1];

impl Verifier {
    fn verdict<T>(&self, assertion: T) -> Result<T, Error> {
        if self.accepts { Ok(assertion) } else { Err(CertificateError::UnknownIssuer.into()) }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verdict(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verdict(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verdict(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = PROVIDER.signature_verification_algorithms.supported_schemes();
        schemes.extend(UNVERIFIED);
        schemes
    }
}

/// Another verifier, with its refusals in our words.
#[derive(Debug)]
struct Speaking(Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for Speaking {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.verify_server_cert(certificate, intermediates, name, ocsp, now).map_err(spoken)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed).map_err(spoken)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed).map_err(spoken)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn spoken(error: Error) -> Error {
    match error {
        Error::InvalidCertificate(why) => Error::General(format!("its certificate is not accepted: {}", reason(&why))),
        error => error,
    }
}
