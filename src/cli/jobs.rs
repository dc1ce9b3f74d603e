//! `annie jobs`: what a server is working on, and what is done about it.

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
    // A job is work of a living kernel: what is open in the folder alone is told by the tasks.
    let client = site.running().await.map_err(|failure| {
        failure.fix("`annie tasks list --open` tells what is open in the folder; `annie serve` goes on with it")
    })?;
    match command {
        Jobs::List => list(site, &client).await,
        Jobs::Cancel { job } => {
            let task = found(&client, job).await?;
            act(site, &client, task, "cancel", &json!({}), "it is being stopped").await
        }
        Jobs::Pause { job } => {
            let task = found(&client, job).await?;
            act(site, &client, task, "suspend", &json!({}), "it is held back; `annie jobs resume` lets it go on").await
        }
        Jobs::Resume { job } => {
            let task = found(&client, job).await?;
            act(site, &client, task, "continue", &json!({}), "it goes on").await
        }
        Jobs::Priority { job, class } => {
            let task = found(&client, job).await?;
            let class = Priority::from(class);
            let told = format!("it is {} from now on", class.as_str());
            act(site, &client, task, "priority", &json!({"priority": class}), &told).await
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
        site.console.say("nothing is being worked on");
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
            text(job, "status"),
            text(job, "priority"),
            number("position"),
            round,
            wait,
            text(job, "title"),
            text(job, "task_id"),
        ]
    });
    site.console.line(&table(&["#", "status", "class", "place", "round", "starts in", "message", "id"], rows.collect()))
}

/// A time span that is only an estimate.
pub fn seconds(ms: u64) -> String {
    format!("{} s", ms.div_ceil(1_000))
}

/// The task that is meant.
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

async fn act(site: &Site, client: &Client, task: TaskId, what: &str, body: &Value, told: &str) -> Result<(), Failure> {
    let answer = client.post(&format!("/api/v1/tasks/{task}/{what}"), body).await?;
    if site.console.is_json() {
        return site.console.json(&answer);
    }
    let is_done = answer["done"] == true || answer["cancelled"] == true;
    site.console.line(if is_done { told } else { "it had ended before" })
}
