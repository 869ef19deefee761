//! How far the body of an answer has come: measured as it passes, and changed nowhere but in its trailers.

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
    /// Bytes of the body that went to the client.
    pub(super) passed: u64,
    pub(crate) is_over: bool,
    /// More came than belongs to the answer; the connection cannot be trusted again.
    pub(crate) has_surplus: bool,
    /// What wants to see how it begins.
    pub(super) beginning: Option<Box<Beginning>>,
}

/// The trailer section may be this long.
const MAX_TRAILERS: usize = 16 << 10;

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
        let (mut taken, mut used) = (0, 0);
        match self.framing {
            Framing::UntilClose => (taken, used) = (bytes.len(), bytes.len()),
            _ if self.is_over => {}
            Framing::Nothing => {}
            Framing::Length(_) => {
                taken = self.left.min(bytes.len() as u64) as usize;
                used = taken;
                self.left -= taken as u64;
                self.is_over = self.left == 0;
            }
            Framing::Chunked => {
                if !self.chunked.is_last() {
                    taken = self.chunked.advance(bytes).map_err(|_| Nonsense)?;
                    used = taken;
                }
                if self.chunked.is_last() {
                    let before = self.trailers.len();
                    self.trailers.extend_from_slice(&bytes[taken..]);
                    match head::read_trailers(&self.trailers, tail)? {
                        Some(length) => {
                            used = taken + length - before;
                            self.is_over = true;
                        }
                        None if self.trailers.len() > MAX_TRAILERS => return Err(Nonsense),
                        None => used = bytes.len(),
                    }
                }
            }
        }
        if let Some(beginning) = &mut self.beginning
            && beginning.add(&bytes[..taken])
        {
            self.beginning = None;
        }
        self.has_surplus |= used < bytes.len();
        self.passed += taken as u64;
        Ok(taken)
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
}
