//! A user's open tasks with what the queue knows of them: what job control speaks about.

use std::time::Duration;

use annie_core::{
    event::Scope,
    ids::{TaskId, UserId},
    jobs::JobLine,
    ports::{Before, StoreError, TaskRow, TaskState},
    time::Micros,
};

use crate::{
    scheduler::{SchedulerMsg, Stand, StandState},
    wiring::Wiring,
};

/// Open tasks that are looked at.
const JOBS_MAX: u32 = 200;
/// How long the scheduler may take to say how they stand, in milliseconds.
const STAND_MS_MAX: u64 = 1_000;

/// The user's open tasks: what runs, then what waits in the order of the queue, then what is held back. Orders about tasks
/// are no tasks to speak about.
///
/// # Errors
/// If the store fails. A scheduler that does not answer only leaves places and estimates out.
pub(crate) async fn lines(wiring: &Wiring, user: &UserId, except: Option<TaskId>) -> Result<Vec<JobLine>, StoreError> {
    let scope = Scope::User(user.clone());
    let mut rows = wiring.store.tasks(scope, true, Before::NEWEST, JOBS_MAX).await?;
    rows.retain(|row| Some(row.id) != except && !row.is_order);
    let tasks: Vec<TaskId> = rows.iter().map(|row| row.id).collect();
    let wait = Duration::from_millis(STAND_MS_MAX);
    let stands = wiring.scheduler.call(wait, |reply| SchedulerMsg::Stand { tasks: tasks.clone(), reply }).await;
    let stands = stands.unwrap_or_default();
    let now = wiring.env.now();
    let mut lines: Vec<JobLine> = rows
        .into_iter()
        .map(|row| {
            let stand = stands.iter().find(|s| s.task == row.id);
            line(row, stand, now)
        })
        .collect();
    lines.sort_by_key(|l| (rank(l), l.position.unwrap_or(usize::MAX), l.task));
    for (number, line) in (1..).zip(&mut lines) {
        line.number = number;
    }
    Ok(lines)
}

fn rank(line: &JobLine) -> u8 {
    match line.state {
        _ if line.is_suspended() => 2,
        TaskState::Running => 0,
        _ => 1,
    }
}

fn line(row: TaskRow, stand: Option<&Stand>, now: Micros) -> JobLine {
    let suspended_at = (row.state == TaskState::Suspended).then_some(row.held_at.unwrap_or(row.received_at));
    // Its turn has begun, and what it begins with waits: for its user nothing runs yet.
    let asks = stand.is_some_and(|s| matches!(s.state, StandState::Waiting | StandState::Delayed));
    let waits = asks && stand.is_some_and(|s| s.rounds_done == 0);
    let state = match (row.state, row.started_at) {
        (TaskState::Suspended, Some(_)) => TaskState::Running,
        (TaskState::Suspended, None) => TaskState::Queued,
        (TaskState::Running, _) if waits => TaskState::Queued,
        (state, _) => state,
    };
    let runs = stand.is_some_and(|s| matches!(s.state, StandState::Running | StandState::Between));
    let round = stand.filter(|s| s.rounds_done > 0 || runs);
    JobLine {
        number: 0,
        task: row.id,
        title: row.title,
        state,
        suspended_at,
        is_put_off: row.started_at.is_some() && row.not_before.is_some_and(|at| at > now),
        priority: row.priority,
        position: stand.and_then(|s| s.position),
        round: round.and_then(|s| s.progress),
        start_in_ms: stand.and_then(|s| s.start_in_ms),
        running_ms: row.started_at.filter(|_| !waits).map(|at| now.since_ms(at)),
        conversation: row.conversation,
    }
}
