//! The bytes of a list as UTF-8: unpacked if they are gzip, transcoded if they are UTF-16, without a byte order mark.

use std::io::{self, BufRead, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// No list is packed so well that it unpacks to more than this for each byte: sequential addresses with the same password
/// come to 20, DEFLATE ends at 1,032.
const MAX_RATIO: u64 = 250;
/// Up to here a list may be packed as well as it likes: 64 MiB.
const FREE: u64 = 64 << 20;
/// A hundred million proxies: 4 GiB.
const MAX_UNPACKED: u64 = 4 << 30;

const GZIP: &[u8] = b"\x1f\x8b";

/// What other files begin with, none longer than [`MARK`].
const FOREIGN: [(&[u8], &str); 5] = [
    (b"PK\x03\x04", "a zip archive or a spreadsheet"),
    (b"BZh", "packed by bzip2"),
    (b"\xfd7zXZ\x00", "packed by xz"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd"),
    (b"%PDF", "a PDF document"),
];
const MARK: u64 = 6;

/// The first bytes again, and then the rest.
type Whole<R> = Chain<Cursor<Vec<u8>>, R>;

/// A list's bytes. Nothing is read before the first byte is asked for.
pub(super) enum Input<R> {
    Unread(R),
    Plain(Text<Whole<R>>),
    Gzip(Box<Text<Unpacked<R>>>),
    /// It is no list.
    Refused,
}

impl<R: BufRead> Input<R> {
    fn start(&mut self) -> io::Result<()> {
        let Self::Unread(mut input) = std::mem::replace(self, Self::Refused) else { return Ok(()) };
        let mark = first(&mut input, MARK)?;
        if let Some((_, what)) = FOREIGN.iter().find(|(begin, _)| mark.starts_with(begin)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is {what}; make a text file of it")));
        }
        let is_gzip = mark.starts_with(GZIP);
        let whole = Cursor::new(mark).chain(input);
        *self = if is_gzip {
            let decoder = MultiGzDecoder::new(Counted { input: whole, count: 0 });
            Self::Gzip(Box::new(Text::new(Unpacked { decoder, count: 0, free: FREE })?))
        } else {
            Self::Plain(Text::new(whole)?)
        };
        Ok(())
    }
}

impl<R: BufRead> Read for Input<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if let Self::Unread(_) = self {
            self.start()?;
        }
        match self {
            Self::Plain(text) => text.read(out),
            Self::Gzip(text) => text.read(out),
            Self::Unread(_) | Self::Refused => Ok(0),
        }
    }
}

/// So many bytes, or fewer at the end.
fn first(input: &mut impl Read, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(count).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Counts what is taken.
struct Counted<R> {
    input: R,
    count: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(out)?;
        self.count += n as u64;
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.count += n as u64;
        self.input.consume(n);
    }
}

/// What was packed, unless it is a bomb.
pub(super) struct Unpacked<R> {
    decoder: MultiGzDecoder<Counted<Whole<R>>>,
    count: u64,
    /// Bytes for which it does not matter how well they are packed.
    free: u64,
}

impl<R: BufRead> Read for Unpacked<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.decoder.read(out).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                io::Error::new(io::ErrorKind::InvalidData, format!("its gzip is damaged: {error}"))
            }
            _ => error,
        })?;
        self.count += n as u64;
        if self.count > MAX_UNPACKED || self.count > self.free + MAX_RATIO * self.decoder.get_ref().count {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it unpacks to far more than a list would"));
        }
        Ok(n)
    }
}

/// Text without its byte order mark, and in UTF-8 if that says that it is UTF-16.
pub(super) struct Text<R> {
    source: Whole<R>,
    utf16: Option<Utf16>,
}

impl<R: Read> Text<R> {
    fn new(mut source: R) -> io::Result<Self> {
        let mut mark = first(&mut source, 3)?;
        let utf16 = match mark[..] {
            [0xff, 0xfe, ..] => Some(Utf16::new(u16::from_le_bytes)),
            [0xfe, 0xff, ..] => Some(Utf16::new(u16::from_be_bytes)),
            _ => None,
        };
        if utf16.is_some() {
            mark.drain(..2);
        } else if mark == [0xef, 0xbb, 0xbf] {
            mark.clear();
        }
        Ok(Self { source: Cursor::new(mark).chain(source), utf16 })
    }
}

impl<R: Read> Read for Text<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.utf16 {
            None => self.source.read(out),
            Some(utf16) => utf16.read(&mut self.source, out),
        }
    }
}

/// UTF-16 on its way to UTF-8.
struct Utf16 {
    unit: fn([u8; 2]) -> u16,
    /// Half a unit, or the first of two that are one character.
    rest: Vec<u8>,
    text: Cursor<String>,
}

impl Utf16 {
    fn new(unit: fn([u8; 2]) -> u16) -> Self {
        Self { unit, rest: Vec::new(), text: Cursor::default() }
    }

    fn read(&mut self, source: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.text.read(out)?;
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            let mut bytes = [0; 4096];
            let n = source.read(&mut bytes)?;
            if n == 0 && self.rest.is_empty() {
                return Ok(0);
            }
            self.decode(&bytes[..n]);
        }
    }

    /// `bytes`: none at the end. What is no character becomes U+FFFD, which is part of no proxy.
    fn decode(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let mut units: Vec<u16> = self.rest.chunks_exact(2).map(|pair| (self.unit)([pair[0], pair[1]])).collect();
        if bytes.is_empty() {
            units.extend((self.rest.len() % 2 == 1).then_some(0xfffd));
            self.rest.clear();
        } else {
            units.pop_if(|last| (0xd800..0xdc00).contains(last));
            self.rest.drain(..2 * units.len());
        }
        let chars = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER));
        self.text = Cursor::new(chars.collect());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Write as _};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<String> {
        // One byte at a time is how a slow pipe may come.
        for capacity in [1, 8192] {
            let mut text = String::new();
            Input::Unread(BufReader::with_capacity(capacity, bytes)).read_to_string(&mut text)?;
            if capacity > 1 {
                return Ok(text);
            }
        }
        unreachable!()
    }

    #[test]
    fn text_comes_as_utf_8_without_a_mark_packed_or_not() {
        let utf16 =
            |to_bytes: fn(u16) -> [u8; 2]| "\u{feff}h:80 # ü𝄞".encode_utf16().flat_map(to_bytes).collect::<Vec<_>>();
        for bytes in ["h:80 # ü𝄞".into(), "\u{feff}h:80 # ü𝄞".into(), utf16(u16::to_le_bytes), utf16(u16::to_be_bytes)]
        {
            assert_eq!(read(&bytes).unwrap(), "h:80 # ü𝄞");
            assert_eq!(read(&gzip(&bytes)).unwrap(), "h:80 # ü𝄞");
        }
        assert_eq!(read(&[gzip(b"a\n"), gzip(b"b\n")].concat()).unwrap(), "a\nb\n");
        for text in ["", "a", "ab"] {
            assert_eq!(read(text.as_bytes()).unwrap(), text);
        }
        assert_eq!(read(b"\xff\xfea\0\0\xd8").unwrap(), "a\u{fffd}");
        assert_eq!(read(b"\xff\xfea\0b").unwrap(), "a\u{fffd}");
    }

    #[test]
    fn what_is_no_list_is_refused_in_words() {
        for (bytes, why) in [
            (&b"PK\x03\x04\x14\0\0"[..], "it is a zip archive"),
            (b"BZh91AY", "it is packed by bzip2"),
            (&gzip(b"10.0.0.7:3128\n")[..15], "its gzip is damaged"),
        ] {
            let error = read(bytes).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn a_bomb_is_cut_off() {
        let bomb = gzip(&[b'\n'; 1 << 20]);
        for (free, is_cut) in [(1 << 18, true), (1 << 20, false)] {
            let input = Counted { input: Cursor::new(Vec::new()).chain(&bomb[..]), count: 0 };
            let mut unpacked = Unpacked { decoder: MultiGzDecoder::new(input), count: 0, free };
            let mut text = Vec::new();
            assert_eq!(unpacked.read_to_end(&mut text).is_err(), is_cut);
            assert!(text.len() as u64 <= free + MAX_RATIO * bomb.len() as u64);
        }
    }
}
