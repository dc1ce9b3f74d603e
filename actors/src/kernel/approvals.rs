//! Requests for approvals as front ends see them: the open ones, and the decision about one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use annie_core::{
    approval::ApprovalVerdict,
    event::{Event, EventBody, Scope},
    ids::{ConversationId, Seq, TaskId},
    ports::{Before, StoreError, TaskRow, TaskState},
    turn::Approval,
};

use super::{Kernel, KernelError, PAGE_MAX};
use crate::{
    conversations::ConversationsMsg,
    engine::{Decide, NotDecided},
    wiring::Wiring,
};

/// Time limit for an Engine to answer a decision, in milliseconds.
const DECIDE_MS_MAX: u64 = 5_000;
/// Pages of one conversation's log that are searched for its open requests, from the newest on.
const LOG_PAGES_MAX: usize = 40;

/// A request for an approval that is open.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenApproval {
    /// The conversation.
    pub conversation: ConversationId,
    /// The task whose call waits.
    pub task: TaskId,
    /// The request.
    pub approval: Approval,
}

/// The open requests for approvals of these tasks, oldest first.
pub(crate) async fn open_approvals(
    wiring: &Wiring,
    scope: Scope,
    rows: &[TaskRow],
) -> Result<Vec<OpenApproval>, StoreError> {
    let mut tasks: BTreeMap<ConversationId, BTreeSet<TaskId>> = BTreeMap::new();
    // A message whose turn has not begun has no calls.
    for row in rows.iter().filter(|row| matches!(row.state, TaskState::Running | TaskState::Suspended)) {
        tasks.entry(row.conversation).or_default().insert(row.id);
    }
    let mut open = Vec::new();
    for (conversation, tasks) in tasks {
        for event in approval_events(wiring, scope.clone(), conversation, &tasks).await? {
            fold(&mut open, event);
        }
    }
    open.sort_by_key(|one| (one.approval.requested_at, one.task, one.approval.number));
    Ok(open)
}

/// The events about requests of these tasks, oldest first. The log is read backwards until the turns have begun.
async fn approval_events(
    wiring: &Wiring,
    scope: Scope,
    conversation: ConversationId,
    tasks: &BTreeSet<TaskId>,
) -> Result<Vec<Event>, StoreError> {
    let row = wiring.store.conversation(scope.clone(), conversation).await?;
    let mut end = row.map_or(0, |row| row.last_seq.0);
    let (mut found, mut unread) = (Vec::new(), tasks.clone());
    for _ in 0..LOG_PAGES_MAX {
        if end == 0 || unread.is_empty() {
            break;
        }
        let start = end.saturating_sub(u64::from(PAGE_MAX));
        let count = u32::try_from(end - start).unwrap_or(PAGE_MAX);
        let mut page = wiring.store.events(scope.clone(), conversation, Seq(start), count).await?;
        for event in page.iter().filter(|event| matches!(event.body, EventBody::TurnStarted { .. })) {
            unread.remove(&event.task);
        }
        let is_about =
            |body: &EventBody| matches!(body, EventBody::ApprovalRequested { .. } | EventBody::ApprovalDecided { .. });
        page.retain(|event| tasks.contains(&event.task) && is_about(&event.body));
        page.append(&mut found);
        (found, end) = (page, start);
    }
    Ok(found)
}

impl Kernel {
    /// The open requests for approvals of the newest open tasks, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn approvals(&self, scope: Scope) -> Result<Vec<OpenApproval>, KernelError> {
        let rows = self.wiring.store.tasks(scope.clone(), true, Before::NEWEST, PAGE_MAX).await?;
        Ok(open_approvals(&self.wiring, scope, &rows).await?)
    }

    /// Decides a request of a task: the one with this number, or the only open one. Returns the request with its verdict, which
    /// is stored.
    ///
    /// # Errors
    /// `NotFound` if there is no such task that the scope sees, or no such request; `Invalid` if several requests are open and
    /// no number is given, or the arguments or the reason do not fit; `Stale` if the request was decided before or has
    /// expired, or the task has ended; otherwise if the Engine does not answer.
    pub async fn decide_approval(
        &self,
        scope: Scope,
        task: TaskId,
        number: Option<u32>,
        verdict: ApprovalVerdict,
        by: &str,
    ) -> Result<OpenApproval, KernelError> {
        check_size(&verdict)?;
        let row = self.task(scope, task).await?;
        if row.state.is_ended() {
            let why = "the task has ended, and none of its calls waits for an approval any more";
            return Err(KernelError::Stale(why.to_owned()));
        }
        let decide = Decide { number, verdict, by: by.to_owned() };
        let (conversation, user) = (row.conversation, row.user.clone());
        let ask = |reply| ConversationsMsg::Decide { conversation, user, task, decide: Box::new(decide), reply };
        let decided = self.wiring.conversations.call(Duration::from_millis(DECIDE_MS_MAX), ask).await?;
        let approval = decided.map_err(|why| match why {
            NotDecided::NotFound => KernelError::NotFound("request for an approval"),
            NotDecided::Invalid(why) => KernelError::Invalid(why),
            NotDecided::Stale(why) => KernelError::Stale(why),
        })?;
        Ok(OpenApproval { conversation, task, approval })
    }
}

/// Adds a request, or removes one that is decided.
fn fold(open: &mut Vec<OpenApproval>, event: Event) {
    match event.body {
        EventBody::ApprovalRequested { number, intent, skill, arguments, mode, expires_at } => {
            let approval = Approval {
                number,
                agent: event.agent,
                intent,
                skill,
                arguments,
                mode,
                requested_at: event.at,
                expires_at,
                verdict: None,
                by: String::new(),
            };
            open.push(OpenApproval { conversation: event.conversation, task: event.task, approval });
        }
        EventBody::ApprovalDecided { intent, .. } => {
            open.retain(|one| one.task != event.task || one.approval.intent != intent);
        }
        // The caller passes no other kinds.
        EventBody::Received(_)
        | EventBody::Joined { .. }
        | EventBody::TurnStarted { .. }
        | EventBody::RoundBegan { .. }
        | EventBody::RoundNotBegun { .. }
        | EventBody::ModelReplied { .. }
        | EventBody::ModelFailed { .. }
        | EventBody::InterfaceChanged { .. }
        | EventBody::LoopDetected { .. }
        | EventBody::SkillStarted { .. }
        | EventBody::SkillFinished { .. }
        | EventBody::AgentStarted { .. }
        | EventBody::AgentReported { .. }
        | EventBody::AgentSteered { .. }
        | EventBody::SteeringTaken { .. }
        | EventBody::AgentStopRequested { .. }
        | EventBody::CancelRequested { .. }
        | EventBody::Decided { .. }
        | EventBody::ResultsGiven
        | EventBody::Resumed { .. }
        | EventBody::Suspended { .. }
        | EventBody::Continued { .. }
        | EventBody::Reprioritised { .. }
        | EventBody::DeadlinePassed { .. }
        | EventBody::Deferred { .. }
        | EventBody::Retried { .. }
        | EventBody::Ordered { .. }
        | EventBody::DeadLetterDue { .. }
        | EventBody::DeadLetterMoved { .. }
        | EventBody::Answered { .. }
        | EventBody::Failed { .. }
        | EventBody::Cancelled { .. }
        | EventBody::Copied(_)
        | EventBody::Compacted(_) => {}
    }
}

/// Refuses a decision whose texts are too long for the log and the model.
fn check_size(verdict: &ApprovalVerdict) -> Result<(), KernelError> {
    match verdict {
        ApprovalVerdict::Deny { reason } if reason.chars().count() > ApprovalVerdict::REASON_CHARS_MAX => {
            let max = ApprovalVerdict::REASON_CHARS_MAX;
            Err(KernelError::Invalid(format!("the reason has more than {max} characters: shorten it")))
        }
        ApprovalVerdict::Approve { arguments: Some(arguments), .. }
            if arguments.to_string().len() > ApprovalVerdict::ARGUMENTS_BYTES_MAX =>
        {
            let max = ApprovalVerdict::ARGUMENTS_BYTES_MAX;
            Err(KernelError::Invalid(format!("the arguments have more than {max} bytes: shorten them")))
        }
        ApprovalVerdict::Approve { .. }
        | ApprovalVerdict::Deny { .. }
        | ApprovalVerdict::Expire
        | ApprovalVerdict::Withdraw => Ok(()),
    }
}
