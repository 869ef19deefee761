//! Finds the end of a chunked body (RFC 9112 §7.1), and what in it is not to go on as it is written.
//!
//! Strict on purpose: what two parsers could read differently ends the message. Lines end in CRLF, a size fits 64 bits,
//! chunk data is followed by CRLF. Extensions pass if they are printable and short.
//! Two things are taken and not passed on, since others stumble over them or cut a number off: blanks behind a size (§7.1.1
//! has a recipient remove them), and all but one of the zeros that a size begins with.
//! Not here: the trailer section, which is a list of fields and is read as one.

/// A chunk-size line with its extensions may be this long.
const MAX_LINE: usize = 4096;
/// A size of more would not fit 64 bits with one digit more.
const MAX_SIZE: u64 = u64::MAX >> 4;

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
    Blank,
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
        self.advance_cleaning(bytes, |_| {}, |_| {})
    }

    /// The same, and shows what is data.
    pub(crate) fn advance_with(&mut self, bytes: &[u8], data: impl FnMut(&[u8])) -> Result<usize, Broken> {
        self.advance_cleaning(bytes, data, |_| {})
    }

    /// The same, and says which bytes are not to be passed on.
    pub(crate) fn advance_cleaning(
        &mut self,
        bytes: &[u8],
        mut data: impl FnMut(&[u8]),
        mut idle: impl FnMut(usize),
    ) -> Result<usize, Broken> {
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
            let is_zero_again = self.state == State::Size && self.line > 0 && self.size == 0;
            self.state = self.step(bytes[at])?;
            if self.state == State::Blank || (is_zero_again && bytes[at] == b'0') {
                idle(at);
            }
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
            (State::Size | State::Blank | State::Extension, b'\r', _) if self.line > 0 => Ok(State::SizeLf),
            (State::Size | State::Blank | State::Extension, ..) if self.line >= MAX_LINE => Err(Broken),
            (State::Size, _, Some(digit)) if self.size <= MAX_SIZE => {
                self.line += 1;
                self.size = self.size << 4 | digit;
                Ok(State::Size)
            }
            (State::Size | State::Blank, b' ' | b'\t', _) if self.line > 0 => {
                self.line += 1;
                Ok(State::Blank)
            }
            (State::Size | State::Blank, b';', _) if self.line > 0 => Ok(State::Extension),
            (State::Extension, b'\t' | b' '..=b'~' | 0x80.., _) => {
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
            b"5 5\r\nHELLO\r\n",
            b" 5\r\nHELLO\r\n",
            b"5 \n\r\nHELLO\r\n",
            b"5\x0b;x\r\nHELLO\r\n",
            b"-1\r\n",
            b"g\r\n",
            b"5\r\nHELLOX\r\n",
            b"5\r\nHELLO\n0\r\n",
            b"5\r\r\nHELLO",
            b"5;a\n\r\nHELLO",
            b"5;a\0\r\nHELLO",
            b"11111111111111111\r\n",
            b";ext\r\n",
            b"00010000000000000000\r\n",
            &[&b"5"[..], &[b' '; MAX_LINE], b"\r\n"].concat(),
            &[&[b'0'; MAX_LINE][..], b"5\r\n"].concat(),
            &[&b"5;"[..], &[b'x'; MAX_LINE], b"\r\n"].concat(),
        ] {
            assert_eq!(end_of(body, 1), Err(Broken), "{}", body.escape_ascii());
        }
    }

    #[test]
    fn a_size_goes_on_without_blanks_and_needless_zeros() {
        let clean = |body: &[u8]| {
            let mut idle = Vec::new();
            let length = Chunked::default().advance_cleaning(body, |_| {}, |at| idle.push(at)).unwrap();
            let kept = (0..length).filter(|at| !idle.contains(at)).map(|at| body[at]);
            String::from_utf8(kept.collect()).unwrap()
        };
        for (line, expected) in [
            ("5", "5"),
            ("05", "05"),
            ("0000000000000000000000005", "05"),
            ("5 ", "5"),
            ("5 \t;x=y", "5;x=y"),
            ("05  ; x = \"y 00\"", "05; x = \"y 00\""),
        ] {
            let body = |line: &str| format!("{line}\r\n000  \r\n0\r\n");
            assert_eq!(clean(body(line).as_bytes()), body(expected), "{line:?}");
        }
        assert_eq!(clean(b"00000000000000000000 ;x\r\n"), "0;x\r\n");
        assert_eq!(clean(b"0FFFFFFFFFFFFFFFF\r\n"), "0FFFFFFFFFFFFFFFF\r\n");
    }
}
