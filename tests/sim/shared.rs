//! A value that tasks can wait for. Tokio's own wakes its waiters in random order; this one wakes them in the order in
//! which they came.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

pub struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> Shared<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub fn get(&self) -> T {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, value: T) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
        self.changed.notify_waiters();
    }

    /// Waits until the value fits.
    pub async fn wait_for(&self, fits: impl Fn(&T) -> bool) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let value = self.get();
            if fits(&value) {
                return value;
            }
            changed.await;
        }
    }
}
