//! What may be stored later than anybody waits for it: a commit that was given up, or that a former life began, may still be
//! on its way to the disk. One look at once may come too early, so others follow.

use std::{collections::BTreeMap, time::Duration};

use crate::observe::Branch;
use annie_core::ids::ConversationId;

use super::{LogArgs, LogMsg, tell_all_keepers};
use crate::{conversations::ConversationsMsg, observe::Addr, tasks::Tasks};

/// From one look to the next, in milliseconds: as long as a commit may take before it is given up.
const LOOK_MS: u64 = 15_000;
/// Looks for the messages of one commit. What is not stored two minutes after it was given up, never is: the databases give
/// up their own waits sooner, and only a disk could hold it back for longer.
const LOOKS_MAX: u32 = 8;
/// Conversations that are looked for by name; with more, everything is.
const NAMED_MAX: usize = 10_000;

/// What is looked for, and how often still.
pub(super) struct Late {
    named: BTreeMap<ConversationId, u32>,
    everything: u32,
    timer: Tasks<()>,
}

impl Late {
    /// Nothing is.
    pub fn of(owner: Branch) -> Self {
        Self { named: BTreeMap::new(), everything: 0, timer: Tasks::of(owner) }
    }

    /// A former life may have left a commit behind, and looks for what it had given up.
    pub fn expect_anything(&mut self, me: Addr<LogMsg>) {
        self.everything = LOOKS_MAX;
        self.wind(me);
    }

    /// Messages of these may be stored later.
    pub fn expect(&mut self, conversations: impl IntoIterator<Item = ConversationId>, me: Addr<LogMsg>) {
        self.named.extend(conversations.into_iter().map(|conversation| (conversation, LOOKS_MAX)));
        if self.named.len() > NAMED_MAX {
            self.named.clear();
            self.everything = LOOKS_MAX;
        }
        self.wind(me);
    }

    /// It is time to look.
    pub fn look(&mut self, args: &LogArgs, me: Addr<LogMsg>) {
        self.timer.remove(&());
        // If nobody lives there, its next life scans the log.
        if self.everything > 0 {
            self.everything -= 1;
            args.conversations.tell(ConversationsMsg::Rescan);
        } else if !self.named.is_empty() {
            args.conversations.tell(ConversationsMsg::Doubt(self.named.keys().copied().collect()));
        }
        tell_all_keepers(&args.keepers);
        self.named.retain(|_, looks| {
            *looks -= 1;
            *looks > 0
        });
        self.wind(me);
    }

    fn wind(&mut self, me: Addr<LogMsg>) {
        if (self.named.is_empty() && self.everything == 0) || self.timer.contains(&()) {
            return;
        }
        self.timer.spawn((), async move {
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            // If it fails this life is over, and the next one looks for everything.
            me.tell(LogMsg::Look);
        });
    }
}
