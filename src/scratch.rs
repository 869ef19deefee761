//! One read buffer per worker, lent to whichever connection has bytes to move: a connection that waits holds none.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Large enough that two system calls per buffer cost less than copying what they move.
pub(crate) const SIZE: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into_boxed_slice());
}

/// Reads once, and hands what came to `take`: nothing at the end of the stream.
///
/// `take` runs while the buffer is lent, so it must not read again.
pub(crate) fn poll_read<R, T>(
    reader: &mut R,
    cx: &mut Context<'_>,
    take: impl FnOnce(&mut Context<'_>, &[u8]) -> T,
) -> Poll<io::Result<T>>
where
    R: AsyncRead + Unpin,
{
    SCRATCH.with_borrow_mut(|buffer| {
        let mut read = ReadBuf::new(buffer);
        ready!(Pin::new(reader).poll_read(cx, &mut read))?;
        Poll::Ready(Ok(take(cx, read.filled())))
    })
}
