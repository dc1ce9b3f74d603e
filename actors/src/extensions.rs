//! Extensions of the kernel that stand outside its packages, each in an actor of its own below `/infra/extensions`.
//!
//! Owns: nothing. Survives its users: the subscribers and chores that were handed in at the start.

pub(crate) mod nodes;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicBool},
};

use annie_core::{
    approval::APPROVAL,
    event::Topics,
    hooks::{HookSet, Hooks, RefuseRule, valid_hook_name},
    ports::{Channel, Chore, LogSubscriber},
};

/// Length limit of an extension's name, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// The extensions of a kernel.
#[derive(Clone, Default)]
pub struct Extensions {
    /// Work that becomes due.
    pub chores: Vec<Arc<dyn Chore>>,
    /// Receivers of stored events.
    pub subscribers: Vec<Arc<dyn LogSubscriber>>,
    /// Ways to reach users.
    pub channels: Vec<Arc<dyn Channel>>,
}

/// The extensions of a kernel that runs.
pub(crate) struct Installed {
    chores: Vec<Arc<dyn Chore>>,
    subscribers: Vec<Subscribed>,
    channels: Vec<Arc<dyn Channel>>,
}

/// A subscriber of an extension.
#[derive(Clone)]
pub(crate) struct Subscribed {
    subscriber: Arc<dyn LogSubscriber>,
    /// What the subscriber answered at the start. The supervisors of the log writer ask no extension.
    topics: Topics,
    /// An event was not received, because too many waited: the store must be read again.
    missed: Arc<AtomicBool>,
}

impl Extensions {
    /// The extensions in the form in which the kernel uses them.
    ///
    /// # Errors
    /// If a name is invalid or occurs twice, or if a subscriber panics when it is asked for its topics.
    pub(crate) fn install(self) -> Result<Installed, String> {
        let subscribers = self.subscribers.into_iter().map(subscribed).collect::<Result<Vec<_>, String>>()?;
        let installed = Installed { chores: self.chores, subscribers, channels: self.channels };
        check_names(&installed.names().collect::<Vec<_>>())?;
        Ok(installed)
    }
}

fn subscribed(subscriber: Arc<dyn LogSubscriber>) -> Result<Subscribed, String> {
    let topics = catch_unwind(AssertUnwindSafe(|| subscriber.topics())).map_err(|_| {
        let name = subscriber_name(subscriber.as_ref());
        format!("the extension {name} panicked when it was asked for its topics: correct it, or start without it")
    })?;
    Ok(Subscribed { subscriber, topics, missed: Arc::default() })
}

impl Installed {
    /// The names of the actors.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let chores = self.chores.iter().map(|chore| chore_name(chore.as_ref()));
        let subscribers = self.subscribers.iter().map(|subscribed| subscriber_name(subscribed.subscriber.as_ref()));
        chores.chain(subscribers).chain(self.channels.iter().map(|channel| channel_name(channel.as_ref())))
    }

    /// The channels.
    pub fn channels(&self) -> &[Arc<dyn Channel>] {
        &self.channels
    }

    /// The channel with this name.
    pub fn channel(&self, name: &str) -> Option<&Arc<dyn Channel>> {
        self.channels.iter().find(|channel| channel.name() == name)
    }

    /// Whether there is no extension.
    pub fn is_empty(&self) -> bool {
        self.chores.is_empty() && self.subscribers.is_empty() && self.channels.is_empty()
    }
}

/// Checks names with their kind, such as `chore:cuckoo`.
///
/// # Errors
/// If a name is invalid or occurs twice.
pub(crate) fn check_names(names: &[String]) -> Result<(), String> {
    for (n, name) in names.iter().enumerate() {
        let (_, own) = name.split_once(':').unwrap_or_default();
        let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
        if own.is_empty() || own.len() > NAME_BYTES_MAX || !own.bytes().all(is_name) {
            return Err(format!(
                "the extension {name} needs a name of 1 to {NAME_BYTES_MAX} lower-case letters, digits and underscores"
            ));
        }
        if names[..n].contains(name) {
            return Err(format!("two extensions are named {name}: rename one of them"));
        }
    }
    Ok(())
}

/// The set of all hooks. Their names are labels of metrics.
///
/// # Errors
/// If a name is invalid or occurs twice.
pub(crate) fn hook_set(hooks: Hooks) -> Result<HookSet, String> {
    let mut names: Vec<&str> = Vec::new();
    let inside = hooks.inside.iter().map(|hook| hook.name());
    for name in inside.chain(hooks.outside.iter().map(|hook| hook.name.as_str())) {
        if !valid_hook_name(name) {
            let bytes_max = RefuseRule::NAME_BYTES_MAX;
            return Err(format!(
                "the hook {name:?} needs a name of 1 to {bytes_max} lower-case letters, digits, dashes and underscores"
            ));
        }
        if name == APPROVAL {
            return Err(format!("no hook may be named {name}, which stands for the answers of persons: rename it"));
        }
        if names.contains(&name) {
            return Err(format!("two hooks are named {name}: rename one of them"));
        }
        names.push(name);
    }
    Ok(HookSet::new(hooks.inside).with_outside(hooks.outside).with_approval(hooks.approval))
}

fn chore_name(chore: &dyn Chore) -> String {
    format!("chore:{}", chore.name())
}

fn subscriber_name(subscriber: &dyn LogSubscriber) -> String {
    format!("subscriber:{}", subscriber.name())
}

fn channel_name(channel: &dyn Channel) -> String {
    format!("channel:{}", channel.name())
}
