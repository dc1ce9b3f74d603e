//! Orders about tasks in plain words: first understood and recorded, then carried out, as often as it takes: doing it twice
//! is the same as doing it once.

use std::time::Duration;

use annie_core::{
    event::{OrderVerb, Priority, Scope},
    ids::{ConversationId, TaskId, UserId},
    jobs::{JobRequest, Resolution, Style, Verb, resolve, say, understand},
    turn::Meant,
};

use crate::{
    conversations::ConversationsMsg,
    engine::{Control, Controlled},
    jobs,
    tasks::caught,
    wiring::Wiring,
};

/// How long an Engine may take to do something with its task, in milliseconds.
const CONTROL_MS_MAX: u64 = 5_000;
/// How long the tasks may take to be read, in milliseconds.
const LINES_MS_MAX: u64 = 10_000;
/// How often an Engine is asked that dies over it.
const TRIES_MAX: u32 = 5;

/// What an order means now.
pub(crate) async fn understand_order(
    wiring: &Wiring,
    user: &UserId,
    conversation: ConversationId,
    task: TaskId,
    (text, source): (&str, &str),
) -> Meant {
    let told = |text: String| Meant { verb: OrderVerb::Tell, targets: Vec::new(), text };
    let Some(command) = understand(text) else {
        return told("I did not understand what to do with which task.".to_owned());
    };
    let wait = Duration::from_millis(LINES_MS_MAX);
    let lines = match tokio::time::timeout(wait, caught(jobs::lines(wiring, user, Some(task)))).await {
        Ok(Ok(Ok(lines))) => lines,
        Ok(Ok(Err(error))) => return told(format!("I cannot see my tasks right now: {error}.")),
        Ok(Err(panic)) => return told(format!("I cannot see my tasks right now: {panic}.")),
        Err(_) => return told("I cannot see my tasks right now: the store does not answer.".to_owned()),
    };
    let style = if source == "voice" { Style::Short } else { Style::Detailed };
    let JobRequest::Act { verb, target } = &command.request else {
        return told(say(&command, &Resolution::None, &lines, style));
    };
    let found = resolve(target, &lines, *verb, Some(conversation));
    let text = say(&command, &found, &lines, style);
    let targets = match found {
        Resolution::One(task) => vec![task],
        Resolution::All(tasks) => tasks,
        Resolution::Several(_) | Resolution::Already(_) | Resolution::None => return told(text),
    };
    let verb = match verb {
        Verb::First => OrderVerb::First,
        Verb::Urgent => OrderVerb::Urgent,
        Verb::Cancel => OrderVerb::Cancel,
        Verb::Pause => OrderVerb::Suspend,
        Verb::Resume => OrderVerb::Continue,
    };
    Meant { verb, targets, text }
}

/// Does it, and says what the user is told.
pub(crate) async fn carry_out_order(
    wiring: &Wiring,
    user: &UserId,
    verb: OrderVerb,
    targets: &[TaskId],
    text: String,
    by: &str,
) -> String {
    let controls: &[Control] = match verb {
        OrderVerb::Tell => &[],
        OrderVerb::First => &[Control::Reprioritise(Priority::High), Control::Continue],
        OrderVerb::Urgent => &[Control::Reprioritise(Priority::High)],
        OrderVerb::Cancel => &[Control::Cancel],
        OrderVerb::Suspend => &[Control::Suspend],
        OrderVerb::Continue => &[Control::Continue],
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

/// Does something with one task. A task that has ended meanwhile is no failure.
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
    tracing::warn!(%task, ?what, why, "an order could not be carried out");
    Err(why)
}
