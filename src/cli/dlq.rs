//! `annie dlq`: the dead letters of a server.

use annie_core::{dead_letter::DeadLetterState, event::Priority, ids::TaskId};
use serde_json::{Map, Value, json};

use super::{
    args::{DeadLetterFilterArgs, DeadLetters, OneOrManyDeadLetters},
    client::{Client, encoded},
    console::{clipped, tame},
    failure::{Exit, Failure},
    input::Input,
    listing::{Listing, lines},
    site::Site,
};
use crate::system;

pub(super) const LIST: Listing = Listing {
    command: "dlq list",
    rows: "dead_letters",
    columns: &[
        ("task", "task_id"),
        ("state", "state"),
        ("failed", "failed_at"),
        ("retry at", "retry_at"),
        ("error", "error"),
        ("message", "title"),
    ],
};

/// `annie dlq`
///
/// # Errors
/// If no server runs, or there is no such dead letter.
pub async fn run(site: &Site, command: DeadLetters) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        DeadLetters::List { state, which, page } => {
            let mut query = query_of(&which);
            query.push(("limit", page.limit.to_string()));
            query.extend(state.map(|state| ("state", DeadLetterState::from(state).as_str().to_owned())));
            query.extend(page.next.map(|next| ("next", next)));
            let query: Vec<String> = query.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
            let answer = client.get(&format!("{}?{}", LIST.path(), query.join("&"))).await?;
            LIST.print(site, &answer, "no dead letters")
        }
        DeadLetters::Show { task, user } => show(site, &client.speaking_for(user)?, task).await,
        DeadLetters::Retry(OneOrManyDeadLetters { task: Some(task), filter, .. }) => {
            let client = client.speaking_for(filter.user)?;
            let answer = client.post(&format!("/api/v1/dead-letters/{task}/retry"), &json!({})).await?;
            let by = text(&answer, "task_id");
            let how = if answer["repeated"] == true { "a retry is under way already" } else { "it is retried" };
            print(site, &answer, &format!("{how}, as {by}"))
        }
        DeadLetters::Discard(OneOrManyDeadLetters { task: Some(task), filter, .. }) => {
            let client = client.speaking_for(filter.user)?;
            let answer = client.post(&format!("/api/v1/dead-letters/{task}/discard"), &json!({})).await?;
            let is_done = answer["discarded"] == true;
            print(site, &answer, if is_done { "it is discarded" } else { "it was not waiting any more" })
        }
        DeadLetters::Retry(options) => many(site, &client, "retry", &options).await,
        DeadLetters::Discard(options) => many(site, &client, "discard", &options).await,
    }
}

/// The filter as query parameters. Ages are relative to the current time.
fn query_of(which: &DeadLetterFilterArgs) -> Vec<(&'static str, String)> {
    let now = system::env().now();
    let ago = |ms: Option<i64>| ms.map(|ms| now.plus_ms(ms.saturating_neg()).to_string());
    let given = [
        ("error", which.error.clone()),
        ("priority", which.class.map(|class| Priority::from(class).as_str().to_owned())),
        ("user", which.user.clone()),
        ("failed_before", ago(which.older_than)),
        ("failed_from", ago(which.newer_than)),
    ];
    given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// Retries or discards many dead letters. They are counted first, and nothing is done before the user confirms.
async fn many(site: &Site, client: &Client, what: &str, options: &OneOrManyDeadLetters) -> Result<(), Failure> {
    let path = format!("/api/v1/dead-letters/{what}");
    let mut body: Map<String, Value> =
        query_of(&options.filter).into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
    body.insert("limit".to_owned(), options.limit.into());
    if !options.yes {
        let counted = client.post(&path, &Value::Object(body.clone())).await?;
        let matching = counted["matching"].as_u64().unwrap_or(0);
        let affected = matching.min(u64::from(options.limit));
        if options.dry_run || matching == 0 {
            return print(site, &counted, &format!("{matching} waiting dead letters match; nothing was done"));
        }
        let question = format!("{what} {affected} of {matching} waiting dead letters that match?");
        confirmed(site, &question).await?;
    }
    body.insert("confirmed".to_owned(), true.into());
    let answer = client.post(&path, &Value::Object(body)).await?;
    let (summary, stopped) = outcome(what, &answer);
    print(site, &answer, &summary)?;
    match stopped {
        None => Ok(()),
        Some(why) => Err(Failure::new(Exit::NotDone, format!("stopped early: {why}")).fix("do it again for the rest")),
    }
}

/// A summary of the result, and the reason if the call stopped early.
fn outcome(what: &str, answer: &Value) -> (String, Option<String>) {
    let count = |key: &str| answer[key].as_u64().unwrap_or(0);
    let done = if what == "retry" { "are retried as the queue has capacity" } else { "discarded" };
    let summary = format!("{} of {} {done}, {} left", count("done"), count("matching"), count("left"));
    (summary, answer["stopped"].as_str().map(|why| clipped(why, 300)))
}

/// Asks for confirmation at a terminal. Without a terminal `--yes` is required.
pub(super) async fn confirmed(site: &Site, question: &str) -> Result<(), Failure> {
    let mut input = Input::of_process();
    if !input.is_terminal {
        let fix = "add --yes to do it";
        return Err(Failure::new(Exit::Usage, format!("not confirmed: {question}")).fix(fix));
    }
    site.console.say_always(&format!("{question} [y/N]"));
    let answer = input.next().await?.unwrap_or_default();
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Exit::NotDone, "nothing was done"))
}

fn print(site: &Site, answer: &Value, text: &str) -> Result<(), Failure> {
    if site.console.is_json() { site.console.json(answer) } else { site.console.line(text) }
}

async fn show(site: &Site, client: &Client, task: TaskId) -> Result<(), Failure> {
    let dead_letter = client.get(&format!("/api/v1/dead-letters/{task}")).await?;
    if site.console.is_json() {
        return site.console.json(&dead_letter);
    }
    site.console.line(&tame(&rendered(&dead_letter)))
}

fn rendered(dead_letter: &Value) -> String {
    let keys = [
        "task_id",
        "state",
        "text",
        "conversation_id",
        "priority",
        "error",
        "answer",
        "detail",
        "since",
        "failed_at",
        "retry_at",
        "retried_by",
    ];
    let mut lines = lines(dead_letter, &keys);
    let items = |key: &str| dead_letter[key].as_array().cloned().unwrap_or_default();
    lines.extend(items("before").iter().filter_map(|task| Some(format!("{:<16} {}", "before", task.as_str()?))));
    lines.extend(items("tried").iter().filter_map(|tried| Some(format!("{:<16} {}", "tried", tried.as_str()?))));
    lines.extend(items("events").iter().map(|event| {
        format!("{:<16} {} {} {}", "event", text(event, "at"), text(event, "agent"), text(event, "kind"))
    }));
    lines.join("\n")
}

fn text(value: &Value, key: &str) -> String {
    clipped(value[key].as_str().unwrap_or_default(), 200)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_outcome_that_stopped_early_contains_the_reason() {
        let all = json!({"matching": 5, "done": 5, "left": 0});
        assert_eq!(outcome("discard", &all), ("5 of 5 discarded, 0 left".to_owned(), None));
        let (summary, stopped) =
            outcome("retry", &json!({"matching": 5, "done": 1, "left": 4, "stopped": "the store is away"}));
        assert_eq!(summary, "1 of 5 are retried as the queue has capacity, 4 left");
        assert_eq!(stopped.as_deref(), Some("the store is away"));
    }

    #[test]
    fn dead_letter_is_shown_with_its_attempts_and_events() {
        let dead_letter = json!({
            "task_id": "task_1", "state": "waiting", "error": "model_unavailable", "tried": ["main: no answer"],
            "before": ["task_0"], "events": [{"at": "1970-01-01T00:00:00.000Z", "agent": "orchestrator", "kind": "received"}],
        });
        let text = rendered(&dead_letter);
        for word in ["state            waiting", "before           task_0", "tried            main: no answer"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(text.ends_with("orchestrator received"), "{text}");
    }
}
