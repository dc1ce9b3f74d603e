//! Commits that may reach the disk after their callers gave up: a commit that timed out, or one that the previous
//! incarnation of the log writer started. The first check may come too early, so it is repeated.

use std::{collections::BTreeMap, time::Duration};

use crate::observe::Branch;
use annie_core::ids::ConversationId;

use super::{LogArgs, LogMsg};
use crate::{observe::Addr, ownership::OwnershipMsg, tasks::Tasks};

/// Interval between two checks, in milliseconds: the time limit of a commit.
const CHECK_MS: u64 = 15_000;
/// Checks for the messages of one commit. A commit that is not stored two minutes after it was given up never will be: the
/// databases' own timeouts are shorter, and only a stalled disk could delay it for longer.
const CHECKS_MAX: u32 = 8;
/// Conversations that are checked by id. With more, all conversations are checked.
const NAMED_MAX: usize = 10_000;

/// The conversations to check, and how many checks are left for each.
pub(super) struct Late {
    named: BTreeMap<ConversationId, u32>,
    everything: u32,
    timer: Tasks<()>,
}

impl Late {
    /// Nothing to check.
    pub fn of(owner: Branch) -> Self {
        Self { named: BTreeMap::new(), everything: 0, timer: Tasks::of(owner) }
    }

    /// Checks all conversations: the previous incarnation may have left a commit behind, and its list of conversations is
    /// lost.
    pub fn expect_anything(&mut self, me: Addr<LogMsg>) {
        self.everything = CHECKS_MAX;
        self.set_timer(me);
    }

    /// Checks these conversations: messages of theirs may be stored later.
    pub fn expect(&mut self, conversations: impl IntoIterator<Item = ConversationId>, me: Addr<LogMsg>) {
        self.named.extend(conversations.into_iter().map(|conversation| (conversation, CHECKS_MAX)));
        if self.named.len() > NAMED_MAX {
            self.named.clear();
            self.everything = CHECKS_MAX;
        }
        self.set_timer(me);
    }

    /// Runs one check.
    pub fn check(&mut self, args: &LogArgs, me: Addr<LogMsg>) {
        self.timer.remove(&());
        // If the ownership actor is dead, its next incarnation scans the log.
        if self.everything > 0 {
            self.everything -= 1;
            args.ownership.tell(OwnershipMsg::Rescan);
        } else if !self.named.is_empty() {
            args.ownership.tell(OwnershipMsg::Doubt(self.named.keys().copied().collect()));
        }
        args.subscriptions.reread();
        self.named.retain(|_, checks_left| {
            *checks_left -= 1;
            *checks_left > 0
        });
        self.set_timer(me);
    }

    fn set_timer(&mut self, me: Addr<LogMsg>) {
        if (self.named.is_empty() && self.everything == 0) || self.timer.contains(&()) {
            return;
        }
        self.timer.spawn((), async move {
            tokio::time::sleep(Duration::from_millis(CHECK_MS)).await;
            // If the message is lost, this incarnation has ended, and the next one checks everything.
            me.tell(LogMsg::CheckLate);
        });
    }
}
