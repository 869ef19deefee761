//! The idle connections to one upstream proxy: the last used is taken first, so few stay warm and the rest age out.
//!
//! To an HTTP proxy they are one stack. What goes through a SOCKS proxy, or through none, leads to one origin, and there is
//! a stack for each.
//! Cost: taking and keeping look at one stack, however many origins there are; dropping the old looks at all.
//! Not here: how many there may be in all ([`crate::upstream`]).

use std::collections::HashMap;

use hyper::header::HeaderValue;
use tokio::time::Instant;

/// Where a connection leads: `None` to a proxy that serves every origin.
pub(crate) type Origin = Option<HeaderValue>;

/// Idle connections of one sort.
pub(crate) enum Idle<C> {
    /// Any of them will do.
    Shared(Vec<Kept<C>>),
    /// One that leads to the origin. A stack may be empty until the next [`Idle::drop_old`].
    PerOrigin(HashMap<HeaderValue, Vec<Kept<C>>>),
}

pub(crate) struct Kept<C> {
    connection: C,
    until: Instant,
}

impl<C> Idle<C> {
    pub(crate) fn new(is_per_origin: bool) -> Self {
        if is_per_origin { Self::PerOrigin(HashMap::new()) } else { Self::Shared(Vec::new()) }
    }

    /// The last used that leads to `origin`, has not had its time and `is_usable`; later ones that are not are dropped.
    /// Beside it, how many are fewer now.
    pub(crate) fn take(
        &mut self,
        origin: &Origin,
        now: Instant,
        is_usable: impl Fn(&mut C) -> bool,
    ) -> (Option<C>, usize) {
        let stack = match (self, origin) {
            (Self::Shared(stack), _) => Some(stack),
            (Self::PerOrigin(stacks), Some(origin)) => stacks.get_mut(origin),
            (Self::PerOrigin(_), None) => None,
        };
        let Some(stack) = stack else { return (None, 0) };
        let before = stack.len();
        let mut found = None;
        while found.is_none()
            && let Some(mut kept) = stack.pop()
        {
            let is_good = now < kept.until && is_usable(&mut kept.connection);
            found = is_good.then_some(kept.connection);
        }
        (found, before - stack.len())
    }

    /// To be taken before `until`.
    pub(crate) fn keep(&mut self, origin: Origin, connection: C, until: Instant) {
        let kept = Kept { connection, until };
        match (self, origin) {
            (Self::Shared(stack), _) => stack.push(kept),
            (Self::PerOrigin(stacks), Some(origin)) => stacks.entry(origin).or_default().push(kept),
            // Nobody could ask for it.
            (Self::PerOrigin(_), None) => {}
        }
    }

    /// Drops those that have had their time or are not `is_usable`. How many, and whether any stay.
    pub(crate) fn drop_old(&mut self, now: Instant, is_usable: impl Fn(&C) -> bool) -> (usize, bool) {
        let mut fewer = 0;
        let mut sift = |stack: &mut Vec<Kept<C>>| {
            let before = stack.len();
            stack.retain(|kept| now < kept.until && is_usable(&kept.connection));
            fewer += before - stack.len();
            !stack.is_empty()
        };
        let any_stay = match self {
            Self::Shared(stack) => sift(stack),
            Self::PerOrigin(stacks) => {
                stacks.retain(|_, stack| sift(stack));
                // What was room for thousands is not held for ever.
                stacks.shrink_to(2 * stacks.len());
                !stacks.is_empty()
            }
        };
        (fewer, any_stay)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn origin(name: &'static str) -> Origin {
        Some(HeaderValue::from_static(name))
    }

    #[test]
    fn the_last_used_of_an_origin_is_taken_first_while_it_has_time() {
        let soon = Instant::now();
        let [later, end] = [1, 2].map(|s| soon + Duration::from_secs(s));
        for (a, b) in [(None, None), (origin("a"), origin("b"))] {
            let mut idle = Idle::new(a.is_some());
            idle.keep(a.clone(), 1, later);
            idle.keep(a.clone(), 2, end);
            idle.keep(a.clone(), 3, end);
            assert_eq!(idle.take(&a, soon, |&mut c| c != 3), (Some(2), 2), "3 is not usable");
            assert_eq!(idle.take(&a, later, |_| true), (None, 1), "1 has had its time");
            idle.keep(b.clone(), 4, end);
            if a.is_some() {
                assert_eq!(idle.take(&a, soon, |_| true), (None, 0), "4 leads elsewhere");
            }
            assert_eq!(idle.take(&b, soon, |_| true), (Some(4), 1));
            assert_eq!(idle.take(&b, soon, |_| true), (None, 0));
        }
    }

    #[test]
    fn what_has_had_its_time_or_is_dead_goes_and_leaves_nothing_behind() {
        let now = Instant::now();
        let [later, end] = [1, 2].map(|s| now + Duration::from_secs(s));
        let mut idle = Idle::new(true);
        for n in 0..1000 {
            idle.keep(HeaderValue::try_from(format!("h{n}")).ok(), n, later);
        }
        assert_eq!(idle.drop_old(now, |&c| c % 2 == 0), (500, true));
        idle.keep(origin("a"), 0, end);
        assert_eq!(idle.drop_old(later, |_| true), (500, true));
        assert_eq!(idle.take(&origin("a"), later, |_| true), (Some(0), 1));
        assert_eq!(idle.drop_old(later, |_| true), (0, false));
        let Idle::PerOrigin(stacks) = idle else { unreachable!() };
        assert_eq!(stacks.capacity(), 0);
    }
}
