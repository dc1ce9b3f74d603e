//! Orders of operators: pause a class, suspend or quarantine a conversation, hold a breaker open; and the reset of a restart
//! budget.

use std::{sync::Arc, time::Duration};

use annie_core::{
    event::{Priority, Scope},
    ids::{ConversationId, Incarnation},
};

use super::{Kernel, KernelError};
use crate::{
    conversations::{ConversationsMsg, SupervisionMsg},
    observe::Path,
    orders::{Order, OrderKind, SERVER, StandingOrders},
    scheduler::SchedulerMsg,
    supervise::SupervisorMsg,
};

/// Time limit for an actor to answer an operator, in milliseconds.
const ANSWER_MS_MAX: u64 = 2_000;

impl Kernel {
    fn standing_orders(&self) -> &Arc<StandingOrders> {
        self.wiring.leases.orders()
    }

    /// The orders in force.
    #[must_use]
    pub fn orders(&self) -> Vec<Order> {
        self.standing_orders().all()
    }

    async fn give(&self, kind: OrderKind, target: String, by: &str, reason: &str) -> Result<Order, KernelError> {
        let order = Order { kind, target, user: None, by: by.to_owned(), reason: reason.to_owned(), at: self.now() };
        self.standing_orders().give(order.clone(), &*self.wiring.documents, &self.wiring.env).await?;
        Ok(order)
    }

    async fn lift(&self, kind: OrderKind, target: &str) -> Result<bool, KernelError> {
        Ok(self.standing_orders().lift(kind, target, &*self.wiring.documents, &self.wiring.env).await?)
    }

    /// The Scheduler reads the orders. If it is between two incarnations, the next one reads them by itself.
    fn orders_changed(&self) {
        self.wiring.scheduler.tell(SchedulerMsg::OrdersChanged);
    }

    /// Pauses a class: no further round of it starts, also after a restart, until the class is resumed. Rounds under way end
    /// normally.
    ///
    /// # Errors
    /// If the class is REALTIME, or the store fails.
    pub async fn pause_class(&self, class: Priority, by: &str, reason: &str) -> Result<Order, KernelError> {
        if class == Priority::Realtime {
            return Err(KernelError::of_field("priority", "voice is not queued and cannot be paused: hold its task"));
        }
        let order = self.give(OrderKind::PausedClass, class.as_str().to_owned(), by, reason).await?;
        self.orders_changed();
        Ok(order)
    }

    /// Resumes a class. False if it was not paused.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resume_class(&self, class: Priority) -> Result<bool, KernelError> {
        let lifted = self.lift(OrderKind::PausedClass, class.as_str()).await?;
        self.orders_changed();
        Ok(lifted)
    }

    /// Suspends a conversation: no further round of its tasks starts, also of later ones, until it is continued.
    ///
    /// # Errors
    /// If there is no such conversation that the scope sees, or the store fails.
    pub async fn suspend_conversation(
        &self,
        scope: Scope,
        id: ConversationId,
        by: &str,
        reason: &str,
    ) -> Result<Order, KernelError> {
        self.conversation(scope, id).await?;
        let order = self.give(OrderKind::SuspendedConversation, id.to_string(), by, reason).await?;
        self.orders_changed();
        Ok(order)
    }

    /// Continues a suspended conversation. False if it was not suspended.
    ///
    /// # Errors
    /// As [`Self::suspend_conversation`].
    pub async fn continue_conversation(&self, scope: Scope, id: ConversationId) -> Result<bool, KernelError> {
        self.conversation(scope, id).await?;
        let lifted = self.lift(OrderKind::SuspendedConversation, &id.to_string()).await?;
        self.orders_changed();
        Ok(lifted)
    }

    /// Whether an operator has drained the server.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.standing_orders().find(OrderKind::Drain, SERVER).is_some()
    }

    /// Drains the server: it accepts no message of a front end, also after a restart, until this is lifted. Accepted work goes on, and
    /// so do schedules and reminders.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn drain_by_order(&self, by: &str, reason: &str) -> Result<Order, KernelError> {
        self.give(OrderKind::Drain, SERVER.to_owned(), by, reason).await
    }

    /// Accepts messages again. False if the server was not drained.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn end_drain(&self) -> Result<bool, KernelError> {
        self.lift(OrderKind::Drain, SERVER).await
    }

    /// Holds the breaker of a skill open: no call is admitted until the breaker is closed, also after a restart.
    ///
    /// # Errors
    /// If there is no such skill, or the store fails.
    pub async fn open_breaker(&self, skill: &str, by: &str, reason: &str) -> Result<Order, KernelError> {
        self.catalog().skills().get(skill).ok_or(KernelError::NotFound("skill"))?;
        self.give(OrderKind::OpenBreaker, skill.to_owned(), by, reason).await
    }

    /// Lifts the order that holds a breaker open. False if there was none.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn release_breaker(&self, skill: &str) -> Result<bool, KernelError> {
        self.lift(OrderKind::OpenBreaker, skill).await
    }

    /// Puts a conversation in quarantine: its Engine is stopped, its open turns fail visibly, and so does each message that arrives,
    /// until the conversation is resumed.
    ///
    /// # Errors
    /// If there is no such conversation, the store fails, or the parent of the Engines does not answer.
    pub async fn quarantine_conversation(
        &self,
        id: ConversationId,
        by: &str,
        reason: &str,
    ) -> Result<Order, KernelError> {
        let row = self.conversation(Scope::Operator, id).await?;
        let order = Order {
            kind: OrderKind::Quarantine,
            target: id.to_string(),
            user: Some(row.user.clone()),
            by: by.to_owned(),
            reason: reason.to_owned(),
            at: self.now(),
        };
        self.standing_orders().give(order.clone(), &*self.wiring.documents, &self.wiring.env).await?;
        let ask = |reply| {
            ConversationsMsg::Supervision(SupervisionMsg::Quarantine { conversation: id, user: row.user, reply })
        };
        // The Engine is stopped within this time.
        self.wiring.conversations.call(Duration::from_millis(3 * ANSWER_MS_MAX), ask).await?;
        Ok(order)
    }

    /// Lifts the order of a quarantine, so that the conversation can be resumed.
    pub(super) async fn release_quarantine(&self, id: ConversationId) -> Result<bool, KernelError> {
        self.lift(OrderKind::Quarantine, &id.to_string()).await
    }

    /// Gives a supervisor, or the Engine of a conversation, its whole restart budget again. Returns the restarts that are left.
    ///
    /// # Errors
    /// If no actor runs at the path, it has another incarnation, or its restarts are not counted at this path.
    pub async fn reset_budget(&self, path: &str, expected: Option<Incarnation>) -> Result<u32, KernelError> {
        let path = Path::parse(path);
        let entry = self.system.directory.get(&path).ok_or(KernelError::NotFound("actor"))?;
        if expected.is_some_and(|expected| expected != entry.incarnation) {
            return Err(KernelError::Stale(format!("{path} is now incarnation {}", entry.incarnation)));
        }
        let wait = Duration::from_millis(ANSWER_MS_MAX);
        match entry.kind {
            "supervisor" | "root" => {
                let supervisor = self.system.handle::<SupervisorMsg>(&path);
                Ok(supervisor.call(wait, |reply| SupervisorMsg::ResetBudget { reply }).await?)
            }
            "engine" => {
                let id = path.to_string();
                let id = id.rsplit_once("engine:").and_then(|(_, id)| id.parse().ok());
                let conversation: ConversationId = id.ok_or(KernelError::NotFound("conversation"))?;
                let ask = |reply| ConversationsMsg::Supervision(SupervisionMsg::ResetBudget { conversation, reply });
                let left = self.wiring.conversations.call(wait, ask).await?;
                left.ok_or(KernelError::NotFound("restart budget"))
            }
            _ => Err(KernelError::of_field(
                "path",
                format!("the restarts of {path} are counted by its supervisor: name that one, or an Engine"),
            )),
        }
    }
}
