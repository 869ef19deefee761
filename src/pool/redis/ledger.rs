//! What one client of the pool in Redis has in flight, by its own books.
//!
//! They are the truth, and Redis is told: what is over is gathered here until it is. Should Redis and the books disagree, or
//! might they, the client begins anew there with what the books say ([`super::leasing`]).
//! Bounds: no more members than requests have leases, or had when their end could not be told yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::member::Name;
use crate::pool::Lease;

/// The books.
#[derive(Default)]
pub(in crate::pool) struct Ledger {
    books: Mutex<Books>,
    /// Something is over.
    ended: Notify,
}

#[derive(Default)]
struct Books {
    /// Requests in flight, of members that have some.
    held: HashMap<Name, u64>,
    /// Requests that are over, which Redis does not know yet.
    over: HashMap<Name, u64>,
}

impl Ledger {
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
        drop(books);
        self.ended.notify_one();
    }

    /// Ends when something is over, perhaps already told.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Takes out what is over, at most `most` members: whoever calls must tell Redis.
    pub(super) fn take_over(&self, most: usize) -> Vec<(Name, u64)> {
        let mut books = self.books();
        if books.over.len() <= most {
            return books.over.drain().collect();
        }
        let some: Vec<Name> = books.over.keys().take(most).cloned().collect();
        some.into_iter().filter_map(|member| books.over.remove_entry(&member)).collect()
    }

    /// Everything in flight, to begin anew with: what is over by now need not be told any more.
    pub(super) fn balance(&self) -> Vec<(Name, u64)> {
        let mut books = self.books();
        books.over.clear();
        books.held.iter().map(|(member, &held)| (member.clone(), held)).collect()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing here panics between two writes.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
