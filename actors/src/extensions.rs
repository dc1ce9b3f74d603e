//! Extensions of the kernel that stand outside its packages, each in an actor of its own below infra.
//!
//! Owns: nothing. Survives its users: the subscribers and chores that were handed in at the start.

pub(crate) mod nodes;

use std::sync::Arc;

use annie_core::ports::{Chore, LogSubscriber};

/// Length limit of an extension's name, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// The extensions of a kernel.
#[derive(Clone, Default)]
pub struct Extensions {
    /// Work that becomes due.
    pub chores: Vec<Arc<dyn Chore>>,
    /// Receivers of stored events.
    pub subscribers: Vec<Arc<dyn LogSubscriber>>,
}

impl Extensions {
    /// Checks the names.
    ///
    /// # Errors
    /// If a name is invalid or occurs twice.
    pub(crate) fn check(&self) -> Result<(), String> {
        let names: Vec<String> = self.names().collect();
        for (n, name) in names.iter().enumerate() {
            let (_, own) = name.split_once(':').unwrap_or_default();
            let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
            if own.is_empty() || own.len() > NAME_BYTES_MAX || !own.bytes().all(is_name) {
                return Err(format!(
                    "the extension {name} needs a name of 1 to {NAME_BYTES_MAX} lower-case letters, digits and underscores"
                ));
            }
            if names[..n].contains(name) {
                return Err(format!("there are two extensions {name}: give one another name"));
            }
        }
        Ok(())
    }

    /// The names of the actors.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let chores = self.chores.iter().map(|chore| chore_name(chore.as_ref()));
        chores.chain(self.subscribers.iter().map(|subscriber| subscriber_name(subscriber.as_ref())))
    }
}

fn chore_name(chore: &dyn Chore) -> String {
    format!("chore:{}", chore.name())
}

fn subscriber_name(subscriber: &dyn LogSubscriber) -> String {
    format!("subscriber:{}", subscriber.name())
}
