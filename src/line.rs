//! The line to a client while hyper is not on it: a socket, bytes that came early, and one alarm.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::scratch;

/// Bytes a client may send ahead of its turn; beyond that it waits in the kernel.
pub(crate) const MAX_UNREAD: usize = 64 << 10;

/// A client's socket.
pub(crate) struct Line {
    pub(crate) socket: TcpStream,
    /// Received, not used yet.
    pub(crate) unread: BytesMut,
    alarm: Alarm,
}

/// The client is no longer there.
#[derive(Debug)]
pub(crate) struct Gone;

impl Line {
    pub(crate) fn new(socket: TcpStream, unread: BytesMut) -> Self {
        Self { socket, unread, alarm: Alarm::new() }
    }

    /// Receives more of what the client sends; `Ok(false)` when it has ended its side.
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let unread = &mut self.unread;
        scratch::poll_read(&mut self.socket, cx, |_, bytes| {
            unread.extend_from_slice(bytes);
            !bytes.is_empty()
        })
    }

    /// Ready when the client has gone. What it sends meanwhile is kept for its turn.
    ///
    /// A client that only ends its sending side is taken for gone: that is what leaving looks like, and an answer
    /// nobody waits for would keep an upstream proxy busy.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        while self.unread.len() < MAX_UNREAD {
            match ready!(self.poll_receive(cx)) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Poll::Ready(Gone),
            }
        }
        Poll::Pending
    }

    /// Does `work` unless the client goes before it is done.
    pub(crate) async fn unless_gone<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = std::pin::pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => self.poll_gone(cx).map(Err),
        })
        .await
    }

    /// Ready when `deadline` has passed.
    pub(crate) fn poll_alarm(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        self.alarm.poll(cx, deadline)
    }

    /// Writes without waiting: what could not be written, and whether the client can still be written to.
    pub(crate) fn poll_some(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, Gone> {
        let mut written = 0;
        while written < bytes.len() {
            match Pin::new(&mut self.socket).poll_write(cx, &bytes[written..]) {
                Poll::Ready(Ok(more)) if more > 0 => written += more,
                Poll::Ready(_) => return Err(Gone),
                Poll::Pending => break,
            }
        }
        Ok(written)
    }

    /// Writes everything, or gives up when the client takes nothing for as long as `stall`.
    pub(crate) async fn send(&mut self, bytes: &[u8], stall: Duration) -> Result<(), Gone> {
        let (mut written, mut deadline) = (0, None);
        poll_fn(|cx| {
            match self.poll_some(cx, &bytes[written..]) {
                Err(gone) => return Poll::Ready(Err(gone)),
                Ok(more) if written + more == bytes.len() => return Poll::Ready(Ok(())),
                Ok(more) => {
                    written += more;
                    if more > 0 || deadline.is_none() {
                        deadline = Some(Instant::now() + stall);
                    }
                }
            }
            ready!(self.alarm.poll(cx, deadline.expect("set above")));
            Poll::Ready(Err(Gone))
        })
        .await
    }

    /// Ends the connection so that the client can tell it from a proper end.
    pub(crate) fn cut(self) {
        // Closing with nothing to linger for resets the connection.
        let _ = socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }
}

/// A timer that is set again only when it must ring earlier than it is set for, or has rung too early: deadlines
/// that keep moving into the future cost nothing.
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    fn new() -> Self {
        Self(None)
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if deadline < sleep.deadline() {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}
