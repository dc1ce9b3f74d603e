//! Slots for streams and waiting requests, limited in total and per user.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use annie_core::ids::UserId;

use super::ApiLimits;
use crate::error::{ApiError, Code};

#[derive(Default)]
struct Taken {
    total: usize,
    by_user: HashMap<UserId, usize>,
}

/// The slots of one server.
#[derive(Clone, Default)]
pub(crate) struct Slots {
    taken: Arc<Mutex<Taken>>,
}

/// One slot; freed when dropped.
pub(crate) struct Slot {
    slots: Slots,
    user: UserId,
}

impl Slots {
    pub fn take(&self, user: &UserId, limits: &ApiLimits) -> Result<Slot, ApiError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.total >= limits.streams_max {
            let why = format!("{} streams are open, which is the most", limits.streams_max);
            return Err(ApiError::new(Code::Overloaded, why).retry_in_ms(5_000));
        }
        let own = taken.by_user.get(user).copied().unwrap_or(0);
        if own >= limits.streams_per_user_max {
            let why = format!("{own} streams of yours are open, which is the most: close one");
            return Err(ApiError::new(Code::RateLimited, why).retry_in_ms(5_000));
        }
        taken.by_user.insert(user.clone(), own + 1);
        taken.total += 1;
        self.show(&taken);
        drop(taken);
        Ok(Slot { slots: self.clone(), user: user.clone() })
    }

    #[expect(clippy::cast_precision_loss, clippy::unused_self, reason = "a gauge of small numbers")]
    fn show(&self, taken: &Taken) {
        metrics::gauge!("annie_sse_clients").set(taken.total as f64);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total -= 1;
        match taken.by_user.get_mut(&self.user) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                taken.by_user.remove(&self.user);
            }
        }
        self.slots.show(&taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_limit_total_and_per_user_and_are_freed_on_drop() {
        let limits = ApiLimits { streams_max: 3, streams_per_user_max: 2, ..ApiLimits::default() };
        let slots = Slots::default();
        let [ann, bob] = ["ann", "bob"].map(|u| UserId::new(u).unwrap());
        let code = |user: &UserId| slots.take(user, &limits).err().map(|f| f.code);
        let first = slots.take(&ann, &limits).unwrap();
        let second = slots.take(&ann, &limits).unwrap();
        assert_eq!(code(&ann), Some(Code::RateLimited));
        let third = slots.take(&bob, &limits).unwrap();
        assert_eq!(code(&bob), Some(Code::Overloaded));
        drop((first, second, third));
        assert_eq!(slots.taken.lock().unwrap().total, 0);
        assert!(slots.taken.lock().unwrap().by_user.is_empty());
    }
}
