//! A view of the next bytes of an input, of a bounded size: far enough to find the end of a line or of a value.

use std::io::{self, Read};

/// How far ahead can be seen: 64 KiB, in which any line about one proxy ends.
pub(super) const LOOKAHEAD: usize = 64 << 10;

/// An input, and what has been read of it ahead of need.
pub(super) struct Window<R> {
    input: R,
    /// Twice the lookahead, so that bytes are moved to its front once in a while and not for every line.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    is_over: bool,
    /// Of the next byte, from 1.
    line: u64,
    /// The byte before was a carriage return, whose line feed is part of the same line end.
    is_after_cr: bool,
}

/// What came of looking for a line.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Line,
    /// It was longer than [`LOOKAHEAD`], and is gone.
    TooLong,
    End,
}

impl<R: Read> Window<R> {
    pub(super) fn new(input: R) -> Self {
        let buffer = vec![0; 2 * LOOKAHEAD].into_boxed_slice();
        Self { input, buffer, start: 0, end: 0, is_over: false, line: 1, is_after_cr: false }
    }

    /// The line that the next byte is on, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// What there is to see: at least `wanted` bytes, at most [`LOOKAHEAD`] of them asked for, or all that is left.
    pub(super) fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        while self.end - self.start < wanted && !self.is_over {
            self.read_more()?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Goes on by `n` bytes, which must be in view.
    pub(super) fn consume(&mut self, n: usize) {
        for &byte in &self.buffer[self.start..self.start + n] {
            self.line += u64::from(byte == b'\r' || (byte == b'\n' && !self.is_after_cr));
            self.is_after_cr = byte == b'\r';
        }
        self.start += n;
    }

    /// The next line without its end, which is LF, CRLF or CR, in `out`. Does not wait for more than the line.
    pub(super) fn next_line(&mut self, out: &mut Vec<u8>) -> io::Result<Found> {
        out.clear();
        if self.is_after_cr && self.peek(1)?.first() == Some(&b'\n') {
            self.consume(1);
        }
        let found = match self.line_length()? {
            None => {
                self.skip_line()?;
                return Ok(Found::TooLong);
            }
            Some(0) if self.start == self.end => Found::End,
            Some(length) => {
                out.extend_from_slice(&self.buffer[self.start..self.start + length]);
                self.consume((length + 1).min(self.end - self.start));
                Found::Line
            }
        };
        Ok(found)
    }

    /// How many bytes there are before the next line end, or the end; `None` for more than can be seen.
    pub(super) fn line_length(&mut self) -> io::Result<Option<usize>> {
        let mut seen = 0;
        loop {
            let view = &self.buffer[self.start..self.end];
            if let Some(length) = view[seen..].iter().position(|&b| b == b'\n' || b == b'\r') {
                return Ok(Some(seen + length).filter(|&length| length < LOOKAHEAD));
            }
            seen = view.len();
            if seen >= LOOKAHEAD || self.is_over {
                return Ok(Some(seen).filter(|&length| length < LOOKAHEAD));
            }
            self.read_more()?;
        }
    }

    /// Whether nothing comes any more that can be seen. Waits for more than blanks, or the end.
    pub(super) fn is_blank_to_the_end(&mut self) -> io::Result<bool> {
        let mut wanted = 1;
        loop {
            let view = self.peek(wanted)?;
            if view.len() < wanted || view.len() >= LOOKAHEAD || !view.trim_ascii().is_empty() {
                return Ok(view.trim_ascii().is_empty());
            }
            wanted = view.len() + 1;
        }
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let view = self.peek(1)?;
            if view.is_empty() {
                return Ok(());
            }
            let length = view.iter().position(|&b| b == b'\n' || b == b'\r');
            let all = view.len();
            self.consume(length.map_or(all, |length| length + 1));
            if length.is_some() {
                return Ok(());
            }
        }
    }

    /// Only called while less than the lookahead is in view, so there is always room.
    fn read_more(&mut self) -> io::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start >= LOOKAHEAD {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match self.input.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.is_over = true,
            Ok(n) => self.end += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time.
    struct Dribble<'a>(&'a [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(1);
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn lines(input: impl Read) -> Vec<(u64, Vec<u8>)> {
        let (mut window, mut out, mut lines) = (Window::new(input), Vec::new(), Vec::new());
        loop {
            match window.next_line(&mut out).unwrap() {
                Found::Line => lines.push((window.line(), out.clone())),
                Found::TooLong => lines.push((window.line(), b"too long".to_vec())),
                Found::End => return lines,
            }
        }
    }

    #[test]
    fn a_line_ends_with_lf_crlf_or_cr() {
        let text = b"a\nb\r\nc\rd\r\r\n\n\re";
        let expected =
            [(2, "a"), (3, "b"), (4, "c"), (5, "d"), (6, ""), (7, ""), (8, ""), (8, "e")].map(|(n, t)| (n, t.into()));
        assert_eq!(lines(&text[..]), expected);
        assert_eq!(lines(Dribble(text)), expected);
        assert_eq!(lines(&b""[..]), []);
        assert_eq!(lines(&b"\n"[..]), [(2, vec![])]);
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        for length in [LOOKAHEAD - 1, LOOKAHEAD, 5 * LOOKAHEAD] {
            let text = [&b"a\n"[..], &vec![b'x'; length], b"\r\nb"].concat();
            let middle = if length < LOOKAHEAD { vec![b'x'; length] } else { b"too long".to_vec() };
            let expected = [(2, b"a".to_vec()), (3, middle), (3, b"b".to_vec())];
            assert_eq!(lines(&text[..]), expected);
            assert_eq!(lines(Dribble(&text)), expected);
        }
    }
}
