//! What a member does at the moment: a request that goes through it holds a [`Lease`] until it is over.
//!
//! Only the policy "least-concurrent" makes leases that mean something; under "least-used" a lease is empty, and nothing
//! is allocated for it, counted or told.
//! Not here: where the numbers are kept, which is the store's to know.

use super::embedded::Embedded;
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
}

impl Lease {
    pub(super) fn embedded(keeper: Embedded, member: Name) -> Self {
        Self(Some(Box::new(Held { keeper: Keeper::Embedded(keeper), member })))
    }

    /// The request is over, before its last bytes have reached the client.
    pub fn end(&mut self) {
        self.0 = None;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        match &self.keeper {
            Keeper::Embedded(pool) => pool.release(&self.member),
        }
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::member::masked(&self.member))
    }
}
