//! Operations for operators: show the tree, view an actor, stop, kill or restart it, hold the voice gate, show the queue.

use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed, time::Duration};

use annie_core::{
    hooks::OnFailure,
    ids::{ConversationId, Incarnation},
};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{Kernel, KernelError};
use crate::{
    breaker::{BreakerMsg, BreakersMsg},
    conversations::{ConversationsMsg, SupervisionMsg},
    observe::{Crash, NodeInfo, OperatedActor, Path, ask_view},
    pulse::PulseMinute,
    scheduler::{BackendLoad, GateGrant, GateMsg, GateRefusal, SchedulerMsg},
    supervise::stop_child,
};

/// Time limit for an actor to answer an operator, in milliseconds.
const ANSWER_MS_MAX: u64 = 2_000;

/// An operation of an operator on an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Stop it gracefully. An actor with work left is restarted by its parent; a sub-agent is reported as crashed.
    Stop,
    /// End it at once, as a fault would. This is not counted as a crash, and no budget is charged.
    Kill,
    /// Stop it gracefully and start it again: the same as [`Operation::Stop`] for all actors that are restarted.
    Restart,
}

impl Operation {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Kill => "kill",
            Self::Restart => "restart",
        }
    }
}

/// The health of the kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Health {
    /// Whether the kernel accepts messages.
    pub ready: bool,
    /// The problems found.
    pub problems: Vec<String>,
    /// Extensions that are not running. The kernel accepts messages without them.
    pub warnings: Vec<String>,
    /// The number of running actors.
    pub actors: usize,
    /// Crashes since the start.
    pub crashes_total: u64,
}

impl Kernel {
    /// The hooks outside the kernel that are disabled because they failed again and again, a text for each.
    #[must_use]
    pub fn disabled_hooks(&self) -> Vec<String> {
        let on_failure =
            |name: &str| self.wiring.hooks.outside_named(name).map_or(OnFailure::Refuse, |hook| hook.on_failure);
        self.wiring.hook_breakers.disabled(self.now(), on_failure)
    }

    /// All actors, sorted by path. Answers even while actors are busy.
    #[must_use]
    pub fn tree(&self) -> Vec<NodeInfo> {
        self.system.directory.list(self.wiring.env.clock.as_ref())
    }

    /// How many actors of each kind are running, for all kinds seen so far. Counted from the directory, so no counter must
    /// be maintained.
    #[must_use]
    pub fn actors_by_kind(&self) -> BTreeMap<&'static str, usize> {
        self.system.directory.count_by_kind()
    }

    /// How much of each backend is in use.
    #[must_use]
    pub fn backend_loads(&self) -> Vec<BackendLoad> {
        self.wiring.leases.loads()
    }

    /// One actor, with its own view of its state. The view is `None` if the actor is too busy to answer.
    ///
    /// # Errors
    /// If no actor runs at this path.
    pub async fn view(&self, path: &str) -> Result<(NodeInfo, Option<Value>), KernelError> {
        let path = Path::parse(path);
        let directory = &self.system.directory;
        let info = directory.info(&path, self.wiring.env.clock.as_ref()).ok_or(KernelError::NotFound("actor"))?;
        let view = ask_view(directory, &path, Duration::from_millis(ANSWER_MS_MAX)).await;
        Ok((info, view))
    }

    /// One actor, without its view. Answers even while the actor is busy.
    ///
    /// # Errors
    /// If no actor runs at this path.
    pub fn actor(&self, path: &str) -> Result<NodeInfo, KernelError> {
        let info = self.system.directory.info(&Path::parse(path), self.wiring.env.clock.as_ref());
        info.ok_or(KernelError::NotFound("actor"))
    }

    /// The last crashes, oldest first.
    #[must_use]
    pub fn crashes(&self) -> Vec<Crash> {
        self.system.directory.crashes()
    }

    /// The last ends of actors that operators requested, oldest first.
    #[must_use]
    pub fn operated(&self) -> Vec<OperatedActor> {
        self.system.directory.operations()
    }

    /// The last 60 minutes, oldest first.
    #[must_use]
    pub fn last_hour(&self) -> Vec<PulseMinute> {
        self.system.directory.pulse.last_hour(self.now())
    }

    /// Stops, kills or restarts the given incarnation of an actor.
    ///
    /// # Errors
    /// If no actor runs at this path, or another incarnation than expected does.
    pub async fn operate(
        &self,
        path: &str,
        expected: Option<Incarnation>,
        operation: Operation,
        by: &str,
    ) -> Result<NodeInfo, KernelError> {
        let path = Path::parse(path);
        let directory = &self.system.directory;
        let entry = directory.get(&path).ok_or(KernelError::NotFound("actor"))?;
        let info = directory.info(&path, self.wiring.env.clock.as_ref()).ok_or(KernelError::NotFound("actor"))?;
        if let Some(expected) = expected
            && expected != entry.incarnation
        {
            return Err(KernelError::Stale(format!(
                "{path} is now incarnation {}, not {expected}: look again before you act",
                entry.incarnation
            )));
        }
        tracing::warn!(%path, incarnation = entry.incarnation.0, ?operation, by, "an operator acts on an actor");
        metrics::counter!("annie_operations_total").increment(1);
        directory.operated(OperatedActor {
            path: path.clone(),
            incarnation: entry.incarnation,
            kind: entry.kind,
            operation: operation.as_str(),
            by: by.to_owned(),
            at: self.now(),
        });
        let wait = Duration::from_secs(5);
        entry.meter.is_asked_to_end.store(true, Relaxed);
        match operation {
            Operation::Kill => {
                entry.kill();
                // An actor that blocks its thread ends when it returns.
                let _ = entry.cell.wait(Some(wait)).await;
            }
            Operation::Stop | Operation::Restart => stop_child(&entry.cell, wait).await,
        }
        Ok(info)
    }

    /// Releases a conversation from quarantine.
    ///
    /// # Errors
    /// If the conversation is not in quarantine.
    pub async fn resume_conversation(&self, conversation: ConversationId) -> Result<(), KernelError> {
        let wait = Duration::from_millis(ANSWER_MS_MAX);
        let was_ordered = self.release_quarantine(conversation).await?;
        let there = self
            .wiring
            .conversations
            .call(wait, |reply| ConversationsMsg::Supervision(SupervisionMsg::Resume { conversation, reply }))
            .await?;
        if there || was_ordered { Ok(()) } else { Err(KernelError::NotFound("quarantined conversation")) }
    }

    /// Closes a skill's breaker. A breaker that was open before the last start runs only after its first use, so it is
    /// started first.
    ///
    /// # Errors
    /// If the skill has no breaker yet, or its breaker does not start.
    pub async fn reset_breaker(&self, skill: &str) -> Result<(), KernelError> {
        let was_held = self.release_breaker(skill).await?;
        let path = Path::root().child("breakers").child(&format!("breaker:{skill}"));
        if self.wiring.breakers.sibling::<BreakerMsg>(path).cast(BreakerMsg::Reset).is_ok() {
            return Ok(());
        }
        if self.wiring.store.breaker(skill.to_owned()).await?.is_none() {
            return if was_held { Ok(()) } else { Err(KernelError::NotFound("breaker")) };
        }
        let ask = |reply| BreakersMsg::Ensure { skill: skill.to_owned(), reply };
        let woken = self.wiring.breakers.call(Duration::from_millis(ANSWER_MS_MAX), ask).await?;
        let breaker = woken.ok_or_else(|| KernelError::Unavailable("the breaker dies too often".to_owned()))?;
        Ok(breaker.cast(BreakerMsg::Reset)?)
    }

    /// Closes the voice gate of a backend (the first if empty) for everything but voice, or renews it.
    ///
    /// # Errors
    /// If there is no such backend, or another holder holds its gate.
    pub async fn hold_gate(&self, backend: &str, holder: &str, ttl_ms: u64) -> Result<GateGrant, KernelError> {
        let ask = |reply: oneshot::Sender<Result<GateGrant, GateRefusal>>| {
            SchedulerMsg::Gate(GateMsg::HoldGate {
                backend: backend.to_owned(),
                holder: holder.to_owned(),
                ttl_ms,
                reply,
            })
        };
        let answer = self.wiring.scheduler.call(Duration::from_millis(ANSWER_MS_MAX), ask).await?;
        answer.map_err(|e| match e {
            GateRefusal::UnknownBackend => KernelError::NotFound("backend"),
            held @ GateRefusal::Held { .. } => KernelError::Stale(held.to_string()),
        })
    }

    /// Opens the voice gate. False if this holder did not hold it.
    ///
    /// # Errors
    /// If the scheduler does not answer.
    pub async fn release_gate(&self, backend: &str, holder: &str) -> Result<bool, KernelError> {
        let ask = |reply| {
            SchedulerMsg::Gate(GateMsg::ReleaseGate { backend: backend.to_owned(), holder: holder.to_owned(), reply })
        };
        Ok(self.wiring.scheduler.call(Duration::from_millis(ANSWER_MS_MAX), ask).await?)
    }

    /// The waiting tasks, with backend and reason, and the running rounds.
    ///
    /// # Errors
    /// If the scheduler does not answer.
    pub async fn queue(&self) -> Result<Value, KernelError> {
        let ask = |reply| SchedulerMsg::List { reply };
        Ok(self.wiring.scheduler.call(Duration::from_millis(ANSWER_MS_MAX), ask).await?)
    }

    /// Checks the store and the permanent actors.
    pub async fn health(&self) -> Health {
        let mut problems = Vec::new();
        if self.draining.load(Relaxed) {
            problems.push("shutting down".to_owned());
        }
        if self.is_drained() {
            // This text is public; the status has the operator and the reason.
            problems.push("drained by an operator".to_owned());
        }
        if let Some(reason) = self.ended.borrow().clone() {
            problems.push(format!("the root has ended: {reason}"));
        }
        match tokio::time::timeout(Duration::from_millis(ANSWER_MS_MAX), self.wiring.store.ping()).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => problems.push(e.to_string()),
            Err(_) => problems.push("the store does not answer".to_owned()),
        }
        let not_running = |path: String| format!("{path} is not running");
        problems.extend(self.missing().map(not_running));
        let directory = &self.system.directory;
        Health {
            ready: problems.is_empty(),
            problems,
            warnings: self.missing_extensions().map(not_running).collect(),
            actors: directory.len(),
            crashes_total: directory.crashes_total(),
        }
    }
}
