//! A user's open tasks with their status in the queue, for job commands.

use std::time::Duration;

use annie_core::{
    event::Scope,
    ids::{TaskId, UserId},
    jobs::JobLine,
    ports::{Before, StoreError, TaskRow, TaskState},
    time::Micros,
};

use crate::{
    kernel::open_approvals,
    scheduler::{SchedulerMsg, TaskStatus, TaskStatusState},
    wiring::Wiring,
};

/// Open tasks that are read.
const JOBS_MAX: u32 = 200;
/// Time limit for the Scheduler to report task statuses, in milliseconds.
const STATUS_MS_MAX: u64 = 1_000;

/// The user's open tasks: running ones first, then waiting ones in the order of the queue, then suspended ones. A deferred
/// task is a waiting one without a position. Job commands are not listed.
///
/// # Errors
/// If the store fails. If the Scheduler does not answer, queue positions and estimates are missing.
pub(crate) async fn lines(wiring: &Wiring, user: &UserId, except: Option<TaskId>) -> Result<Vec<JobLine>, StoreError> {
    let scope = Scope::User(user.clone());
    let mut rows = wiring.store.tasks(scope, true, Before::NEWEST, JOBS_MAX).await?;
    rows.retain(|row| Some(row.id) != except && !row.is_job_command);
    let tasks: Vec<TaskId> = rows.iter().map(|row| row.id).collect();
    let wait = Duration::from_millis(STATUS_MS_MAX);
    let statuses = wiring.scheduler.call(wait, |reply| SchedulerMsg::TaskStatus { tasks: tasks.clone(), reply }).await;
    let statuses = statuses.unwrap_or_default();
    // A task whose call waits for a person is in no queue.
    let is_queued = |id: TaskId| {
        let queued = |s: &&TaskStatus| s.task == id && s.state != TaskStatusState::Between;
        statuses.iter().find(queued).is_some()
    };
    let unqueued: Vec<TaskRow> = rows.iter().filter(|row| !is_queued(row.id)).cloned().collect();
    let open = open_approvals(wiring, Scope::User(user.clone()), &unqueued).await?;
    let now = wiring.env.now();
    let mut lines: Vec<JobLine> = rows
        .into_iter()
        .map(|row| {
            let status = statuses.iter().find(|s| s.task == row.id);
            let awaits_approval = open.iter().any(|one| one.task == row.id);
            JobLine { awaits_approval, ..line(row, status, now) }
        })
        .collect();
    lines.sort_by_key(|l| (rank(l), l.position.unwrap_or(usize::MAX), l.task));
    for (number, line) in (1..).zip(&mut lines) {
        line.number = number;
    }
    Ok(lines)
}

fn rank(line: &JobLine) -> u8 {
    match () {
        () if line.is_suspended() => 2,
        () if line.is_running() => 0,
        () => 1,
    }
}

fn line(row: TaskRow, status: Option<&TaskStatus>, now: Micros) -> JobLine {
    let suspended_at = (row.state == TaskState::Suspended).then_some(row.held_at.unwrap_or(row.received_at));
    // The turn has begun, but its first round still waits: to the user the task is not running yet.
    let is_waiting = status.is_some_and(|s| matches!(s.state, TaskStatusState::Waiting | TaskStatusState::Delayed));
    let is_first_round_waiting = is_waiting && status.is_some_and(|s| s.rounds_done == 0);
    let state = match (row.state, row.started_at) {
        (TaskState::Suspended, Some(_)) => TaskState::Running,
        (TaskState::Suspended, None) => TaskState::Queued,
        (TaskState::Running, _) if is_first_round_waiting => TaskState::Queued,
        (state, _) => state,
    };
    let runs = status.is_some_and(|s| matches!(s.state, TaskStatusState::Running | TaskStatusState::Between));
    let round = status.filter(|s| s.rounds_done > 0 || runs);
    let is_deferred = row.started_at.is_some() && row.not_before.is_some_and(|at| at > now);
    let is_at_work = runs && suspended_at.is_none() && !is_deferred;
    let ends_in_ms_max = status.filter(|_| is_at_work).and_then(|s| {
        let (now, max) = s.progress?;
        Some(s.round_ms.saturating_mul(u64::from(max.saturating_sub(now)) + 1))
    });
    // A suspended job waits for its user.
    let has_model_failed = is_deferred && suspended_at.is_none() && status.is_some_and(|s| s.has_model_failed);
    JobLine {
        number: 0,
        task: row.id,
        title: row.title,
        state,
        suspended_at,
        is_deferred,
        awaits_approval: false,
        has_model_failed,
        priority: row.priority,
        position: status.and_then(|s| s.position),
        round: round.and_then(|s| s.progress),
        start_in_ms: status.and_then(|s| s.start_in_ms),
        deferred_until: row.not_before.filter(|at| *at > now),
        ends_in_ms_max,
        running_ms: row.started_at.filter(|_| !is_first_round_waiting && !is_deferred).map(|at| now.since_ms(at)),
        conversation: row.conversation,
    }
}
