//! Bulk bytes from one socket to another without coming into this process (Linux, splice(2)).
//!
//! The kernel moves pages through a pipe: at 1 MiB a time about a quarter of the CPU that copying costs. A pipe is two
//! descriptors and memory that the kernel accounts to the user, so it is opened only for a tunnel that has proved
//! to be bulk, within a bound, and closed when the tunnel falls quiet.
//! Elsewhere than on Linux [`Pipe::open`] gives nothing and tunnels are copied.

#[cfg(target_os = "linux")]
pub(crate) use linux::Pipe;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::Pipe;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice};
    use tokio::io::Interest;
    use tokio::net::TcpStream;
    use tokio::sync::{OwnedSemaphorePermit, Semaphore};

    /// What a pipe should hold. An unprivileged user may have 64 of these (fs.pipe-user-pages-soft).
    const CAPACITY: usize = 1 << 20;
    /// With less room than this, copying is as good. The kernel gives as little as two pages to a user who has many.
    const LEAST: usize = 256 << 10;

    /// A pipe between two sockets.
    pub(crate) struct Pipe {
        reader: OwnedFd,
        writer: OwnedFd,
        capacity: usize,
        /// Bytes in it.
        held: usize,
        _place: OwnedSemaphorePermit,
    }

    impl Pipe {
        /// `None` when there are as many as there may be, or the kernel has none to give.
        pub(crate) fn open(places: &Arc<Semaphore>) -> Option<Self> {
            let place = places.clone().try_acquire_owned().ok()?;
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
            // Refused beyond the user's share; then what it has must do.
            let _ = fcntl_setpipe_size(&writer, CAPACITY);
            let capacity = fcntl_getpipe_size(&writer).ok().filter(|&capacity| capacity >= LEAST)?;
            Some(Self { reader, writer, capacity, held: 0, _place: place })
        }

        /// Whether everything that came in has gone out.
        pub(crate) fn is_empty(&self) -> bool {
            self.held == 0
        }

        /// Takes what `from` has into the empty pipe; 0 at the end of the stream.
        ///
        /// # Errors
        /// `WouldBlock`: nothing there yet.
        pub(crate) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
            debug_assert!(self.is_empty(), "a full pipe and an empty socket look the same");
            let moved = from.try_io(Interest::READABLE, || {
                let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                splice(from, None, &self.writer, None, self.capacity, flags).map_err(io::Error::from)
            })?;
            self.held = moved;
            Ok(moved)
        }

        /// Gives `to` what it takes of the pipe's content.
        ///
        /// # Errors
        /// `WouldBlock`: it takes nothing now.
        pub(crate) fn drain(&mut self, to: &TcpStream) -> io::Result<usize> {
            let moved = to.try_io(Interest::WRITABLE, || {
                let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                splice(&self.reader, None, to, None, self.held, flags).map_err(io::Error::from)
            })?;
            if moved == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.held -= moved;
            Ok(moved)
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::io;
    use std::sync::Arc;

    use tokio::net::TcpStream;
    use tokio::sync::Semaphore;

    /// Never made.
    pub(crate) enum Pipe {}

    impl Pipe {
        pub(crate) fn open(_: &Arc<Semaphore>) -> Option<Self> {
            None
        }

        pub(crate) fn is_empty(&self) -> bool {
            match *self {}
        }

        pub(crate) fn fill(&mut self, _: &TcpStream) -> io::Result<usize> {
            match *self {}
        }

        pub(crate) fn drain(&mut self, _: &TcpStream) -> io::Result<usize> {
            match *self {}
        }
    }
}
