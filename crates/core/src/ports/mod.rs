//! The ports: traits for everything that the kernel needs from outside, such as stores, models, skills and the clock.
//! Adapters implement them and actors use them; neither depends on the other.

mod channel;
mod context;
mod deletions;
mod documents;
mod egress;
mod env;
mod extension;
mod hooks;
mod model;
mod nodes;
mod page;
mod secrets;
mod server_facts;
mod skills;
mod store;
mod work;
mod workflows;

use std::{future::Future, pin::Pin};

pub use channel::{
    Address, Channel, Delivered, DeliveryEnd, DeliveryError, DeliveryRow, Diverted, Inbox, InboxError, Incoming,
};
pub use context::{ContextPart, ContextQuery, ContextSource};
pub use deletions::{DeleteConversation, Deleting, Deletion, Deletions, ErasedPart};
pub use documents::{
    Decide, Document, DocumentChange, DocumentHit, DocumentKey, DocumentOrder, DocumentQuery, DocumentWrite, Documents,
    ExportedDocument, Find, NUMBER_KEYS_MAX, Namespace, NumberRange, Seen, TEXT_KEYS_MAX, TextRange, WriteKind,
    Written,
};
pub use egress::{Egress, EgressError, EgressMethod, EgressReply, EgressRequest, Exchange, SecretHeader};
pub use env::{Clock, Entropy, Env, FaultAction, Faults};
pub use extension::{Chore, LogSubscriber};
pub use hooks::HookRunner;
pub use model::{Draft, DraftSink, Model};
pub use nodes::{Claimed, NodeRow, Nodes, OpenConversation, Renewal};
pub use page::{Before, NotAPageStart};
pub use secrets::{SecretError, Secrets};
pub use server_facts::{Origin, ServerFacts};
pub use skills::{Catalog, OperationGrant, SkillCall, SkillRunner, SkillSource};
pub use store::{
    ApiKey, Append, AppendError, Appended, Breakers, Claim, ConversationRow, Fence, IntentRow, IntentState, Keys, Log,
    MessageRow, Records, SealedSecret, SealedSecrets, Snapshot, Storage, Store, StoreError, StoreErrorKind,
    StoredEvent, StoredText, TaskRow, TaskState,
};
pub use work::{
    DeadLetterFilter, DeadLetterRow, DeadLetters, DeadLettersWaiting, Notification, OperationRow, Operations, Outbox,
    OutboxRow,
};
pub use workflows::{NoWorkflows, WorkflowFile, Workflows};

/// A boxed future, the return type of asynchronous ports.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
