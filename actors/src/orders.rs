//! Standing orders of operators: what stays in force until a person lifts it, also over a restart. A paused class or a suspended
//! conversation gets no further round, an open breaker admits no call, a quarantined conversation no turn.
//!
//! Owns: the orders in memory, beside the actors that obey them. Supervised by: none, it is no actor. Survives a death of the
//! process: the orders, each a document. Another node on the same store learns of an order when it starts.

use std::{collections::BTreeMap, sync::Arc};

use annie_core::{
    audit::seals_user,
    event::Priority,
    ids::{ConversationId, IntentId, UserId},
    ports::{
        Document, DocumentChange, DocumentQuery, DocumentWrite, Documents, Env, Namespace, Seen, StoreError,
        StoreErrorKind,
    },
    time::Micros,
};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

/// The orders, each a document of [`seals_user`].
const ORDERS: Namespace = Namespace { texts: &["key"], ..Namespace::named("standingorders") };
/// The most orders in force. A further one is refused.
pub const ORDERS_MAX: usize = 1_000;

/// What an order does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderKind {
    /// No round of a class starts.
    PausedClass,
    /// No round of a conversation starts.
    SuspendedConversation,
    /// No call of a skill is admitted.
    OpenBreaker,
    /// A conversation has no Engine, and its messages fail.
    Quarantine,
    /// The server accepts no message.
    Drain,
}

impl OrderKind {
    /// The stored word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PausedClass => "paused_class",
            Self::SuspendedConversation => "suspended_conversation",
            Self::OpenBreaker => "open_breaker",
            Self::Quarantine => "quarantine",
            Self::Drain => "drain",
        }
    }
}

/// The target of [`OrderKind::Drain`].
pub(crate) const SERVER: &str = "server";

/// An order in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// What it does.
    pub kind: OrderKind,
    /// The class, the conversation or the skill.
    pub target: String,
    /// The user of the conversation, if the order is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// The person who gave it: the user, and the public id of the key.
    pub by: String,
    /// The reason.
    pub reason: String,
    /// When it was given.
    pub at: Micros,
}

impl Order {
    fn key(kind: OrderKind, target: &str) -> String {
        format!("{}:{target}", kind.as_str())
    }

    /// The order in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { kind, target, by, reason, at, .. } = self;
        let what = match kind {
            OrderKind::PausedClass => format!("class {target} is paused"),
            OrderKind::SuspendedConversation => format!("conversation {target} is suspended"),
            OrderKind::OpenBreaker => format!("the breaker of {target} is held open"),
            OrderKind::Quarantine => format!("conversation {target} is in quarantine"),
            OrderKind::Drain => "the server is drained".to_owned(),
        };
        format!("{what} by {by} since {at}: {reason}")
    }
}

/// The orders in force.
#[derive(Debug, Default)]
pub struct StandingOrders {
    orders: RwLock<BTreeMap<(OrderKind, String), Order>>,
}

/// The document of an order: the order, and the field by which it is found.
#[derive(Serialize, Deserialize)]
struct Stored {
    key: String,
    #[serde(flatten)]
    order: Order,
}

impl StandingOrders {
    /// Reads the stored orders. An unreadable one is logged and not in force.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn load(&self, documents: &dyn Documents) -> Result<(), StoreError> {
        let query = DocumentQuery { limit: u32::try_from(ORDERS_MAX).unwrap_or(u32::MAX), ..DocumentQuery::default() };
        let hits = documents.find_documents(owner()?, &ORDERS, query).await?;
        let mut orders = self.orders.write();
        for hit in hits {
            match serde_json::from_value::<Stored>(hit.document.body) {
                Ok(Stored { order, .. }) => {
                    tracing::warn!(order = order.sentence(), "a standing order of an operator is in force");
                    publish(&order, true);
                    orders.insert((order.kind, order.target.clone()), order);
                }
                Err(error) => tracing::error!(%error, "a standing order cannot be read, and is not in force"),
            }
        }
        Ok(())
    }

    /// Stores an order, and then puts it in force. An order with the same target is replaced.
    ///
    /// # Errors
    /// If the store fails, or there are too many orders.
    pub(crate) async fn give(&self, order: Order, documents: &dyn Documents, env: &Env) -> Result<(), StoreError> {
        let key = Order::key(order.kind, &order.target);
        let in_force = self.orders.read().len();
        if in_force >= ORDERS_MAX && self.find(order.kind, &order.target).is_none() {
            return Err(failed(StoreErrorKind::Full, &format!("{ORDERS_MAX} orders are in force: lift some")));
        }
        let body = serde_json::to_value(Stored { key: key.clone(), order: order.clone() });
        let body = body.map_err(|e| failed(StoreErrorKind::Internal, &e.to_string()))?;
        write(key, documents, env, move |seen| match seen {
            Some(number) => DocumentChange::Replace { number, body: body.clone() },
            None => DocumentChange::Insert(body.clone()),
        })
        .await?;
        publish(&order, true);
        self.orders.write().insert((order.kind, order.target.clone()), order);
        Ok(())
    }

    /// Lifts an order. False if there was none.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn lift(
        &self,
        kind: OrderKind,
        target: &str,
        documents: &dyn Documents,
        env: &Env,
    ) -> Result<bool, StoreError> {
        write(Order::key(kind, target), documents, env, |seen| {
            seen.map_or(DocumentChange::Keep, DocumentChange::Archive)
        })
        .await?;
        let lifted = self.orders.write().remove(&(kind, target.to_owned()));
        if let Some(order) = &lifted {
            publish(order, false);
        }
        Ok(lifted.is_some())
    }

    /// All orders, by kind and target.
    #[must_use]
    pub fn all(&self) -> Vec<Order> {
        self.orders.read().values().cloned().collect()
    }

    /// The order about a target.
    #[must_use]
    pub fn find(&self, kind: OrderKind, target: &str) -> Option<Order> {
        let orders = self.orders.read();
        if orders.is_empty() {
            return None;
        }
        orders.get(&(kind, target.to_owned())).cloned()
    }

    /// The order because of which no round of a task starts. Voice is never stopped by its class, and is stopped with its
    /// conversation.
    pub(crate) fn stops(&self, class: Priority, conversation: ConversationId) -> Option<Order> {
        if self.orders.read().is_empty() {
            return None;
        }
        let paused = self.find(OrderKind::PausedClass, class.as_str());
        paused.or_else(|| self.find(OrderKind::SuspendedConversation, &conversation.to_string()))
    }

    /// The conversations that a person has put in quarantine.
    pub(crate) fn quarantined(&self) -> BTreeMap<ConversationId, UserId> {
        let orders = self.orders.read();
        let of_kind = orders.values().filter(|order| order.kind == OrderKind::Quarantine);
        of_kind.filter_map(|order| Some((order.target.parse().ok()?, order.user.clone()?))).collect()
    }
}

/// Sets the gauge of a paused class.
fn publish(order: &Order, is_in_force: bool) {
    if order.kind == OrderKind::PausedClass {
        let gauge = metrics::gauge!("annie_class_paused", "priority" => order.target.clone());
        gauge.set(f64::from(u8::from(is_in_force)));
    }
}

/// Writes the document of an order, which `change` decides about by its number.
async fn write(
    key: String,
    documents: &dyn Documents,
    env: &Env,
    change: impl Fn(Option<u64>) -> DocumentChange + Send + Sync + 'static,
) -> Result<(), StoreError> {
    let mut query = DocumentQuery { limit: 1, ..DocumentQuery::default() };
    query.texts[0] = vec![key];
    let write = DocumentWrite {
        user: owner()?,
        namespace: &ORDERS,
        intent: IntentId::for_request(env.uuid()),
        seen: Seen::Query(query),
        decide: Arc::new(move |seen: &[Document]| Ok(change(seen.first().map(|document| document.number)))),
        at: env.now(),
    };
    documents.write_document(write).await.map(drop)
}

fn owner() -> Result<UserId, StoreError> {
    seals_user().map_err(|e| failed(StoreErrorKind::Internal, &e.to_string()))
}

fn failed(kind: StoreErrorKind, detail: &str) -> StoreError {
    StoreError { kind, what: "the standing orders", detail: detail.to_owned() }
}
