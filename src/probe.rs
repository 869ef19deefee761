//! Try a member: is it reached, how fast, where does it come out, what does it tell of us, can it CONNECT.
//!
//! A probe goes the way traffic goes, with the member's own credentials ([`crate::fetch`]), and allocates nothing. What it asks
//! for, a [`Judge`], is shared by all probes; what it finds, a [`Verdict`], is plain data. While it runs, a probe holds one
//! connection, at most two one after the other, and the first 64 KiB of the answer.
//! Not here: when to probe whom, and what follows from a verdict.

mod anonymity;
mod verdict;

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use hyper::header::{CACHE_CONTROL, HeaderMap, HeaderValue};
use tokio::time::Instant;

pub use anonymity::Anonymity;
use anonymity::Own;
pub use verdict::{Fault, Verdict};

use crate::dial::Deadline;
use crate::fetch::{self, Answer, Body, Trouble, Url};
use crate::judge::{MAX_ANSWER, Testimony};
use crate::member::{Address, Host, Member};
use crate::target::Authority;

/// What members are asked for when they are tried.
#[derive(Clone, Debug)]
pub struct Judge {
    page: Option<Page>,
    tunnel: Option<Place>,
    /// What it saw without a member between.
    own: Option<Testimony>,
}

#[derive(Clone, Debug)]
struct Page {
    url: Url,
    /// Anything that is no testimony is a failure.
    must_testify: bool,
}

/// `host:port`, where a tunnel is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Authority);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let place = Authority::parse(text, None).map_err(|_| "must be host:port, like example.com:443".to_owned())?;
        Ok(Self(place))
    }
}

impl Judge {
    /// A page that says what it saw. Whoever answers with something else is no way to it.
    pub fn strict(url: Url) -> Self {
        Self { page: Some(Page { url, must_testify: true }), tunnel: None, own: None }
    }

    /// Any page. If it says what it saw, the better; otherwise it shows that it was reached, by a status below 400.
    pub fn lenient(url: Url) -> Self {
        Self { page: Some(Page { url, must_testify: false }), tunnel: None, own: None }
    }

    /// No page: only a tunnel.
    pub fn tunnel(place: Place) -> Self {
        Self { page: None, tunnel: Some(place), own: None }
    }

    /// Also tries to open a tunnel: to `place`, or to the page's own host and port.
    ///
    /// Where a page was fetched through a tunnel, it is known already that there can be one to it, and none is opened.
    pub fn and_tunnel(mut self, place: Option<Place>) -> Self {
        self.tunnel = place.or_else(|| Some(Place(self.page.as_ref()?.url.authority().clone())));
        self
    }

    /// Whether there is a page, and not only a tunnel.
    pub fn has_page(&self) -> bool {
        self.page.is_some()
    }

    fn leads_to_page(&self, Place(place): &Place) -> bool {
        self.page.as_ref().is_some_and(|page| {
            let to = page.url.authority();
            to.host == place.host && to.port == place.port
        })
    }

    /// Asks the page once without a member between, so that it is known how this machine looks: `through` is `direct://`, or
    /// the proxy that it cannot do without.
    ///
    /// Until that has succeeded, no verdict says how anonymous a member is, but for one that is certainly transparent.
    /// `false`: it was reached, and did not say what it saw.
    ///
    /// # Errors
    /// It was not reached, so neither will members reach it, or this machine has no other way out than through them.
    pub async fn introduce(&mut self, through: &Member, timeout: Duration) -> Result<bool, Fault> {
        let Some(page) = &self.page else { return Ok(false) };
        let mut verdict = Verdict::default();
        let deadline = Deadline::within(timeout);
        let asked = ask(through, page, deadline, &mut verdict).await;
        self.own = asked.map_err(|trouble| Fault::of(&trouble))?.map(|(seen, _)| seen);
        Ok(self.own.is_some())
    }
}

/// Tries `member`, within `timeout` altogether.
pub async fn probe(member: &Member, judge: &Judge, timeout: Duration) -> Verdict {
    let deadline = Deadline::within(timeout);
    let mut verdict = Verdict::default();
    if let Some(page) = &judge.page {
        match ask(member, page, deadline, &mut verdict).await {
            Ok(testimony) => {
                verdict.can_connect = page_came_by_tunnel(member, page).then_some(true);
                if let Some((seen, local)) = testimony {
                    take_down(seen, local, judge, &mut verdict);
                }
            }
            Err(trouble) => {
                verdict.fault = Some(Fault::of(&trouble));
                return verdict;
            }
        }
    }
    if let Some(place) = &judge.tunnel
        && !(verdict.can_connect == Some(true) && judge.leads_to_page(place))
    {
        try_tunnel(member, place, deadline, &mut verdict).await;
    }
    verdict
}

/// Whether what a CONNECT does was done to get the page.
fn page_came_by_tunnel(member: &Member, page: &Page) -> bool {
    page.url.is_https() || !member.is_http_proxy()
}

/// Gets the page, and writes down how long that took. `None`: it is not one that tells.
async fn ask(
    member: &Member,
    page: &Page,
    deadline: Deadline,
    verdict: &mut Verdict,
) -> Result<Option<(Testimony, Option<IpAddr>)>, Trouble> {
    let started = Instant::now();
    // An answer that a proxy has kept for somebody else is none.
    let fresh = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("no-cache"))]);
    let Answer { response, driver, reached, answered, local } = fetch::ask(member, &page.url, fresh, deadline).await?;
    verdict.connect = Some(reached - started);
    verdict.first_byte = Some(answered - started);
    let status = response.status();
    if !(status.is_success() || (status.is_redirection() && !page.must_testify)) {
        return Err(Trouble::Status(status.as_u16()));
    }
    let body = match Body::new(response, driver, MAX_ANSWER as u64, deadline) {
        Ok(body) => read(body).await,
        Err(trouble) => Err(trouble),
    };
    verdict.total = Some(started.elapsed());
    let testimony = match body {
        Ok(body) => Testimony::read(&body),
        // A page like any other; nobody needs all of it.
        Err(Trouble::TooLong(_)) if !page.must_testify => None,
        Err(trouble) => return Err(trouble),
    };
    match testimony {
        None if page.must_testify => Err(Trouble::NoTestimony),
        testimony => Ok(testimony.map(|seen| (seen, local))),
    }
}

async fn read(mut body: Body) -> Result<Vec<u8>, Trouble> {
    let mut whole = Vec::new();
    while let Some(chunk) = body.chunk().await? {
        whole.extend_from_slice(&chunk);
    }
    Ok(whole)
}

fn take_down(seen: Testimony, local: Option<IpAddr>, judge: &Judge, verdict: &mut Verdict) {
    let own = Own { testimony: judge.own.as_ref(), local };
    (verdict.anonymity, verdict.seen) = anonymity::of(&seen, &own);
    verdict.exit = Some(seen.exit);
    verdict.country = seen.country;
}

async fn try_tunnel(member: &Member, Place(to): &Place, deadline: Deadline, verdict: &mut Verdict) {
    let started = Instant::now();
    let address = Address { host: Host::of_target(&to.host), port: to.port };
    let opened = fetch::tunnel(member, to, &address, deadline).await;
    verdict.can_connect = Some(opened.is_ok());
    match opened {
        Ok(_) if verdict.connect.is_none() => {
            verdict.connect = Some(started.elapsed());
            verdict.total = verdict.connect;
        }
        Ok(_) => {}
        Err(failure) => verdict.connect_fault = Some(Fault::of(&failure.into())),
    }
    // When nothing else was asked, that is all there is to it.
    if verdict.connect.is_none() {
        verdict.fault = verdict.connect_fault.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands may be under way at once; what they need while they wait for a connection is on the heap only then.
    #[test]
    fn a_probe_that_waits_is_small() {
        let judge = Judge::lenient("http://h/".parse().unwrap()).and_tunnel(None);
        let member = Member::direct();
        let size = size_of_val(&probe(&member, &judge, Duration::ZERO));
        assert!(size <= 2048, "{size} bytes");
    }

    #[test]
    fn a_verdict_comes_back_from_json_to_the_millisecond() {
        let fault = Fault { error: "dns_error".into(), reason: "no".into(), received_status: Some(407) };
        let verdict = Verdict {
            fault: Some(fault),
            connect: Some(Duration::from_micros(1999)),
            exit: "2001:db8::7".parse().ok(),
            anonymity: Some(Anonymity::Elite),
            seen: vec!["via".into()],
            can_connect: Some(false),
            ..Verdict::default()
        };
        let back: Verdict = serde_json::from_str(&serde_json::to_string(&verdict).unwrap()).unwrap();
        assert_eq!(back, Verdict { connect: Some(Duration::from_millis(1)), ..verdict });
    }
}
