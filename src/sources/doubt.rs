//! Whether a list that was read to its end may take something out of the pool.

use std::fmt;

use super::intake::{Ending, Entries};
use crate::config::{Gone, PoolSource};

/// Proxies that a list may lose at once without being asked again.
const FEW: u64 = 20;

/// Why it may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It was not read further than `max_members`.
    Full(u64),
    Changing,
    /// Nothing in it is a proxy.
    Useless,
    MostlyUseless,
    HalfUseless,
    Empty,
    /// It has lost more than half of its proxies, and many. Half a list looks like this, and so does a real loss: the next reading
    /// decides.
    Shrunk {
        from: u64,
        to: u64,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(most) => write!(f, "it has more than max_members = {most} proxies"),
            Self::Changing => f.write_str("it was written while it was read"),
            Self::Useless => f.write_str("none of it can be used"),
            Self::MostlyUseless => f.write_str("most of it cannot be used"),
            Self::HalfUseless => f.write_str("half of it cannot be used"),
            Self::Empty => f.write_str("it is empty"),
            Self::Shrunk { from, to } => {
                write!(f, "it has {to} proxies and had {from}, which the next reading must confirm")
            }
        }
    }
}

impl Doubt {
    /// `before`: how many proxies the list had. `last`: what the reading before this one was doubted for.
    pub(super) fn about(
        source: &PoolSource,
        ending: &Ending,
        entries: &Entries,
        before: u64,
        last: Option<&Self>,
    ) -> Option<Self> {
        let &Entries { taken, skipped, .. } = entries;
        let removes = source.gone == Gone::Remove;
        // One that grows is being written.
        let is_confirmed = matches!(last, Some(Self::Shrunk { to, .. }) if taken <= *to);
        match ending {
            Ending::Full => Some(Self::Full(source.max_members)),
            Ending::Changing => Some(Self::Changing),
            Ending::Whole if taken == 0 && skipped > 0 => Some(Self::Useless),
            Ending::Whole if removes && skipped > taken => Some(Self::MostlyUseless),
            Ending::Whole if removes && skipped > 0 && skipped == taken => Some(Self::HalfUseless),
            Ending::Whole if taken == 0 => (!source.may_be_empty).then_some(Self::Empty),
            Ending::Whole if removes && taken < before / 2 && before - taken > FEW && !is_confirmed => {
                Some(Self::Shrunk { from: before, to: taken })
            }
            Ending::Whole => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::Place;

    fn source(gone: Gone, may_be_empty: bool) -> PoolSource {
        PoolSource {
            name: "list".into(),
            place: Place::File(PathBuf::new()),
            every: std::time::Duration::from_secs(1),
            timeout: std::time::Duration::from_secs(1),
            max_bytes: 1,
            max_members: 9,
            scheme: None,
            gone,
            may_be_empty,
            candidates: false,
        }
    }

    fn entries(taken: u64, skipped: u64) -> Entries {
        let mut entries = Entries::default();
        (entries.taken, entries.skipped) = (taken, skipped);
        entries
    }

    fn about(source: &PoolSource, taken: u64, skipped: u64, before: u64, last: Option<&Doubt>) -> Option<Doubt> {
        Doubt::about(source, &Ending::Whole, &entries(taken, skipped), before, last)
    }

    #[test]
    fn a_list_is_believed_unless_it_looks_like_something_else() {
        let (remove, keep) = (source(Gone::Remove, false), source(Gone::Keep, false));
        for (taken, skipped, before, doubt) in [
            (2, 1, 2, None),
            (1, 1, 1, Some(Doubt::HalfUseless)),
            (1, 2, 0, Some(Doubt::MostlyUseless)),
            (0, 1, 1, Some(Doubt::Useless)),
            (0, 0, 1, Some(Doubt::Empty)),
            (1, 0, 21, None),
            (1, 0, 22, Some(Doubt::Shrunk { from: 22, to: 1 })),
            (3, 0, 10_000, Some(Doubt::Shrunk { from: 10_000, to: 3 })),
            (5_000, 0, 10_000, None),
            (20_000, 0, 10_000, None),
        ] {
            assert_eq!(about(&remove, taken, skipped, before, None), doubt, "{taken} {skipped} {before}");
            let doubt = doubt.filter(|doubt| matches!(doubt, Doubt::Useless | Doubt::Empty));
            assert_eq!(about(&keep, taken, skipped, before, None), doubt, "{taken} {skipped} {before}");
        }
        let all = entries(9, 0);
        for (ending, doubt) in [(Ending::Full, Doubt::Full(9)), (Ending::Changing, Doubt::Changing)] {
            assert_eq!(Doubt::about(&keep, &ending, &all, 9, None), Some(doubt));
        }
    }

    #[test]
    fn a_list_that_has_shrunk_is_believed_the_second_time_unless_it_grows() {
        let remove = source(Gone::Remove, false);
        let shrunk = |to| Doubt::Shrunk { from: 1_000, to };
        assert_eq!(about(&remove, 100, 0, 1_000, Some(&shrunk(100))), None);
        assert_eq!(about(&remove, 90, 0, 1_000, Some(&shrunk(100))), None);
        assert_eq!(about(&remove, 200, 0, 1_000, Some(&shrunk(100))), Some(shrunk(200)));
        assert_eq!(about(&remove, 100, 0, 1_000, Some(&Doubt::Empty)), Some(shrunk(100)));
    }

    /// What may be empty has been said by the operator; that an error is no list has not.
    #[test]
    fn a_list_that_may_be_empty_empties_the_pool_only_by_being_empty() {
        let remove = source(Gone::Remove, true);
        assert_eq!(about(&remove, 0, 0, 1_000, None), None);
        assert_eq!(about(&remove, 0, 1, 1_000, None), Some(Doubt::Useless));
        assert_eq!(about(&remove, 1, 0, 1_000, None), Some(Doubt::Shrunk { from: 1_000, to: 1 }));
    }
}
