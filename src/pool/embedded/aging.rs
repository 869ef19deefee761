//! All counts at once, as they age: `lua/decay.lua` and `rebase.lua` in memory.

use super::state::State;
use crate::member::Name;
use crate::pool::count::{self, Count};
use crate::pool::{Decay, Rebased};

impl State {
    /// `lua/decay.lua`
    pub(super) fn decay(&mut self, Decay { keep, period }: Decay, now_ms: u64) -> u64 {
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
        let Some(last) = self.decayed_ms.filter(|&last| last <= now_ms) else {
            self.decayed_ms = Some(now_ms);
            self.changes.note_all();
            return 0;
        };
        let periods = (now_ms - last) / period;
        if periods == 0 {
            return 0;
        }
        self.decayed_ms = Some(last + periods * period);
        let factor = keep.powf(periods as f64);
        self.change_counts(|member, count, _| count::shrunk(count, count::weight(member), factor));
        periods
    }

    /// `lua/rebase.lua`
    pub(super) fn rebase(&mut self) -> Rebased {
        let finite = self.order.range((Count(f64::MIN), Name::new())..).next().filter(|(count, _)| count.0.is_finite());
        let base = finite.map_or(0.0, |(count, _)| count.0.floor());
        if base != 0.0 {
            self.change_counts(|member, count, is_in_set| {
                let rebased = count::rebased(count, count::weight(member), base);
                if is_in_set || count.is_infinite() { rebased } else { rebased.max(0.0) }
            });
        }
        Rebased { by: base, members: self.order.len() as u64 }
    }

    /// Changes all counts; whether a member is in the set is the last argument.
    pub(super) fn change_counts(&mut self, change: impl Fn(&Name, f64, bool) -> f64) {
        self.changes.note_all();
        // Requests wait meanwhile: an order made of what is nearly sorted takes a fraction of the time of moving each member.
        let order = std::mem::take(&mut self.order).into_iter().map(|(count, member)| {
            let changed = Count(change(&member, count.0, true));
            if let Some(count) = self.counts.get_mut(&member) {
                *count = changed;
            }
            (changed, member)
        });
        self.order = order.collect();
        if let Some(load) = &mut self.load {
            let order = std::mem::take(&mut load.order)
                .into_iter()
                .map(|(share, count, member)| (share, Count(change(&member, count.0, true)), member));
            load.order = order.collect();
        }
        self.ramp.change_counts(|member, count| change(member, count, false));
        for (member, parked) in &mut self.parked {
            parked.count = change(member, parked.count, false);
        }
    }
}
