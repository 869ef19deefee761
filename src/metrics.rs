//! What a gateway counts of itself, for Prometheus: shown by [`crate::admin`], in the text format of OpenMetrics.
//!
//! Counted is what happens to requests, attempts and members as kinds, never by member or host: those come and go without
//! bound, and `evenkeel pool list` has them. What every request counts has a counter per worker, found once when the worker starts, so
//! that no two threads write to one; what seldom happens is looked up by its labels.
//! Not here: what the store knows (`evenkeel_members` is asked for when it is shown).

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::pool::Sizes;

/// Of the whole gateway.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    attempts: Family<Attempt, Counter>,
    clients: Family<Worker, Gauge>,
    failures: Family<[Label; 1], Counter>,
    answers: Family<Answer, Counter>,
    members: Family<[Label; 1], Gauge>,
    parked: Family<[Label; 1], Counter>,
    returned: Counter,
    bans: Family<[Label; 1], Counter>,
    checks: Family<[Label; 1], Counter>,
    candidates: Family<[Label; 1], Counter>,
    doubt: Family<[Label; 1], Gauge>,
}

/// Of an answer that tells no failure: an empty label is the same as none.
pub(crate) const NO_ERROR: &str = "";

type Label = (&'static str, &'static str);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Request {
    worker: u64,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Attempt {
    worker: u64,
    chosen_by: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answer {
    status: u64,
    error: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Worker {
    worker: u64,
}

/// What one worker counts with every request.
pub(crate) struct Counts {
    /// Requests for which a member was to be chosen.
    pub(crate) forwards: Counter,
    /// CONNECT requests for which a member was to be chosen.
    pub(crate) tunnels: Counter,
    /// Attempts through members that the store chose.
    pub(crate) by_store: Counter,
    /// Attempts through members that were chosen here, while the store was away.
    pub(crate) locally: Counter,
    /// Attempts that tried a member which had failed before.
    pub(crate) trials: Counter,
}

/// What is looked at, and what might be wrong with the page that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// Members.
    Checks,
    /// Those who are to become members.
    Candidates,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut this = Self {
            registry: Registry::with_prefix("evenkeel"),
            requests: Family::default(),
            attempts: Family::default(),
            clients: Family::default(),
            failures: Family::default(),
            answers: Family::default(),
            members: Family::default(),
            parked: Family::default(),
            returned: Counter::default(),
            bans: Family::default(),
            checks: Family::default(),
            candidates: Family::default(),
            doubt: Family::default(),
        };
        let registry = &mut this.registry;
        registry.register("build", "The version that runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register("clients", "Connections of clients", this.clients.clone());
        registry.register("requests", "Requests for which a member was to be chosen", this.requests.clone());
        registry.register("attempts", "Attempts at requests, by who chose the member", this.attempts.clone());
        registry.register("failures", "Attempts that failed, by the error's name", this.failures.clone());
        registry.register("answers", "Answers that the gateway made itself", this.answers.clone());
        registry.register("members", "Members in the store, by state", this.members.clone());
        registry.register("parked", "Members that this gateway saw set aside, by kind", this.parked.clone());
        registry.register("returned", "Members that this gateway saw come back", this.returned.clone());
        registry.register("bans", "Members that this gateway kept from one host", this.bans.clone());
        registry.register("checks", "Checks of members by this gateway, by result", this.checks.clone());
        registry.register("candidates", "Candidates that this gateway tried, by result", this.candidates.clone());
        registry.register(
            "judge_in_doubt",
            "Whether failures count for nothing, because health.url itself seems to be down",
            this.doubt.clone(),
        );
        this
    }
}

impl Metrics {
    /// What worker number `worker` counts.
    pub(crate) fn counts(&self, worker: usize) -> Counts {
        let worker = worker as u64;
        let requests = |kind| self.requests.get_or_create_owned(&Request { worker, kind });
        let attempts = |chosen_by| self.attempts.get_or_create_owned(&Attempt { worker, chosen_by });
        Counts {
            forwards: requests("forward"),
            tunnels: requests("tunnel"),
            by_store: attempts("store"),
            locally: attempts("gateway"),
            trials: attempts("trial"),
        }
    }

    /// The connections of worker number `worker`.
    pub(crate) fn clients(&self, worker: usize) -> Gauge {
        self.clients.get_or_create_owned(&Worker { worker: worker as u64 })
    }

    /// An attempt has failed; `error`: the name in RFC 9209.
    pub(crate) fn failed(&self, error: &'static str) {
        self.failures.get_or_create(&[("error", error)]).inc();
    }

    /// The gateway has answered itself.
    pub(crate) fn answered(&self, status: u16, error: &'static str) {
        self.answers.get_or_create(&Answer { status: status.into(), error }).inc();
    }

    /// A member was set aside.
    pub(crate) fn parked(&self, kind: &'static str) {
        self.parked.get_or_create(&[("kind", kind)]).inc();
    }

    /// Members are back.
    pub(crate) fn returned(&self, members: usize) {
        self.returned.inc_by(members as u64);
    }

    /// A member is kept from a host.
    pub(crate) fn banned(&self) {
        self.bans.get_or_create(&[("scope", "proxy+host")]).inc();
    }

    /// Somebody was tried; `result`: what the pool is told.
    pub(crate) fn tried(&self, what: Tried, result: &'static str) {
        self.results(what).get_or_create(&[("result", result)]).inc();
    }

    /// Whether failures count for nothing at the moment.
    pub(crate) fn doubts(&self, what: Tried, is_in_doubt: bool) {
        let label = match what {
            Tried::Checks => "checks",
            Tried::Candidates => "candidates",
        };
        self.doubt.get_or_create(&[("of", label)]).set(is_in_doubt.into());
    }

    fn results(&self, what: Tried) -> &Family<[Label; 1], Counter> {
        match what {
            Tried::Checks => &self.checks,
            Tried::Candidates => &self.candidates,
        }
    }

    /// All of it. `sizes`: of the pool, if the store says it.
    pub(crate) fn show(&self, sizes: Option<Sizes>) -> String {
        match sizes {
            Some(Sizes { eligible, ramping, parked, candidates }) => {
                for (state, size) in
                    [("eligible", eligible), ("ramping", ramping), ("parked", parked), ("candidate", candidates)]
                {
                    self.members.get_or_create(&[("state", state)]).set(size.try_into().unwrap_or(i64::MAX));
                }
            }
            // What is not known is not shown.
            None => self.members.clear(),
        }
        let mut page = String::new();
        text::encode(&mut page, &self.registry).expect("a string takes everything");
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_shown_and_what_the_store_does_not_say_is_not() {
        let metrics = Metrics::default();
        metrics.counts(1).tunnels.inc();
        metrics.answered(503, "destination_unavailable");
        metrics.doubts(Tried::Checks, true);
        let page = metrics.show(Some(Sizes { eligible: 3, ramping: 0, parked: 1, candidates: 2 }));
        for line in [
            r#"evenkeel_requests_total{worker="1",kind="tunnel"} 1"#,
            r#"evenkeel_requests_total{worker="1",kind="forward"} 0"#,
            r#"evenkeel_answers_total{status="503",error="destination_unavailable"} 1"#,
            r#"evenkeel_judge_in_doubt{of="checks"} 1"#,
            r#"evenkeel_members{state="eligible"} 3"#,
            r#"evenkeel_members{state="candidate"} 2"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(page.ends_with("# EOF\n"));
        assert!(!metrics.show(None).contains("evenkeel_members{"));
    }
}
