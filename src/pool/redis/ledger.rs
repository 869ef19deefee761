//! What one client of the pool in Redis has in flight, by its own books.
//!
//! They are the truth, and Redis is told: what is over is gathered here until it is. Should Redis and the books disagree, or
//! might they, the client begins anew there with what the books say ([`super::leasing`]).
//! Bounds: no more members than requests have leases, or had when their end could not be told yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::member::Name;
use crate::pool::Lease;

/// The books.
pub(in crate::pool) struct Ledger {
    books: Mutex<Books>,
    /// Something is over.
    ended: Notify,
    /// Of all requests that are over, so many Redis knows of.
    told: watch::Sender<u64>,
    /// How long whoever ends a request waits until Redis knows it; `None`: not at all.
    patience: Option<Duration>,
}

#[derive(Default)]
struct Books {
    /// Requests in flight, of members that have some.
    held: HashMap<Name, u64>,
    /// Requests that are over, which Redis does not know yet.
    over: HashMap<Name, u64>,
    /// Requests that are over, ever.
    ended: u64,
}

/// What is to be told, and the number of the last of it.
pub(super) struct Over {
    pub(super) members: Vec<(Name, u64)>,
    number: u64,
}

impl Over {
    /// None of no member, for a call that is to have been made once.
    pub(super) fn nothing() -> Self {
        Self { members: vec![(Name::new(), 0)], number: 0 }
    }
}

impl Ledger {
    pub(super) fn new(patience: Option<Duration>) -> Arc<Self> {
        let told = watch::Sender::new(0);
        Arc::new(Self { books: Mutex::default(), ended: Notify::new(), told, patience })
    }

    /// Books a request that Redis counts already. The name may be a piece of something larger: it is copied.
    pub(super) fn grant(self: &Arc<Self>, member: &[u8]) -> (Name, Lease) {
        let mut books = self.books();
        let known = books.held.get_key_value(member).map(|(member, _)| member.clone());
        let member = known.unwrap_or_else(|| Name::copy_from_slice(member));
        *books.held.entry(member.clone()).or_default() += 1;
        (member.clone(), Lease::redis(self.clone(), member))
    }

    /// The request is over.
    pub(in crate::pool) fn release(&self, member: &Name) {
        let mut books = self.books();
        if let Some(held) = books.held.get_mut(member) {
            *held -= 1;
            if *held == 0 {
                books.held.remove(member);
            }
        }
        *books.over.entry(member.clone()).or_default() += 1;
        books.ended += 1;
        drop(books);
        self.ended.notify_one();
    }

    /// Ends when something is over, perhaps already told.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Ends when Redis knows of everything that is over by now, or does not answer; without patience, when it was probably sent.
    ///
    /// That it was sent is not enough: of two connections that have something for it, Redis may read the later one first.
    pub(in crate::pool) async fn settle(&self) {
        let Some(patience) = self.patience else {
            // A task of its own: yielding in this one would end with its next wake-up, whatever that is for.
            let _ = tokio::spawn(tokio::task::yield_now()).await;
            return;
        };
        let number = self.books().ended;
        let _ = timeout(patience, self.told.subscribe().wait_for(|&told| told >= number)).await;
    }

    /// Takes out what is over, at most `most` members: whoever calls must tell Redis, and say here that it knows.
    pub(super) fn take_over(&self, most: usize) -> Over {
        let mut books = self.books();
        if books.over.len() <= most {
            return Over { members: books.over.drain().collect(), number: books.ended };
        }
        let some: Vec<Name> = books.over.keys().take(most).cloned().collect();
        // Of those that are left some may have been over before some of these.
        Over { members: some.into_iter().filter_map(|member| books.over.remove_entry(&member)).collect(), number: 0 }
    }

    /// Everything in flight, to begin anew with: what is over by now need not be told any more when this is.
    pub(super) fn balance(&self) -> Over {
        let mut books = self.books();
        books.over.clear();
        let members = books.held.iter().map(|(member, &held)| (member.clone(), held)).collect();
        Over { members, number: books.ended }
    }

    /// Redis knows of it.
    pub(super) fn is_told(&self, &Over { number, .. }: &Over) {
        self.told.send_if_modified(|told| {
            let is_news = *told < number;
            *told = number.max(*told);
            is_news
        });
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing here panics between two writes.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
