//! Clients: one that says every byte itself, and the real curl.

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::wire::{Head, Message, Wire};

/// A connection to the gateway. Whatever goes wrong on it fails the test.
pub(crate) struct Client(Wire);

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self(Wire::connect(address).expect("the gateway accepts"))
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.0.send(bytes).expect("the gateway reads");
        self
    }

    /// Sends what may no longer be wanted.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.send(bytes).is_ok()
    }

    pub(crate) fn finish(&mut self) {
        self.0.finish().expect("an open socket");
    }

    pub(crate) fn reset(self) {
        self.0.reset();
    }

    /// The next head alone.
    pub(crate) fn head(&mut self) -> Head {
        self.0.head().expect("a response head").expect("an answer, not the end of the connection")
    }

    pub(crate) fn response(&mut self) -> Message {
        self.response_to("GET")
    }

    pub(crate) fn response_to(&mut self, method: &str) -> Message {
        let head = self.head();
        self.body_of(head, method)
    }

    /// The body behind a head that was read by itself.
    pub(crate) fn body_of(&mut self, head: Head, method: &str) -> Message {
        self.0.response(head, method).expect("a whole body")
    }

    pub(crate) fn get(&mut self, url: &str) -> Message {
        self.send(format!("GET {url} HTTP/1.1\r\nHost: ignored\r\n\r\n")).response()
    }

    /// A CONNECT, and the head of what comes back.
    pub(crate) fn connect(&mut self, target: &str) -> Head {
        self.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")).head()
    }

    pub(crate) fn exactly(&mut self, length: usize) -> Vec<u8> {
        self.0.exactly(length).expect("so many bytes")
    }

    /// Everything until the gateway closes.
    pub(crate) fn until_close(&mut self) -> Vec<u8> {
        self.0.until_close().expect("the gateway closes the connection")
    }

    /// An answer that comes without a request within `span`: the gateway is full.
    pub(crate) fn said_unasked(&mut self, span: Duration) -> Option<Message> {
        (!self.is_silent_for(span)).then(|| self.response())
    }

    pub(crate) fn is_silent_for(&mut self, span: Duration) -> bool {
        self.0.is_silent_for(span)
    }

    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.0
    }
}

/// Runs curl with nothing of this machine's proxy settings.
pub(crate) fn curl(args: &[&str]) -> Output {
    Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "10"])
        .args(args)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .expect("these tests need curl on the PATH (apt-get install curl)")
}

/// What curl wrote, if it was content.
pub(crate) fn curl_text(args: &[&str]) -> String {
    let output = curl(args);
    assert!(output.status.success(), "curl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
