//! What can be wrong with a pool, or worth a note.

/// What can be found out about a member or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A key of another type.
    WrongType,
    /// A key with a time to live.
    Expires,
    /// A Redis that may evict the pool.
    Evicts,
    /// No proxy.
    Malformed,
    /// One more is the same number.
    TooLarge,
    /// No whole number of allocations.
    Fraction,
    /// A record that is none.
    Unreadable,
    /// A time to return, and nobody who looks for it.
    NeverReturns,
    /// Catches up, and never has a turn.
    NoTurn,
    /// A verdict that nobody throws away.
    NeverEnds,
    /// A ban that gateways do not hear of.
    Unheard,
    /// A key without the time to live that it should have.
    Lingers,
    /// More in flight than gateways hold, or less.
    Unbalanced,
    /// Below 0.
    Negative,
    /// One id, two members.
    SharedId,
    /// Eligible, and something else besides.
    TwoStates,
    /// Catches up where nobody looks.
    NobodyRamps,
    /// What is remembered cannot be read.
    Garbled,
    /// A rest of something that is over.
    Stale,
}

impl Rule {
    /// In a word or two, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::WrongType => "wrong type",
            Self::Expires => "expires",
            Self::Evicts => "evicts",
            Self::Malformed => "malformed",
            Self::TooLarge => "too large",
            Self::Fraction => "fraction",
            Self::Unreadable => "unreadable",
            Self::NeverReturns => "never returns",
            Self::NoTurn => "no turn",
            Self::NeverEnds => "never ends",
            Self::Unheard => "unheard",
            Self::Lingers => "lingers",
            Self::Unbalanced => "unbalanced",
            Self::Negative => "negative",
            Self::SharedId => "shared id",
            Self::TwoStates => "two states",
            Self::NobodyRamps => "nobody ramps",
            Self::Garbled => "garbled",
            Self::Stale => "stale",
        }
    }

    /// Whether something must be done; a note otherwise.
    pub fn is_wrong(self) -> bool {
        self <= Self::Unbalanced
    }

    /// What is true of members, and what to do, as an end of a sentence; empty where it is about keys.
    pub(super) fn about_members(self) -> &'static str {
        match self {
            Self::WrongType | Self::Expires | Self::Evicts | Self::Lingers => "",
            Self::Malformed => "no URL of a proxy; set aside when its turn comes",
            Self::TooLarge => {
                "a count so large, or so far below 0, that one more is the same number; write another score"
            }
            Self::Fraction => "a score that is no whole number of allocations; another tool wrote it",
            Self::Unreadable => "set aside with a record that is no JSON object; would return with a count of 0",
            Self::NeverReturns => {
                "set aside for a time, but nobody is told when; `evenkeel pool restore` brings it back"
            }
            Self::NoTurn => "catching up, but its turn never comes; remove it and add it again",
            Self::NeverEnds => {
                "a verdict that is kept for ever; remove the candidate, or let `KEY:verdicts:ends` say until when"
            }
            Self::Unheard => {
                "banned by a host for longer than gateways know; ban it again, as `evenkeel pool ban --host` does"
            }
            Self::Unbalanced => {
                "in flight through it is not what all gateways have together; it chooses wrongly until they all begin anew"
            }
            Self::Negative => "a score below 0; another tool wrote it",
            Self::SharedId => {
                "one id with another member: most likely one proxy in two spellings, with a turn for each"
            }
            Self::TwoStates => "eligible, and set aside, a candidate or catching up as well; only the first counts",
            Self::NobodyRamps => "catching up slowly, of which this configuration knows nothing; joins the set soon",
            Self::Garbled => "a verdict or last checks that cannot be read; they count for nothing",
            Self::Stale => "a trace of a state that it is in no more; harmless",
        }
    }
}
