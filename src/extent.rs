//! Where the one request ends that hyper is to read, so that it never sees what comes behind: the next request is read by
//! the same rules as every other, and a client that leaves is noticed although it had sent more.

use crate::chunked::Chunked;
use crate::head::{self, Length};

/// How much of what a client sends still belongs to a request.
pub(crate) enum Extent {
    /// So many bytes: of the head, and of a body with a length.
    Left(u64),
    /// So many bytes of the head, then chunks.
    Chunks {
        head: u64,
        chunked: Chunked,
    },
    /// The trailer section; how long its line is so far, without the end.
    Trailers {
        line: usize,
    },
    /// Not to be told. hyper will refuse it, and the connection ends with that.
    Unknown,
    Over,
}

impl Extent {
    /// Of the request that `bytes` begin with.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        match head::length_of(bytes) {
            Some((head, Length::Known(body))) => Self::Left((head as u64).saturating_add(body)),
            Some((head, Length::Chunks)) => Self::Chunks { head: head as u64, chunked: Chunked::default() },
            None => Self::Unknown,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// How many of the next `bytes` belong to the request; fewer than all only if it ends there.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            match self {
                Self::Over => break,
                Self::Unknown => return bytes.len(),
                Self::Left(left) => {
                    let length = (*left).min(rest.len() as u64);
                    *left -= length;
                    taken += length as usize;
                    if *left == 0 {
                        *self = Self::Over;
                    }
                }
                Self::Chunks { head, .. } if *head > 0 => {
                    let length = (*head).min(rest.len() as u64);
                    *head -= length;
                    taken += length as usize;
                }
                Self::Chunks { chunked, .. } => match chunked.advance(rest) {
                    Err(_) => *self = Self::Unknown,
                    Ok(length) => {
                        taken += length;
                        if chunked.is_last() {
                            *self = Self::Trailers { line: 0 };
                        }
                    }
                },
                Self::Trailers { line } => {
                    taken += 1;
                    match rest[0] {
                        b'\n' if *line == 0 => *self = Self::Over,
                        b'\n' => *line = 0,
                        b'\r' => {}
                        _ => *line += 1,
                    }
                }
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_where_the_next_begins_however_it_arrives() {
        let next = b"GET http://h/ HTTP/1.1\r\n";
        for (head, body) in [
            ("Content-Length: 5", &b"HELLO"[..]),
            ("Upgrade: x", b""),
            ("Transfer-Encoding: chunked", b"5\r\nHELLO\r\n0\r\n\r\n"),
            ("Transfer-Encoding: chunked", b"1;a=b\r\nX\r\n0\r\nA: b\r\nC: d\r\n\r\n"),
        ] {
            let head = format!("POST http://h/ HTTP/1.1\r\nHost: h\r\n{head}\r\n\r\n");
            let request = [head.as_bytes(), body].concat();
            let all = [&request[..], next].concat();
            for step in 1..all.len() {
                let mut extent = Extent::of(&all);
                let taken: usize = all.chunks(step).map(|piece| extent.take(piece)).sum();
                assert_eq!((taken, extent.is_over()), (request.len(), true), "{head:?} by {step}");
            }
        }
    }

    #[test]
    fn what_cannot_be_told_is_left_to_hyper_whole() {
        for head in ["Transfer-Encoding: gzip, chunked", "Content-Length: 5, 5", "Content-Length: +5", "Host : h"] {
            let bytes = format!("POST http://h/ HTTP/1.1\r\n{head}\r\n\r\nHELLO more");
            assert_eq!(Extent::of(bytes.as_bytes()).take(bytes.as_bytes()), bytes.len(), "{head}");
        }
    }
}
