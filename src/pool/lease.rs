//! What a member does at the moment: a request that goes through it holds a [`Lease`] until it is over.
//!
//! Only the policy "least-concurrent" makes leases that mean something; under "least-used" a lease is empty, and nothing
//! is allocated for it, counted or told.
//! Not here: where the numbers are kept, which is the store's to know.

use std::sync::Arc;

use super::embedded::Embedded;
use super::redis::Ledger;
use crate::member::Name;

/// The right to send one request through a member. While this lives, the member counts as having one request more in
/// flight; dropping it ends that, exactly once, whatever became of the request.
#[derive(Debug, Default)]
pub struct Lease(Option<Box<Held>>);

/// On the heap, so that a request under a policy without leases carries one empty word.
struct Held {
    keeper: Keeper,
    member: Name,
}

/// Who counts.
enum Keeper {
    Embedded(Embedded),
    Redis(Arc<Ledger>),
    /// The member was chosen without the store.
    Nobody,
}

impl Lease {
    pub(super) fn embedded(keeper: Embedded, member: Name) -> Self {
        Self(Some(Box::new(Held { keeper: Keeper::Embedded(keeper), member })))
    }

    pub(super) fn redis(keeper: Arc<Ledger>, member: Name) -> Self {
        Self(Some(Box::new(Held { keeper: Keeper::Redis(keeper), member })))
    }

    /// Of a member that was chosen without the store, of whom nobody counts what is in flight.
    pub(super) fn local(member: Name) -> Self {
        Self(Some(Box::new(Held { keeper: Keeper::Nobody, member })))
    }

    /// Whether anyone counts it.
    pub(crate) fn is_counted(&self) -> bool {
        self.0.as_ref().is_some_and(|held| !matches!(held.keeper, Keeper::Nobody))
    }

    /// Whether the member was chosen without the store.
    pub(crate) fn is_local(&self) -> bool {
        self.0.as_ref().is_some_and(|held| matches!(held.keeper, Keeper::Nobody))
    }

    /// The request is over. Called before a client has its last bytes, who may ask again at once, and is then to find the member
    /// free: where there is a limit and Redis has to be told, it has been when this returns, unless it does not answer in time.
    pub(crate) async fn end(&mut self) {
        let Some(held) = self.0.take() else { return };
        if let Keeper::Redis(ledger) = &held.keeper {
            let ledger = ledger.clone();
            drop(held);
            ledger.settle().await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match &self.keeper {
            Keeper::Embedded(pool) => pool.release(&self.member),
            Keeper::Redis(ledger) => ledger.release(&self.member),
            Keeper::Nobody => {}
        }
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::member::masked(&self.member))
    }
}
