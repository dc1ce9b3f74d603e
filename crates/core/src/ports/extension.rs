//! What an extension adds to a running kernel, in one file outside its packages. Each extension is an actor of its own: a panic
//! in it restarts that actor, or all extensions if it panics again and again, and no actor of the kernel.

use super::Fut;
use crate::{
    event::{Event, Topics},
    time::Micros,
};

/// Work that becomes due at times that the extension knows, such as a schedule. Its actor is `/infra/extensions/chore:NAME`.
pub trait Chore: Send + Sync {
    /// The name: 1 to 40 lower-case letters, digits and underscores, different from that of any other chore.
    fn name(&self) -> &'static str;

    /// Processes all that is due at `now`, and returns when the next item is due; `None` means that nothing is. Called once at
    /// each start of the actor, then at that time, and if several nodes share the store at least once an hour; never twice at
    /// once. A pass that takes longer than 300 s is cut off. It may be
    /// cut off at any point and must be harmless when repeated.
    ///
    /// # Errors
    /// The reason, for the log. The pass is repeated after 1 s, and after each further failure in a row after twice the time, up
    /// to 60 s.
    fn pass(&self, now: Micros) -> Fut<'_, Result<Option<Micros>, String>>;
}

/// Receives stored events, after they are stored and in the order of each conversation. Its actor is `/infra/extensions/subscriber:NAME`.
pub trait LogSubscriber: Send + Sync {
    /// The name: 1 to 40 lower-case letters, digits and underscores, different from that of any other subscriber.
    fn name(&self) -> &'static str;

    /// The topics whose events it receives. Read once, when the kernel starts; the kernel does not start if this panics.
    fn topics(&self) -> Topics;

    /// An event was stored. Must not wait. Events that arrive while the actor restarts, or after 10,000 that wait for it, are
    /// not repeated: [`LogSubscriber::reread`] follows.
    fn stored(&self, event: &Event);

    /// Events may have been stored that were not received: read the store. Also called at each start of the actor.
    fn reread(&self);
}
