//! Following a user's notifications: stored ones from any sequence number on, then new ones, without a gap or a repeat.

use std::{collections::VecDeque, sync::Arc};

use annie_core::{ids::UserId, ports::Notification};
use tokio::sync::watch;

use super::{Kernel, KernelError, PAGE_MAX};
use crate::hub::Hub;
use crate::root::StopReason;

/// A follower of one user's notifications.
pub struct NoticeStream {
    kernel: Kernel,
    user: UserId,
    news: Option<watch::Receiver<u64>>,
    ended: watch::Receiver<Option<StopReason>>,
    hub: Arc<Hub>,
    /// The sequence number of the last notification that was returned.
    seen: u64,
    /// Notifications that were read and not returned yet.
    page: VecDeque<Notification>,
    /// The store may hold more than was read.
    behind: bool,
}

impl Drop for NoticeStream {
    fn drop(&mut self) {
        // The receiver must be dropped first, because the topic counts as used while it exists.
        self.news = None;
        self.hub.sweep_user(&self.user);
    }
}

impl Kernel {
    /// A user's notifications after a sequence number, oldest first; 0 is the beginning.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn notifications(&self, user: &UserId, after: u64, limit: u32) -> Result<Vec<Notification>, KernelError> {
        Ok(self.wiring.store.notifications(user.clone(), after, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// Follows a user's notifications after a sequence number.
    #[must_use]
    pub fn follow_notifications(&self, user: &UserId, after: u64) -> NoticeStream {
        NoticeStream {
            kernel: self.clone(),
            user: user.clone(),
            news: Some(self.wiring.hub.listen_for_notices(user)),
            ended: self.ended.clone(),
            hub: self.wiring.hub.clone(),
            seen: after,
            page: VecDeque::new(),
            behind: true,
        }
    }
}

impl NoticeStream {
    /// The sequence number of the last notification that was returned: the value from which to follow again.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Waits for the next notification. `None` when the kernel has ended. Cancel safe.
    ///
    /// # Errors
    /// If the store fails; the next call returns what was missed.
    pub async fn next(&mut self) -> Result<Option<Notification>, KernelError> {
        loop {
            if let Some(notification) = self.page.pop_front() {
                self.seen = notification.id;
                return Ok(Some(notification));
            }
            let Some(news) = self.news.as_mut() else { return Ok(None) };
            if self.behind {
                // Notifications announced after this point cause another read.
                news.mark_unchanged();
                let page = self.kernel.notifications(&self.user, self.seen, PAGE_MAX).await?;
                self.behind = page.len() == PAGE_MAX as usize;
                self.page = page.into();
                continue;
            }
            tokio::select! {
                biased;
                changed = news.changed() => match changed {
                    Ok(()) => self.behind = true,
                    Err(_) => return Ok(None),
                },
                _ = self.ended.wait_for(Option::is_some) => return Ok(None),
            }
        }
    }
}
