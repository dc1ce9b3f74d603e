//! What the kernel needs from the world, as traits: stores, models, skills, the clock. Adapters implement them, actors
//! hold them, neither knows the other.

mod env;
mod model;
mod nodes;
mod place;
mod server_facts;
mod skills;
mod store;
mod work;

use std::{future::Future, pin::Pin};

pub use env::{Clock, Entropy, Env, FaultAction, Faults};
pub use model::{Draft, DraftSink, Model};
pub use nodes::{Claimed, NodeRow, Nodes, OpenConversation, Renewal};
pub use place::{Before, NoPlace};
pub use server_facts::{Origin, ServerFacts};
pub use skills::{Catalog, OperationGrant, SkillCall, SkillRunner};
pub use store::{
    ApiKey, Append, AppendError, Appended, Breakers, Claim, ConversationRow, Fence, IntentRow, IntentState, Keys, Log,
    Memories, Memory, MemoryCategory, MemoryHit, MemoryQuery, MessageRow, NewMemory, NewTodo, Records, Saved, Snapshot,
    Store, StoreError, StoreErrorKind, TaskRow, TaskState, Todo, TodoPatch, TodoPriority, TodoQuery, TodoStatus,
    TodoSummary, Todos,
};
pub use work::{
    LetterFilter, LetterRow, Letters, LettersWaiting, Notification, OperationRow, Operations, Outbox, OutboxRow,
};

/// A boxed future: what an asynchronous port returns.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
