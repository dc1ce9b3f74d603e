//! Every actor of the tree is a [`Node`] inside the wrapper [`Observed`]. The wrapper counts the actor's mailbox, times its
//! handlers, records its progress, keeps it in the [`Directory`] and injects the faults that a test requests. This costs
//! about a microsecond per message; a model call takes five orders of magnitude longer.

mod branch;
mod directory;
mod envelope;
mod node;
#[cfg(test)]
mod tests;

pub(crate) use branch::Branch;
pub use directory::{Crash, Directory, NodeInfo, OperatedActor, Path};
pub use envelope::{Addr, Handle, SendError};
pub use node::{ChildEnded, Context, EndKind, Named, Node, NodeError, StartError};
pub(crate) use node::{System, ask_view, spawn, task_point};
