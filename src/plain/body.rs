//! How far the body of an answer has come: measured as it passes, and changed nowhere but in its trailers, and where the size
//! of a chunk is written oddly.

use crate::ban::Beginning;
use crate::chunked::Chunked;
use crate::head::{self, Framing, Nonsense};

/// How far an answer's body has come.
pub(crate) struct Body {
    pub(super) framing: Framing,
    /// Of a body with a length.
    left: u64,
    chunked: Chunked,
    trailers: Vec<u8>,
    /// Bytes of the body that went to the client, without the sizes of its chunks.
    pub(super) passed: u64,
    pub(crate) is_over: bool,
    /// More came than belongs to the answer; the connection cannot be trusted again.
    pub(crate) has_surplus: bool,
    /// What wants to see how it begins.
    pub(super) beginning: Option<Box<Beginning>>,
}

/// The trailer section may be this long, as in hyper.
const MAX_TRAILERS: usize = (16 << 10) - 1;

impl Body {
    pub(crate) fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        let is_over = matches!(framing, Framing::Nothing | Framing::Length(0));
        Self {
            framing,
            left,
            chunked: Chunked::default(),
            trailers: Vec::new(),
            passed: 0,
            is_over,
            has_surplus: false,
            beginning: None,
        }
    }

    /// How many of `bytes` are passed on as they are; what follows them goes to `tail`.
    pub(crate) fn take(&mut self, bytes: &[u8], tail: &mut Vec<u8>) -> Result<usize, Nonsense> {
        let (taken, body, used) = match self.framing {
            Framing::UntilClose => (bytes.len(), bytes.len(), bytes.len()),
            _ if self.is_over => (0, 0, 0),
            Framing::Nothing => (0, 0, 0),
            Framing::Length(_) => {
                let taken = self.left.min(bytes.len() as u64) as usize;
                self.left -= taken as u64;
                self.is_over = self.left == 0;
                (taken, taken, taken)
            }
            Framing::Chunked => {
                let (taken, chunks) = if self.chunked.is_last() { (0, 0) } else { self.take_chunks(bytes, tail)? };
                let trailers = if self.chunked.is_last() { self.take_trailers(&bytes[chunks..], tail)? } else { 0 };
                (taken, chunks, chunks + trailers)
            }
        };
        if let Some(beginning) = &mut self.beginning
            && beginning.add(&bytes[..body])
        {
            self.beginning = None;
        }
        self.has_surplus |= used < bytes.len();
        if self.framing != Framing::Chunked {
            self.passed += body as u64;
        }
        Ok(taken)
    }

    /// How many of `bytes` are passed on as they are, and how many belong to the chunks at all.
    fn take_chunks(&mut self, bytes: &[u8], tail: &mut Vec<u8>) -> Result<(usize, usize), Nonsense> {
        // Hardly ever is there one.
        let mut idle = Vec::new();
        let mut data = 0;
        let read = self.chunked.advance_cleaning(bytes, |piece| data += piece.len(), |at| idle.push(at));
        let length = read.map_err(|_| Nonsense)?;
        self.passed += data as u64;
        let Some(&first) = idle.first() else { return Ok((length, length)) };
        let ends = idle.iter().skip(1).copied().chain([length]);
        for (at, end) in idle.iter().zip(ends) {
            tail.extend_from_slice(&bytes[at + 1..end]);
        }
        Ok((first, length))
    }

    /// How many of `bytes` belong to the trailer section.
    fn take_trailers(&mut self, bytes: &[u8], tail: &mut Vec<u8>) -> Result<usize, Nonsense> {
        let before = self.trailers.len();
        let room = MAX_TRAILERS.saturating_sub(before);
        self.trailers.extend_from_slice(&bytes[..room.min(bytes.len())]);
        match head::read_trailers(&self.trailers, tail)? {
            Some(length) => {
                self.is_over = true;
                Ok(length - before)
            }
            None if bytes.len() >= room => Err(Nonsense),
            None => Ok(bytes.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the client gets of a body that comes in pieces of `step` bytes.
    fn passed(framing: Framing, bytes: &[u8], step: usize) -> Result<(Vec<u8>, bool, bool), Nonsense> {
        let (mut body, mut out) = (Body::new(framing), Vec::new());
        for piece in bytes.chunks(step) {
            let mut tail = Vec::new();
            let taken = body.take(piece, &mut tail)?;
            out.extend_from_slice(&piece[..taken]);
            out.extend_from_slice(&tail);
        }
        Ok((out, body.is_over, body.has_surplus))
    }

    #[test]
    fn a_body_ends_where_its_framing_says_however_it_arrives() {
        for step in 1..40 {
            assert_eq!(passed(Framing::Length(5), b"HELLO", step), Ok((b"HELLO".to_vec(), true, false)));
            assert_eq!(passed(Framing::Length(5), b"HELLOX", step), Ok((b"HELLO".to_vec(), true, true)));
            assert_eq!(passed(Framing::Length(6), b"HELLO", step), Ok((b"HELLO".to_vec(), false, false)));
            assert_eq!(passed(Framing::Nothing, b"X", step), Ok((vec![], true, true)));
            let chunks = b"5\r\nHELLO\r\n0\r\nA: 1\r\nContent-Length: 9\r\n\r\n";
            let clean = b"5\r\nHELLO\r\n0\r\nA: 1\r\n\r\n".to_vec();
            assert_eq!(passed(Framing::Chunked, chunks, step), Ok((clean.clone(), true, false)));
            assert_eq!(passed(Framing::Chunked, &[chunks, &b"HTTP"[..]].concat(), step), Ok((clean, true, true)));
        }
    }

    #[test]
    fn an_oddly_written_size_goes_on_clean_however_it_arrives() {
        let chunks = b"5 ;x=y\r\nHELLO\r\n00000000000000000005\t\r\nWORLD\r\n00000000000000000000\r\nA: 1\r\n\r\n";
        let clean = b"5;x=y\r\nHELLO\r\n05\r\nWORLD\r\n0\r\nA: 1\r\n\r\n".to_vec();
        for step in 1..=chunks.len() {
            assert_eq!(passed(Framing::Chunked, chunks, step), Ok((clean.clone(), true, false)), "by {step}");
        }
    }

    #[test]
    fn trailers_are_as_many_and_as_long_as_hyper_takes() {
        for step in [100, 1 << 20] {
            let is_taken = |fields: String| {
                passed(Framing::Chunked, format!("0\r\n{fields}\r\n").as_bytes(), step).map(|passed| passed.1)
            };
            assert_eq!(is_taken("A: 1\r\n".repeat(1024)), Ok(true), "by {step}");
            assert_eq!(is_taken("A: 1\r\n".repeat(1025)), Err(Nonsense), "by {step}");
            let long = |length: usize| format!("A: {}\r\n", "x".repeat(length - b"A: \r\n\r\n".len()));
            assert_eq!(is_taken(long(MAX_TRAILERS)), Ok(true), "by {step}");
            assert_eq!(is_taken(long(MAX_TRAILERS + 1)), Err(Nonsense), "by {step}");
        }
    }
}
