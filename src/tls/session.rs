//! A connection with TLS on it, which gives all that came before it broke.

use std::io::{self, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::stream::Stream;

/// The client's side of TLS over a stream, the handshake done.
///
/// Records may come together with one that cannot be read. rustls takes the first ones in and then fails, and tokio-rustls
/// tells of the failure alone; here it waits until they have been read.
pub(crate) struct Session {
    tls: TlsStream<Stream>,
    /// How it broke, as long as there is something to be read.
    broken: Option<io::Error>,
}

impl Session {
    pub(super) fn new(tls: TlsStream<Stream>) -> Self {
        Self { tls, broken: None }
    }

    /// What it goes over.
    pub(crate) fn beneath(&self) -> &Stream {
        self.tls.get_ref().0
    }

    /// Likewise.
    pub(crate) fn beneath_mut(&mut self) -> &mut Stream {
        self.tls.get_mut().0
    }
}

impl AsyncRead for Session {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let error = match this.broken.take() {
            Some(error) => error,
            None => match ready!(Pin::new(&mut this.tls).poll_read(cx, buf)) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(error) => error,
            },
        };
        // An error of the reader says that there is nothing more.
        let length = this.tls.get_mut().1.reader().read(buf.initialize_unfilled()).unwrap_or(0);
        if length == 0 {
            return Poll::Ready(Err(error));
        }
        buf.advance(length);
        this.broken = Some(error);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Session {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tls).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tls).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tls).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tls).poll_shutdown(cx)
    }
}
