//! Job commands in plain words: parsed and recorded first, then carried out. Carrying out is repeated after a failure,
//! because it is idempotent.

use std::time::Duration;

use annie_core::{
    event::{JobVerb, Priority, Scope},
    ids::{ConversationId, TaskId, UserId},
    jobs::{JobRequest, Resolution, Style, Verb, resolve, say, understand},
    reminder,
    turn::Meant,
};

use crate::{
    conversations::ConversationsMsg,
    engine::{Control, Controlled},
    jobs,
    tasks::caught,
    wiring::Wiring,
};

/// Time limit for an Engine to answer a control, in milliseconds.
const CONTROL_MS_MAX: u64 = 5_000;
/// Time limit for reading the user's tasks, in milliseconds.
const LINES_MS_MAX: u64 = 10_000;
/// Attempts per task, when the Engine dies or does not answer.
const TRIES_MAX: u32 = 5;

/// The answer to the message of a reminder, or of the report of a forked task: the text that it carries.
pub(crate) fn answer_carried_by(message: &str) -> Meant {
    let (_, text) = reminder::parts(message);
    Meant { verb: JobVerb::Tell, targets: Vec::new(), text: text.to_owned() }
}

/// Resolves what a job command means at this time.
pub(crate) async fn understand_job_command(
    wiring: &Wiring,
    user: &UserId,
    conversation: ConversationId,
    task: TaskId,
    (text, source): (&str, &str),
) -> Meant {
    let answer_only = |text: String| Meant { verb: JobVerb::Tell, targets: Vec::new(), text };
    let Some(command) = understand(text) else {
        return answer_only("I did not understand what to do with which task.".to_owned());
    };
    let wait = Duration::from_millis(LINES_MS_MAX);
    let lines = match tokio::time::timeout(wait, caught(jobs::lines(wiring, user, Some(task)))).await {
        Ok(Ok(Ok(lines))) => lines,
        Ok(Ok(Err(error))) => return answer_only(format!("I cannot see my tasks right now: {error}.")),
        Ok(Err(panic)) => return answer_only(format!("I cannot see my tasks right now: {panic}.")),
        Err(_) => return answer_only("I cannot see my tasks right now: the store does not answer.".to_owned()),
    };
    let style = if source == "voice" { Style::Short } else { Style::Detailed };
    let JobRequest::Act { verb, target } = &command.request else {
        return answer_only(say(&command, &Resolution::None, &lines, style));
    };
    let found = resolve(target, &lines, *verb, Some(conversation));
    let text = say(&command, &found, &lines, style);
    let targets = match found {
        Resolution::One(task) => vec![task],
        Resolution::All(tasks) => tasks,
        Resolution::Several(_) | Resolution::Already(_) | Resolution::None => return answer_only(text),
    };
    let verb = match verb {
        Verb::First => JobVerb::First,
        Verb::Urgent => JobVerb::Urgent,
        Verb::Cancel => JobVerb::Cancel,
        Verb::Pause => JobVerb::Suspend,
        Verb::Resume => JobVerb::Continue,
    };
    Meant { verb, targets, text }
}

/// Carries out a job command and returns the answer to the user.
pub(crate) async fn run_job_command(
    wiring: &Wiring,
    user: &UserId,
    verb: JobVerb,
    targets: &[TaskId],
    text: String,
    by: &str,
) -> String {
    let controls: &[Control] = match verb {
        JobVerb::Tell => &[],
        JobVerb::First => &[Control::Reprioritise(Priority::High), Control::Continue],
        JobVerb::Urgent => &[Control::Reprioritise(Priority::High)],
        JobVerb::Cancel => &[Control::Cancel],
        JobVerb::Suspend => &[Control::Suspend],
        JobVerb::Continue => &[Control::Continue],
    };
    let mut failed = 0;
    for task in targets {
        for what in controls {
            if control(wiring, user, *task, *what, by).await.is_err() {
                failed += 1;
                break;
            }
        }
    }
    match (failed, targets.len()) {
        (0, _) => text,
        (_, 1) => "I could not do that: the task does not answer.".to_owned(),
        (failed, all) => format!("{text}\n\nThat did not work for {failed} of {all}: they do not answer."),
    }
}

/// Applies a control to one task. It is no failure if the task has ended meanwhile.
async fn control(wiring: &Wiring, user: &UserId, task: TaskId, what: Control, by: &str) -> Result<(), String> {
    let mut why = String::new();
    for attempt in 0..TRIES_MAX {
        if attempt > 0 {
            tokio::time::sleep(Duration::from_millis(50 << attempt)).await;
        }
        let row = match caught(wiring.store.task(Scope::User(user.clone()), task)).await {
            Ok(Ok(Some(row))) => row,
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => {
                why = error.to_string();
                continue;
            }
            Err(panic) => {
                why = panic;
                continue;
            }
        };
        if row.state.is_ended() {
            return Ok(());
        }
        let ask = |reply| ConversationsMsg::Control {
            conversation: row.conversation,
            user: row.user.clone(),
            task,
            control: what,
            by: by.to_owned(),
            reply,
            takes_over: true,
        };
        match wiring.conversations.call(Duration::from_millis(CONTROL_MS_MAX), ask).await {
            Ok(Controlled::Done | Controlled::TooLate) => return Ok(()),
            Err(error) => why = error.to_string(),
        }
    }
    tracing::warn!(%task, ?what, why, "a job command could not be carried out");
    Err(why)
}
