//! Which proxies a list has had already, and where.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hash as _, Hasher, RandomState};

use crate::member::{Host, Kind, Member};

/// So many are remembered; of a longer list, repetitions of what comes later are not noticed here. 72 MB.
const MAX: usize = (4 << 20) / 8 * 7;

/// The proxies of one list, each as a hash of 64 bits: of a million, two are taken for one in one list of 37 million.
#[derive(Default)]
pub(super) struct Seen {
    hasher: RandomState,
    /// Lines or entries, as far as a number of 32 bits counts.
    places: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
}

/// Hashes what is a hash already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Seen {
    /// Where the same proxy was before; if nowhere, it is `place` from now on.
    pub(super) fn before(&mut self, member: &Member, place: u64) -> Option<u64> {
        let hash = self.hash(member);
        let is_full = self.places.len() >= MAX;
        match self.places.entry(hash) {
            Entry::Occupied(seen) => Some(u64::from(*seen.get())),
            Entry::Vacant(vacant) => {
                if !is_full {
                    vacant.insert(u32::try_from(place).unwrap_or(u32::MAX));
                }
                None
            }
        }
    }

    /// Everything that makes a proxy of its own, however it was written.
    fn hash(&self, member: &Member) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for hop in member.way() {
            std::mem::discriminant(hop).hash(&mut hasher);
            if let Some(address) = hop.address() {
                address.port.hash(&mut hasher);
                match &address.host {
                    // As it is dialed.
                    Host::Ip(ip) => ip.to_canonical().hash(&mut hasher),
                    Host::Name(name) => name.to_ascii_lowercase().hash(&mut hasher),
                }
            }
            match hop {
                Kind::Http { tls, authorization, .. } => {
                    let tls = tls.as_ref().map(|tls| (tls.server_name.to_str().to_ascii_lowercase(), tls.is_insecure));
                    tls.hash(&mut hasher);
                    authorization.as_ref().map(|value| value.as_bytes()).hash(&mut hasher);
                }
                Kind::Socks { protocol, login, .. } => {
                    std::mem::discriminant(protocol).hash(&mut hasher);
                    login.as_ref().map(|login| (&login.user, &login.password)).hash(&mut hasher);
                }
                Kind::Direct { from } => from.map(|ip| ip.to_canonical()).hash(&mut hasher),
            }
        }
        hasher.finish()
    }
}
