//! `annie jobs`: lists and controls a server's open tasks.

use annie_core::{event::Priority, ids::TaskId};
use serde_json::{Value, json};

use super::{
    args::{JobRef, Jobs},
    client::Client,
    console::clipped,
    failure::{Exit, Failure},
    listing::Listing,
    repeated::repeated,
    site::Site,
};

/// Maximum length of a job's title in a message, in characters.
const TITLE_CHARS_MAX: usize = 60;

pub(super) const LIST: Listing = Listing {
    command: "jobs list",
    rows: "jobs",
    columns: &[
        ("#", "number"),
        ("status", "status"),
        ("class", "priority"),
        ("position", "position"),
        ("round", "round"),
        ("done", "percent"),
        ("starts in", "start_in_ms"),
        ("ends within", "ends_in_ms_max"),
        ("message", "title"),
        ("id", "task_id"),
    ],
};

/// `annie jobs`
///
/// # Errors
/// If no server runs, or there is no such job.
pub async fn run(site: &Site, command: Jobs) -> Result<(), Failure> {
    // Jobs exist only in a running kernel. Without a server `annie tasks` lists the open tasks of the folder.
    let client = site.running().await.map_err(|failure| {
        failure.fix("`annie tasks list --open` lists the open tasks of the folder; `annie serve` continues them")
    })?;
    let (job, what, body, done) = match command {
        Jobs::List(watch) => return repeated(site, watch, async || list(site, &client).await).await,
        Jobs::Cancel { job } => (job, "cancel", json!({}), Done::Is("being cancelled")),
        Jobs::Pause { job } => (job, "suspend", json!({}), Done::Is("suspended; `annie jobs resume` continues it")),
        Jobs::Resume { job } => (job, "continue", json!({}), Done::Is("resumed")),
        Jobs::Priority { job, class } => {
            let class = Priority::from(class);
            (job, "priority", json!({"priority": class}), Done::Moved(class))
        }
    };
    let job = found(&client, job).await?;
    let answer = client.post(&format!("/api/v1/tasks/{}/{what}", job.task), &body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let is_done = answer["done"] == true || answer["cancelled"] == true;
    site.console.line(&done.line(&job.name, is_done))
}

/// The task that a command acts on. Numbers shift, so that the result names it.
struct Job {
    task: TaskId,
    /// The start of its message in quotes, or its id.
    name: String,
}

/// What a command did to a job.
enum Done {
    Is(&'static str),
    Moved(Priority),
}

impl Done {
    fn line(&self, name: &str, is_done: bool) -> String {
        match self {
            _ if !is_done => format!("{name} had ended before"),
            Self::Is(state) => format!("{name} is {state}"),
            Self::Moved(class) => format!("moved {name} to {}", class.as_str()),
        }
    }
}

async fn list(site: &Site, client: &Client) -> Result<(), Failure> {
    let answer = client.get(LIST.path()).await?;
    LIST.print_with(site, &answer, "no open tasks", |job, key| match key {
        "status" => Some(status(job)),
        "round" => job[key].as_u64().zip(job["rounds_max"].as_u64()).map(|(now, max)| format!("{now} of {max}")),
        "percent" => job[key].as_u64().map(|percent| format!("{percent} %")),
        "start_in_ms" | "ends_in_ms_max" => job[key].as_u64().map(seconds),
        _ => None,
    })
}

/// The status of a job, with the reason if the server gives one.
fn status(job: &Value) -> String {
    let status = job["status"].as_str().unwrap_or_default();
    let until = job["deferred_until"].as_str().map_or(String::new(), |until| format!(" until {until}"));
    let reason = job["reason"].as_str().map_or(String::new(), |reason| format!(": {reason}"));
    format!("{status}{until}{reason}")
}

/// Formats an estimated duration in whole seconds.
pub fn seconds(ms: u64) -> String {
    format!("{} s", ms.div_ceil(1_000))
}

/// The job that a reference names.
async fn found(client: &Client, job: JobRef) -> Result<Job, Failure> {
    let answer = client.get(LIST.path()).await?;
    let mut jobs = answer["jobs"].as_array().into_iter().flatten();
    let row = match job {
        JobRef::Id(task) => jobs.find(|row| row["task_id"] == json!(task)),
        JobRef::Number(number) => jobs.find(|row| row["number"] == number),
    };
    let task = match job {
        JobRef::Id(task) => Some(task),
        JobRef::Number(_) => row.and_then(|row| row["task_id"].as_str()?.parse().ok()),
    };
    let task = task.ok_or_else(|| {
        let number = if let JobRef::Number(number) = job { number } else { 0 };
        Failure::new(Exit::NotFound, format!("there is no job {number}"))
            .fix("`annie jobs` shows the numbers as they are now")
    })?;
    let title = row.and_then(|row| row["title"].as_str()).filter(|title| !title.is_empty());
    let name = title.map_or_else(|| task.to_string(), |title| format!("\"{}\"", clipped(title, TITLE_CHARS_MAX)));
    Ok(Job { task, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_names_the_job() {
        assert_eq!(Done::Moved(Priority::High).line("\"x\"", true), "moved \"x\" to high");
        assert_eq!(Done::Is("resumed").line("\"x\"", true), "\"x\" is resumed");
        assert_eq!(Done::Is("resumed").line("\"x\"", false), "\"x\" had ended before");
    }

    #[test]
    fn job_status_names_the_reason_if_the_server_gives_one() {
        assert_eq!(status(&json!({"status": "running"})), "running");
        let deferred = json!({"status": "deferred", "reason": "its model failed"});
        assert_eq!(status(&deferred), "deferred: its model failed");
        let later = json!({"status": "deferred", "deferred_until": "2026-02-18T10:00:00Z"});
        assert_eq!(status(&later), "deferred until 2026-02-18T10:00:00Z");
    }
}
