//! The beginning of a body, as it passes by, and the rules that want to see it.

use std::io::{self, Write};
use std::sync::Arc;

use flate2::write::GzDecoder;

use super::Bans;
use super::rule::BODY;
use crate::chunked::Chunked;
use crate::head::Framing;
use crate::member::Name;

/// Of a packed body, so much is unpacked at most: what is still not at its 4096th byte then is no page.
const PACKED: usize = 64 << 10;

/// The beginning of a body, as it passes by. Whatever came of it until this is dropped is judged.
pub(crate) struct Beginning {
    pub(super) bans: Arc<Bans>,
    pub(super) member: Name,
    pub(super) host: String,
    pub(super) status: u16,
    /// Rules that everything but the body has met, and one at least.
    pub(super) open: Vec<usize>,
    /// Where the bytes that pass are chunks.
    chunked: Option<Chunked>,
    text: Text,
    /// How many bytes were searched.
    seen: usize,
    is_judged: bool,
}

/// The body without its codings.
enum Text {
    Bare(Kept),
    Gzip { decoder: Box<GzDecoder<Kept>>, left: usize },
}

/// As much as rules look at.
#[derive(Default)]
struct Kept(Vec<u8>);

impl Write for Kept {
    /// Fails when it is full, which stops whoever unpacks.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BODY - self.0.len());
        self.0.extend_from_slice(&bytes[..taken]);
        if taken == 0 && !bytes.is_empty() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Text {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bare(kept) => &kept.0,
            Self::Gzip { decoder, .. } => &decoder.get_ref().0,
        }
    }

    /// Whether more of the body may show more.
    fn add(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Bare(kept) => {
                let _ = kept.write(bytes);
            }
            Self::Gzip { decoder, left } => {
                let taken = bytes.len().min(*left);
                *left -= taken;
                if decoder.write_all(&bytes[..taken]).and_then(|()| decoder.flush()).is_err() || *left == 0 {
                    return false;
                }
            }
        }
        self.bytes().len() < BODY
    }
}

impl Beginning {
    /// For what these rules want to see, of a body that comes in this framing, and packed or not.
    pub(super) fn new(
        bans: Arc<Bans>,
        member: Name,
        (host, status): (String, u16),
        open: Vec<usize>,
        framing: Framing,
        is_gzip: bool,
    ) -> Box<Self> {
        let text = match is_gzip {
            false => Text::Bare(Kept::default()),
            true => Text::Gzip { decoder: Box::new(GzDecoder::new(Kept::default())), left: PACKED },
        };
        let chunked = (framing == Framing::Chunked).then(Chunked::default);
        Box::new(Self { bans, member, host, status, open, chunked, text, seen: 0, is_judged: false })
    }

    /// More of the body has come. Whether there is nothing more to see.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        let mut goes_on = true;
        match &mut self.chunked {
            None => goes_on = self.text.add(bytes),
            Some(chunked) => {
                let text = &mut self.text;
                let read = chunked.advance_with(bytes, |data| goes_on = goes_on && text.add(data));
                goes_on &= read.is_ok();
            }
        }
        if !goes_on {
            self.judge();
        } else if self.text.bytes().len() >= 2 * self.seen.max(1) {
            // A body that comes byte by byte is not searched for each of them.
            self.judge_early();
        }
        self.is_judged
    }

    /// Whatever is still to come cannot change that the first rule is met: it counts whenever it is. Another one has to wait.
    fn judge_early(&mut self) {
        self.seen = self.text.bytes().len();
        let body = self.bans.rules[self.open[0]].body.as_ref();
        if body.is_some_and(|body| body.is_surely_in(self.text.bytes())) {
            self.judge();
        }
    }

    fn judge(&mut self) {
        self.is_judged = true;
        let rules = self.open.iter().map(|&index| &self.bans.rules[index]);
        let met = |rule: &&super::Rule| rule.body.as_ref().is_some_and(|body| body.is_in(self.text.bytes()));
        if let Some(rule) = { rules }.find(met) {
            self.bans.note(&self.member, rule, &self.host, self.status);
        }
    }
}

impl Drop for Beginning {
    /// The body is over, or there will be no more of it.
    fn drop(&mut self) {
        if !self.is_judged {
            self.judge();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn text_of(packed: &[u8], step: usize) -> (Vec<u8>, bool) {
        let mut text = Text::Gzip { decoder: Box::new(GzDecoder::new(Kept::default())), left: PACKED };
        let goes_on = packed.chunks(step).all(|piece| text.add(piece));
        (text.bytes().to_vec(), goes_on)
    }

    #[test]
    fn a_packed_body_is_seen_as_it_arrives_and_no_further_than_its_beginning() {
        let page = b"<title>Just a moment...</title>";
        for step in [1, 7, 1000] {
            assert_eq!(text_of(&gzip(page), step), (page.to_vec(), true));
            // Much of nothing: 20 MB of it in 20 KB.
            assert_eq!(text_of(&gzip(&vec![b'x'; 20 << 20]), step), (vec![b'x'; BODY], false));
        }
        let packed = gzip(page);
        assert!(page.starts_with(&text_of(&packed[..packed.len() / 2], 3).0));
        assert_eq!(text_of(b"not packed at all", 3), (vec![], false));
        // A name that goes on for ever, in front of the first byte.
        assert!(!text_of(&[&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3][..], &vec![b'n'; 1 << 20]].concat(), 9999).1);
    }
}
