//! Every actor of the tree is a [`Node`] inside [`Observed`]: the wrapper counts its mailbox, times its handlers, stamps its
//! progress, keeps it in the [`Directory`] and strikes it with the faults that a test asks for. About a microsecond a
//! message, which a model call outweighs by five orders of magnitude.

mod branch;
mod directory;
mod envelope;
mod node;
#[cfg(test)]
mod tests;

pub(crate) use branch::Branch;
pub use directory::{Crash, Directory, NodeInfo, Path};
pub use envelope::{Addr, Handle, SendError};
pub use node::{ChildEnded, Context, EndKind, Named, Node, NodeError, StartError};
pub(crate) use node::{System, ask_view, spawn, task_point};
