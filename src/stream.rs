//! The connection to an upstream proxy, or to the origin itself: TCP, or TLS over it, in a chain perhaps several times.
//!
//! Whoever writes must flush: TLS may hold back what the socket did not take. On TCP a flush is nothing.

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, tcp};

use crate::tls;

/// A connection that bytes of a request can go out on.
pub(crate) enum Stream {
    Tcp(TcpStream),
    /// On the heap, so that the others stay small.
    Tls(Box<tls::Session>),
}

impl Stream {
    /// Whether nothing has come on a connection that should be silent: no bytes, no end, no error.
    pub(crate) fn is_quiet(&mut self) -> bool {
        match self {
            // The kernel is asked: the runtime knows only what was there when it last looked, which may be an answer ago.
            Self::Tcp(socket) => {
                let peeked = SockRef::from(&*socket).peek(&mut [MaybeUninit::uninit()]);
                peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            // Session tickets may have come, which are no news; reading takes them in.
            Self::Tls(socket) => {
                let read = Pin::new(&mut *socket)
                    .poll_read(&mut Context::from_waker(Waker::noop()), &mut ReadBuf::new(&mut [0]));
                read.is_pending() && socket.beneath_mut().is_quiet()
            }
        }
    }

    /// This machine's end of it.
    pub(crate) fn local_ip(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok().map(|address| address.ip()),
            Self::Tls(socket) => socket.beneath().local_ip(),
        }
    }

    /// Both directions, each to be used by itself.
    pub(crate) fn split(&mut self) -> (Reads<'_>, Writes<'_>) {
        match self {
            Self::Tcp(socket) => split_tcp(socket),
            Self::Tls(socket) => {
                let (reads, writes) = tokio::io::split(&mut **socket);
                (Reads::Tls(reads), Writes::Tls(writes))
            }
        }
    }
}

/// The same of a socket.
pub(crate) fn split_tcp(socket: &mut TcpStream) -> (Reads<'_>, Writes<'_>) {
    let (reads, writes) = socket.split();
    (Reads::Tcp(reads), Writes::Tcp(writes))
}

/// The reading direction of a connection.
pub(crate) enum Reads<'a> {
    Tcp(tcp::ReadHalf<'a>),
    Tls(tokio::io::ReadHalf<&'a mut tls::Session>),
}

/// The writing direction of a connection.
pub(crate) enum Writes<'a> {
    Tcp(tcp::WriteHalf<'a>),
    Tls(tokio::io::WriteHalf<&'a mut tls::Session>),
}

impl Reads<'_> {
    /// The bare socket, if its bytes are the stream's.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(reads) => Some(reads.as_ref()),
            Self::Tls(_) => None,
        }
    }
}

impl Writes<'_> {
    /// Likewise.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(writes) => Some(writes.as_ref()),
            Self::Tls(_) => None,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Tls(socket) => Pin::new(socket).poll_read(cx, buf),
        }
    }
}

impl AsyncRead for Reads<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(reads) => Pin::new(reads).poll_read(cx, buf),
            Self::Tls(reads) => Pin::new(reads).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write(cx, buf),
            Self::Tls(socket) => Pin::new(socket).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Self::Tls(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_write_vectored(),
            Self::Tls(socket) => socket.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}

impl AsyncWrite for Writes<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(writes) => Pin::new(writes).poll_write(cx, buf),
            Self::Tls(writes) => Pin::new(writes).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(writes) => Pin::new(writes).poll_flush(cx),
            Self::Tls(writes) => Pin::new(writes).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(writes) => Pin::new(writes).poll_shutdown(cx),
            Self::Tls(writes) => Pin::new(writes).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// The runtime learns of it only when it asks the kernel again.
    #[tokio::test]
    async fn what_came_since_the_runtime_last_looked_is_noticed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().await.unwrap();
        peer.write_all(b"an answer").unwrap();
        let mut answer = [0; 100];
        assert_eq!(socket.read(&mut answer).await.unwrap(), 9);
        let mut stream = Stream::Tcp(socket);
        assert!(stream.is_quiet());
        peer.write_all(b"another").unwrap();
        assert!(!stream.is_quiet());
        let Stream::Tcp(socket) = &mut stream else { unreachable!() };
        socket.read_exact(&mut answer[..7]).await.unwrap();
        assert!(stream.is_quiet());
        drop(peer);
        assert!(!stream.is_quiet());
    }
}
