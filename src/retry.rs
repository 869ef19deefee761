//! Whether one more attempt, on another member, is allowed (RFC 9110 §9.2.2).

use std::time::Duration;

use hyper::Method;

use crate::config;
use crate::error::Failure;

/// How far an attempt had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing of the request has left the gateway.
    Unsent,
    /// The upstream proxy may have read some or all of it.
    Sent,
    /// An interim answer has reached the client.
    Answered,
}

/// What is known about a request when an attempt at it has failed; no byte of an answer has reached the client.
pub(crate) struct Attempt<'a> {
    /// 1 for the first.
    pub(crate) number: u32,
    /// Since the request arrived.
    pub(crate) elapsed: Duration,
    pub(crate) progress: Progress,
    pub(crate) method: &'a Method,
    /// Whether the body can be sent once more: empty, or kept whole so far.
    pub(crate) body_is_kept: bool,
}

/// A POST is never sent twice. A CONNECT may be repeated: before the 2xx nothing of the tunnel has been sent.
pub(crate) fn is_allowed(failure: &Failure, attempt: &Attempt<'_>, limits: &config::Retry) -> bool {
    let safe = match attempt.progress {
        Progress::Unsent => true,
        Progress::Answered => false,
        Progress::Sent => attempt.method == Method::CONNECT || (attempt.method.is_idempotent() && attempt.body_is_kept),
    };
    failure.row().repeatable && safe && attempt.number < limits.attempts && attempt.elapsed < limits.deadline
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Peer;

    const LIMITS: config::Retry =
        config::Retry { attempts: 3, deadline: Duration::from_secs(15), replay_bytes: 64 << 10 };

    fn allowed(failure: Failure, method: Method, progress: Progress, body_is_kept: bool) -> bool {
        let attempt = Attempt { number: 1, elapsed: Duration::from_secs(1), progress, method: &method, body_is_kept };
        is_allowed(&failure, &attempt, &LIMITS)
    }

    #[test]
    fn a_request_that_may_have_been_read_is_repeated_only_when_idempotent_and_kept() {
        assert!(allowed(Failure::Closed, Method::GET, Progress::Sent, true));
        assert!(allowed(Failure::Closed, Method::PUT, Progress::Sent, true));
        assert!(!allowed(Failure::Closed, Method::PUT, Progress::Sent, false));
        assert!(!allowed(Failure::Closed, Method::POST, Progress::Sent, true));
        assert!(!allowed(Failure::Closed, Method::PATCH, Progress::Sent, true));
        assert!(allowed(Failure::TunnelRefused(503), Method::CONNECT, Progress::Sent, true));
        assert!(!allowed(Failure::Closed, Method::GET, Progress::Answered, true));
    }

    #[test]
    fn what_was_never_sent_is_repeated_whatever_it_is() {
        assert!(allowed(Failure::DialTimeout(Peer::Proxy, Duration::ZERO), Method::POST, Progress::Unsent, true));
    }

    #[test]
    fn a_missing_response_head_ends_it() {
        assert!(!allowed(Failure::HeadTimeout(Duration::ZERO), Method::GET, Progress::Sent, true));
    }

    #[test]
    fn attempts_and_deadline_are_limits() {
        let at = |number, seconds| {
            let attempt = Attempt {
                number,
                elapsed: Duration::from_secs(seconds),
                progress: Progress::Unsent,
                method: &Method::GET,
                body_is_kept: true,
            };
            is_allowed(&Failure::Closed, &attempt, &LIMITS)
        };
        assert!(at(2, 14) && !at(3, 1) && !at(1, 15));
    }
}
