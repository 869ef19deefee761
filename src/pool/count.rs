//! What a count is, with and without a weight: the same arithmetic as in `lua/`, so that both stores choose alike.
//!
//! The score of a member with `?weight=w` is its allocations divided by w: with twice the weight it is the least used twice
//! as often. It is counted by whole allocations and never by adding 1/w, so it is always the double next to their
//! quotient, and giving one back leads exactly to where it was.

use std::cmp::Ordering;

use crate::member::Name;

/// Up to here the number of allocations can be told from the score, for every weight; from here on, one more is the same.
const MOST_WEIGHTED: f64 = (1_u64 << 50) as f64;

/// A score, as in Redis a double: from 2^53 on, one more is the same number. Never NaN, and infinite only where another tool
/// has written that: nothing computed from a finite score is.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Count(pub(super) f64);

impl Count {
    /// With one allocation more.
    pub(super) fn raised(self, member: &Name) -> Self {
        Self(raised(self.0, weight(member)))
    }

    /// Where a member starts that is to start here.
    pub(super) fn placed(self, member: &Name) -> Self {
        Self(placed(self.0, weight(member)))
    }
}

impl Eq for Count {}

impl Ord for Count {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Count {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The weight that a member's bytes name, be it a member that can be parsed or not; 1 where they name none.
///
/// It is an option behind the last `?`, where a chain's last hop has its own. A password can be no place for it: with an `@`
/// behind it, it is none.
pub(crate) fn weight(member: &[u8]) -> u16 {
    let Some(mark) = member.iter().rposition(|&byte| byte == b'?') else { return 1 };
    let query = &member[mark + 1..];
    if query.iter().any(|byte| b"@|/".contains(byte)) {
        return 1;
    }
    let digits = query
        .split(|&byte| byte == b'&')
        .filter_map(|option| option.strip_prefix(b"weight="))
        .find(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit));
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.filter(|weight| (1..=1000).contains(weight)).unwrap_or(1)
}

/// The score with one allocation more.
pub(super) fn raised(score: f64, weight: u16) -> f64 {
    plus(score, weight, 1.0)
}

/// The score with so many allocations more, a whole number.
pub(super) fn plus(score: f64, weight: u16, more: f64) -> f64 {
    if weight == 1 {
        return score + more;
    }
    let count = allocations(score, weight);
    if count.abs() < MOST_WEIGHTED { (count + more) / f64::from(weight) } else { score }
}

/// The least score from `start` on that a number of allocations of this weight gives: where a newcomer starts.
pub(super) fn placed(start: f64, weight: u16) -> f64 {
    let weight = f64::from(weight);
    let count = (start * weight).ceil();
    if count.is_infinite() {
        // So far up that every score is a whole number of allocations, or infinite already.
        return start;
    }
    // The product of a quotient may be a little more than the whole number that it was made of.
    let count = if (count - 1.0) / weight >= start { count - 1.0 } else { count };
    count / weight
}

/// What is left of a score when so much of it is kept: whole allocations, rounded down.
pub(super) fn shrunk(score: f64, weight: u16, factor: f64) -> f64 {
    changed(score, |score| {
        let weight = f64::from(weight);
        // A little more, because the product of what is meant to be a whole number may be a little less.
        let count = (score * weight * factor + 1e-6).floor();
        // Not finite, the product is beyond what a double holds.
        if count.is_finite() { count / weight } else { score * factor }
    })
}

/// The score less `base`, a whole number.
pub(super) fn rebased(score: f64, weight: u16, base: f64) -> f64 {
    changed(score, |score| {
        let divisor = f64::from(weight);
        let count = allocations(score, weight) - base * divisor;
        // Not finite, one of the two is beyond what a double holds.
        if weight > 1 && count.is_finite() { count / divisor } else { score - base }
    })
}

/// What comes of a score. It stays finite; and an infinite one stays as it is.
fn changed(score: f64, change: impl FnOnce(f64) -> f64) -> f64 {
    if score.is_infinite() { score } else { change(score).clamp(f64::MIN, f64::MAX) }
}

/// How many allocations a score stands for: a whole number for a weight above 1, the score itself without one.
pub(super) fn allocations(score: f64, weight: u16) -> f64 {
    if weight == 1 { score } else { (score * f64::from(weight) + 0.5).floor() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_an_option_of_the_last_hop_and_never_part_of_a_password() {
        for (member, expected) in [
            ("http://h:1?weight=3", 3),
            ("h:1/?weight=1000", 1000),
            ("https://u:p@h:1?insecure=1&weight=20&sni=a", 20),
            ("http://a:1|socks5h://u:p@b:2?weight=007", 7),
            ("direct://?weight=2", 2),
            ("http://h:1", 1),
            ("http://u:p&weight=3@h:1", 1),
            ("http://u:?weight=3@h:1", 1),
            ("https://a:1?insecure=1|socks5://u:p&weight=9@b:2", 1),
            ("http://a:1?weight=4|http://b:2", 1),
            ("http://h:1?weight=0", 1),
            ("http://h:1?weight=1001", 1),
            ("http://h:1?weight=99999999999999999999", 1),
            ("http://h:1?weight=+3", 1),
            ("http://h:1?weight=", 1),
            ("http://h:1?heavyweight=3", 1),
        ] {
            assert_eq!(weight(member.as_bytes()), expected, "{member}");
        }
    }

    #[test]
    fn scores_are_exact_quotients_however_far_they_go() {
        for weight in [1, 2, 3, 7, 49, 641, 1000] {
            let mut score = 0.0;
            for count in 1..=100_000 {
                score = raised(score, weight);
                assert_eq!(score, f64::from(count) / f64::from(weight));
                assert_eq!(placed(score, weight), score);
            }
            for count in [1e9, 1e12, MOST_WEIGHTED - 1.0] {
                let score = count / f64::from(weight);
                assert_eq!((allocations(score, weight), placed(score, weight)), (count, score), "{count} / {weight}");
                assert_eq!(raised(score, weight), (count + 1.0) / f64::from(weight));
            }
            assert_eq!(raised(f64::INFINITY, weight), f64::INFINITY);
        }
        assert_eq!([placed(7.2, 1), placed(7.2, 3), placed(-0.5, 2), placed(0.0, 3)], [8.0, 22.0 / 3.0, -0.5, 0.0]);
        assert_eq!(placed(f64::NEG_INFINITY, 3), f64::NEG_INFINITY);
    }

    #[test]
    fn nothing_finite_becomes_infinite_or_no_number_and_what_is_infinite_stays() {
        let finite = [f64::MAX, 1.797e308, 1e306, 1.0, 0.0, -1.0, -1e306, f64::MIN];
        for weight in [1, 2, 641, 1000] {
            for score in finite {
                let changed = finite.iter().map(|&base| rebased(score, weight, base));
                let more = [u64::MAX as f64, 1.0, -1.0].map(|more| plus(score, weight, more));
                let shrunk = [0.99999, 0.5, f64::MIN_POSITIVE, 0.0].map(|factor| shrunk(score, weight, factor));
                let all: Vec<f64> = changed.chain(more).chain(shrunk).chain([placed(score, weight)]).collect();
                assert!(all.iter().all(|count| count.is_finite()), "{score} of weight {weight}: {all:?}");
            }
            for score in [f64::INFINITY, f64::NEG_INFINITY] {
                let all = [rebased(score, weight, score), shrunk(score, weight, 0.0), placed(score, weight)];
                assert_eq!((all, plus(score, weight, 1.0)), ([score; 3], score));
            }
        }
    }
}
