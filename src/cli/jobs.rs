//! `annie jobs`: lists and controls a server's open tasks.

use annie_core::{event::Priority, ids::TaskId};
use serde_json::{Value, json};

use super::{
    args::{JobRef, Jobs},
    client::Client,
    console::table,
    failure::{Exit, Failure},
    site::Site,
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
        Jobs::List => list(site, &client).await,
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
    let answer = client.get("/api/v1/jobs").await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let jobs: Vec<&Value> = answer["jobs"].as_array().into_iter().flatten().collect();
    if jobs.is_empty() {
        site.console.say("no open tasks");
        return Ok(());
    }
    let text = |job: &Value, key: &str| job[key].as_str().unwrap_or_default().to_owned();
    let rows = jobs.iter().map(|job| {
        let number = |key: &str| job[key].as_u64().map_or(String::new(), |n| n.to_string());
        let round = match (job["round"].as_u64(), job["rounds_max"].as_u64()) {
            (Some(now), Some(max)) => format!("{now} of {max}"),
            _ => String::new(),
        };
        let wait = job["start_in_ms"].as_u64().map_or(String::new(), seconds);
        vec![
            number("number"),
            status(job),
            text(job, "priority"),
            number("position"),
            round,
            wait,
            text(job, "title"),
            text(job, "task_id"),
        ]
    });
    site.console
        .line(&table(&["#", "status", "class", "position", "round", "starts in", "message", "id"], rows.collect()))
}

/// The status of a job, with the reason if the server gives one.
fn status(job: &Value) -> String {
    let status = job["status"].as_str().unwrap_or_default();
    job["reason"].as_str().map_or_else(|| status.to_owned(), |reason| format!("{status}: {reason}"))
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
    let answer = client.get("/api/v1/jobs").await?;
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
    }
}
