//! Running sub-agents as front ends see them: the list, and the control of one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use annie_core::{
    event::Scope,
    ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    plan::{Node, NodeState},
    ports::{Before, TaskRow, TaskState},
    time::Micros,
    turn::{Conversation, Turn},
};

use super::{Kernel, KernelError, PAGE_MAX};
use crate::{
    conversations::ConversationsMsg,
    engine::{AgentControl, NotDecided},
};

/// Time limit for an Engine to answer a control, in milliseconds.
const CONTROL_MS_MAX: u64 = 5_000;
/// The longest reason for stopping an agent, in characters.
const REASON_CHARS_MAX: usize = 500;
/// Conversations whose agents one list shows.
const CONVERSATIONS_MAX: usize = 50;
/// The most events that are read for the agents of one conversation, after its snapshot.
const EVENTS_MAX: u64 = 20_000;

/// A sub-agent that has not reported, as the log shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAgent {
    /// The conversation.
    pub conversation: ConversationId,
    /// The task of its turn.
    pub task: TaskId,
    /// Its name, unique in its turn.
    pub agent: AgentId,
    /// The title that its dispatch gave it; empty if there is none.
    pub label: String,
    /// Its mission.
    pub mission: String,
    /// When it started; absent while it waits for other agents or for calls.
    pub since: Option<Micros>,
    /// The number of its round.
    pub round: u32,
    /// Its skill calls so far.
    pub calls_used: u32,
    /// The maximum of its skill calls.
    pub calls_max: u32,
    /// How long it may work, in milliseconds.
    pub ms_max: u64,
    /// The backends that may run its rounds, the preferred one first; empty means the first configured one.
    pub backends: Vec<String>,
    /// How many texts were added to its mission.
    pub steered: u32,
}

impl OpenAgent {
    fn of(conversation: ConversationId, turn: &Turn, node: &Node) -> Self {
        let run = turn.agents.runs.get(&node.spec.agent);
        let options = &node.spec.options;
        let calls_max = if node.granted > 0 { node.granted } else { node.spec.max_tool_calls };
        Self {
            conversation,
            task: turn.task,
            agent: node.spec.agent.clone(),
            label: options.label.clone(),
            mission: node.spec.mission.clone(),
            since: match node.state {
                NodeState::Running { since, .. } => Some(since),
                NodeState::Pending | NodeState::Reported(_) => None,
            },
            round: run.map_or(0, |run| run.round),
            calls_used: run.map_or(0, |run| run.calls_used),
            calls_max,
            ms_max: options.timeout_ms.unwrap_or_else(|| turn.limits.agent_ms_max(calls_max)),
            backends: if options.backends.is_empty() { turn.route.clone() } else { options.backends.clone() },
            steered: u32::try_from(node.steering.len()).unwrap_or(u32::MAX),
        }
    }
}

impl Kernel {
    /// The sub-agents without a report of the open tasks, or of one conversation, in the order of their dispatch. The
    /// conversations that changed last come first; those beyond `CONVERSATIONS_MAX` are left out.
    ///
    /// # Errors
    /// If the scope sees no such conversation, or the store fails.
    pub async fn agents(
        &self,
        scope: Scope,
        conversation: Option<ConversationId>,
    ) -> Result<Vec<OpenAgent>, KernelError> {
        if let Some(id) = conversation {
            self.conversation(scope.clone(), id).await?;
        }
        let mut running: BTreeMap<ConversationId, (UserId, BTreeSet<TaskId>)> = BTreeMap::new();
        let mut before = Before::NEWEST;
        // All of them: a task that runs may be older than a long queue.
        loop {
            let rows = self.wiring.store.tasks(scope.clone(), true, before, PAGE_MAX).await?;
            let is_last = rows.len() < PAGE_MAX as usize;
            before = rows.last().map_or(before, TaskRow::page_start);
            for row in rows {
                let is_wanted = conversation.is_none_or(|id| id == row.conversation);
                // A message whose turn has not begun has no agents.
                if is_wanted && matches!(row.state, TaskState::Running | TaskState::Suspended) {
                    running.entry(row.conversation).or_insert_with(|| (row.user, BTreeSet::new())).1.insert(row.id);
                }
            }
            if is_last {
                break;
            }
        }
        let mut newest = Vec::new();
        for (id, (user, tasks)) in running {
            let row = self.wiring.store.conversation(scope.clone(), id).await?;
            newest.extend(row.map(|row| (row.updated_at, id, user, tasks)));
        }
        newest.sort_unstable_by_key(|(updated_at, id, ..)| std::cmp::Reverse((*updated_at, *id)));
        let mut found = Vec::new();
        for (_, id, user, tasks) in newest.into_iter().take(CONVERSATIONS_MAX) {
            let state = self.present_state(scope.clone(), id, &user).await?;
            for turn in state.turns.iter().filter(|turn| tasks.contains(&turn.task)) {
                found.extend(turn.agents.plan.unreported().map(|node| OpenAgent::of(id, turn, node)));
            }
        }
        Ok(found)
    }

    /// The state of a conversation according to its newest snapshot and the events behind it.
    async fn present_state(
        &self,
        scope: Scope,
        id: ConversationId,
        user: &UserId,
    ) -> Result<Conversation, KernelError> {
        let snapshot = self.wiring.store.snapshot(id).await?;
        let kept = snapshot.and_then(|kept| Conversation::of_snapshot(&kept, id, user).ok());
        let mut state = kept.unwrap_or_else(|| Conversation::new(id, user.clone()));
        let first = state.seq.0;
        while state.seq.0 < first + EVENTS_MAX {
            let page = self.wiring.store.events(scope.clone(), id, Seq(state.seq.0), PAGE_MAX).await?;
            page.iter().for_each(|event| state.apply(event));
            if page.len() < PAGE_MAX as usize {
                break;
            }
        }
        Ok(state)
    }

    /// Adds a text to the mission of a sub-agent, which it sees in its next round. The text is stored. Returns the agent's task.
    /// `task` is needed only if several tasks of the conversation have an agent with this name.
    ///
    /// # Errors
    /// `NotFound` if the scope sees no such conversation, or there is no such agent; `Invalid` if the text is empty or too long, a
    /// guard of input finds something in it, or the agent got too many texts; `Stale` if it has ended; otherwise if the Engine does not answer.
    pub async fn steer_agent(
        &self,
        scope: Scope,
        conversation: ConversationId,
        agent: (&str, Option<TaskId>),
        text: String,
        by: &str,
    ) -> Result<TaskId, KernelError> {
        // Like a message in which a guard finds something, such a text steers nothing.
        if let Some(finding) = self.wiring.limits.guards.examine_message(&text).first() {
            let why = format!("the guard {} refuses the text: {}", finding.guard, finding.reason);
            return Err(KernelError::Invalid(why));
        }
        self.control_agent(scope, conversation, agent, (Some(text), String::new()), by).await
    }

    /// Ends one sub-agent. The other agents of its turn continue, and the orchestrator receives a report that says so. Returns the
    /// agent's task.
    ///
    /// # Errors
    /// As [`Self::steer_agent`]; `Invalid` if the reason is too long.
    pub async fn stop_agent(
        &self,
        scope: Scope,
        conversation: ConversationId,
        agent: (&str, Option<TaskId>),
        reason: String,
        by: &str,
    ) -> Result<TaskId, KernelError> {
        if reason.chars().count() > REASON_CHARS_MAX {
            let why = format!("the reason has more than {REASON_CHARS_MAX} characters: shorten it");
            return Err(KernelError::Invalid(why));
        }
        self.control_agent(scope, conversation, agent, (None, reason), by).await
    }

    async fn control_agent(
        &self,
        scope: Scope,
        conversation: ConversationId,
        (agent, task): (&str, Option<TaskId>),
        (text, reason): (Option<String>, String),
        by: &str,
    ) -> Result<TaskId, KernelError> {
        let row = self.conversation(scope, conversation).await?;
        let agent = AgentId::sub(agent.trim()).map_err(|_| KernelError::NotFound("agent"))?;
        let reason = reason.trim().trim_end_matches('.').to_owned();
        let asked = Box::new(AgentControl { agent, task, text, reason, by: by.to_owned() });
        let ask = |reply| ConversationsMsg::ControlAgent { conversation, user: row.user, asked, reply };
        let done = self.wiring.conversations.call(Duration::from_millis(CONTROL_MS_MAX), ask).await?;
        done.map_err(|why| match why {
            NotDecided::NotFound => KernelError::NotFound("agent"),
            NotDecided::Invalid(why) => KernelError::Invalid(why),
            NotDecided::Stale(why) => KernelError::Stale(why),
        })
    }
}
