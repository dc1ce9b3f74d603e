//! Following a user's notifications: stored ones from any place on, then new ones, without a gap and without a repeat.

use std::{collections::VecDeque, sync::Arc};

use annie_core::{ids::UserId, ports::Notification};
use tokio::sync::watch;

use super::{Kernel, KernelError, PAGE_MAX, StopReason};
use crate::hub::Hub;

/// A follower of one user's notifications.
pub struct NoticeStream {
    kernel: Kernel,
    user: UserId,
    news: Option<watch::Receiver<u64>>,
    ended: watch::Receiver<Option<StopReason>>,
    hub: Arc<Hub>,
    /// The last place that was handed out.
    seen: u64,
    /// Read and not handed out yet.
    page: VecDeque<Notification>,
    /// There may be more in the store than was read.
    behind: bool,
}

impl Drop for NoticeStream {
    fn drop(&mut self) {
        // The receiver must go first, or the topic looks used.
        self.news = None;
        self.hub.sweep_user(&self.user);
    }
}

impl Kernel {
    /// A user's notifications after a place, oldest first; 0 is the beginning.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn notifications(&self, user: &UserId, after: u64, limit: u32) -> Result<Vec<Notification>, KernelError> {
        Ok(self.wiring.store.notifications(user.clone(), after, limit.clamp(1, PAGE_MAX)).await?)
    }

    /// Follows a user's notifications from behind a place on.
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
    /// The place of the last notification that was handed out: where to follow from again.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// The next notification; waits for it. Nothing when the kernel is gone. May be given up at any time and asked again.
    ///
    /// # Errors
    /// If the store fails; what was missed comes with the next call.
    pub async fn next(&mut self) -> Result<Option<Notification>, KernelError> {
        loop {
            if let Some(told) = self.page.pop_front() {
                self.seen = told.id;
                return Ok(Some(told));
            }
            let Some(news) = self.news.as_mut() else { return Ok(None) };
            if self.behind {
                // What is announced from here on is read again.
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
