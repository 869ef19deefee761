//! Finds the end of a chunked body (RFC 9112 §7.1) without touching it.
//!
//! Strict on purpose: what two parsers could read differently ends the message. Lines end in CRLF, a size is 1 to 16
//! hexadecimal digits, chunk data is followed by CRLF. Extensions pass if they are printable and short.
//! Not here: the trailer section, which is a list of fields and is read as one.

/// A chunk-size line with its extensions may be this long.
const MAX_LINE: usize = 4096;

/// Where in a chunked body we are, up to and including the last chunk's size line (`0\r\n`).
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: State,
    /// Of the size line so far.
    line: usize,
    size: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    #[default]
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Last,
}

/// The body is not chunked as it should be.
#[derive(Debug, PartialEq)]
pub(crate) struct Broken;

impl Chunked {
    /// Reads on; how many bytes belong to the body before its trailer section.
    ///
    /// # Errors
    /// [`Broken`]: nothing after this can be trusted.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        self.advance_with(bytes, |_| {})
    }

    /// The same, and shows what is data.
    pub(crate) fn advance_with(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, Broken> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Last {
            if self.state == State::Data {
                let taken = self.size.min((bytes.len() - at) as u64);
                self.size -= taken;
                data(&bytes[at..at + taken as usize]);
                at += taken as usize;
                if self.size == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            self.state = self.step(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// Whether the last chunk has been seen; the trailer section follows.
    pub(crate) fn is_last(&self) -> bool {
        self.state == State::Last
    }

    fn step(&mut self, byte: u8) -> Result<State, Broken> {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        match (self.state, byte, digit) {
            (State::Size, _, Some(digit)) if self.line < 16 => {
                self.line += 1;
                self.size = self.size << 4 | digit;
                Ok(State::Size)
            }
            (State::Size | State::Extension, b'\r', _) if self.line > 0 => Ok(State::SizeLf),
            (State::Size, b';', _) if self.line > 0 => Ok(State::Extension),
            (State::Extension, b'\t' | b' '..=b'~' | 0x80.., _) if self.line < MAX_LINE => {
                self.line += 1;
                Ok(State::Extension)
            }
            (State::SizeLf, b'\n', _) => {
                self.line = 0;
                Ok(if self.size == 0 { State::Last } else { State::Data })
            }
            (State::DataCr, b'\r', _) => Ok(State::DataLf),
            (State::DataLf, b'\n', _) => Ok(State::Size),
            _ => Err(Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length up to the trailer section, read in pieces of `step` bytes.
    fn end_of(body: &[u8], step: usize) -> Result<Option<usize>, Broken> {
        let mut chunked = Chunked::default();
        let mut total = 0;
        for piece in body.chunks(step) {
            let taken = chunked.advance(piece)?;
            total += taken;
            if chunked.is_last() {
                return Ok(Some(total));
            }
            assert_eq!(taken, piece.len());
        }
        Ok(None)
    }

    #[test]
    fn the_end_is_found_however_the_bytes_arrive() {
        let body = b"5\r\nHELLO\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\nHTTP/1.1 200 OK";
        for step in 1..body.len() {
            assert_eq!(end_of(body, step), Ok(Some(body.len() - 17)), "step {step}");
        }
        assert_eq!(end_of(b"5\r\nHELL", 3), Ok(None));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_broken() {
        for body in [
            &b"\r\n"[..],
            b"5\nHELLO\n0\n\n",
            b"+5\r\nHELLO\r\n",
            b"0x5\r\nHELLO\r\n",
            b"5 \r\nHELLO\r\n",
            b"-1\r\n",
            b"g\r\n",
            b"5\r\nHELLOX\r\n",
            b"5\r\nHELLO\n0\r\n",
            b"5\r\r\nHELLO",
            b"5;a\n\r\nHELLO",
            b"5;a\0\r\nHELLO",
            b"11111111111111111\r\n",
            b";ext\r\n",
        ] {
            assert_eq!(end_of(body, 1), Err(Broken), "{}", body.escape_ascii());
        }
    }
}
