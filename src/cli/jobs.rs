//! `annie jobs`: lists and controls a server's open tasks.

use annie_core::{event::Priority, ids::TaskId};
use serde_json::{Value, json};

use super::{
    args::{JobRef, Jobs},
    client::Client,
    failure::{Exit, Failure},
    listing::Listing,
    repeated::repeated,
    site::Site,
};

pub(super) const LIST: Listing = Listing {
    command: "jobs list",
    rows: "jobs",
    columns: &[
        ("#", "number"),
        ("status", "status"),
        ("class", "priority"),
        ("position", "position"),
        ("round", "round"),
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
    match command {
        Jobs::List(watch) => repeated(site, watch, async || list(site, &client).await).await,
        Jobs::Cancel { job } => {
            let task = found(&client, job).await?;
            act(site, &client, task, "cancel", &json!({}), "it is being cancelled").await
        }
        Jobs::Pause { job } => {
            let task = found(&client, job).await?;
            act(site, &client, task, "suspend", &json!({}), "it is suspended; `annie jobs resume` continues it").await
        }
        Jobs::Resume { job } => {
            let task = found(&client, job).await?;
            act(site, &client, task, "continue", &json!({}), "it is resumed").await
        }
        Jobs::Priority { job, class } => {
            let task = found(&client, job).await?;
            let class = Priority::from(class);
            let text = format!("its class is now {}", class.as_str());
            act(site, &client, task, "priority", &json!({"priority": class}), &text).await
        }
    }
}

async fn list(site: &Site, client: &Client) -> Result<(), Failure> {
    let answer = client.get(LIST.path()).await?;
    LIST.print_with(site, &answer, "no open tasks", |job, key| match key {
        "status" => Some(status(job)),
        "round" => job[key].as_u64().zip(job["rounds_max"].as_u64()).map(|(now, max)| format!("{now} of {max}")),
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

/// The task that a job reference names.
async fn found(client: &Client, job: JobRef) -> Result<TaskId, Failure> {
    let number = match job {
        JobRef::Id(task) => return Ok(task),
        JobRef::Number(number) => number,
    };
    let answer = client.get(LIST.path()).await?;
    let jobs = answer["jobs"].as_array().into_iter().flatten();
    let task = jobs.filter(|j| j["number"] == number).find_map(|j| j["task_id"].as_str()?.parse().ok());
    task.ok_or_else(|| {
        Failure::new(Exit::NotFound, format!("there is no job {number}"))
            .fix("`annie jobs` shows the numbers as they are now")
    })
}

async fn act(site: &Site, client: &Client, task: TaskId, what: &str, body: &Value, done: &str) -> Result<(), Failure> {
    let answer = client.post(&format!("/api/v1/tasks/{task}/{what}"), body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let is_done = answer["done"] == true || answer["cancelled"] == true;
    site.console.line(if is_done { done } else { "it had ended before" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_status_names_the_reason_if_the_server_gives_one() {
        assert_eq!(status(&json!({"status": "running"})), "running");
        let deferred = json!({"status": "deferred", "reason": "its model failed"});
        assert_eq!(status(&deferred), "deferred: its model failed");
        let later = json!({"status": "deferred", "deferred_until": "2026-02-18T10:00:00Z"});
        assert_eq!(status(&later), "deferred until 2026-02-18T10:00:00Z");
    }
}
