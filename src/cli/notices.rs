//! `annie notifications`, and the notifications that a chat shows between two answers.

use annie_actors::{Kernel, NoticeStream};
use annie_core::{
    ids::{TaskId, UserId},
    ports::Notification,
};
use serde_json::{Value, json};

use super::{
    args::Notifications,
    client::Client,
    console::tame,
    failure::{Exit, Failure},
    page,
    resume::Resumed,
    site::Site,
    talk::Partner,
};

/// Notifications that are read at a time.
const PAGE: u32 = 500;
/// Maximum number of pages that are read to find the end; the store keeps fewer.
const PAGES_MAX: usize = 100;

/// A notification for the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Id, which increases with each notification of a user.
    pub id: u64,
    /// The text.
    pub text: String,
    /// The JSON form of the API.
    pub value: Value,
}

impl Notice {
    fn of(value: Value) -> Option<Self> {
        Some(Self { id: value["id"].as_u64()?, text: value["text"].as_str()?.to_owned(), value })
    }

    /// The tasks that the notification is about.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        let tasks = self.value["task_ids"].as_array().into_iter().flatten();
        tasks.filter_map(|task| task.as_str()?.parse().ok())
    }

    fn stored(row: Notification) -> Self {
        let value = json!({"id": row.id, "text": row.text, "task_ids": row.tasks, "at": row.at.to_string()});
        Self { id: row.id, text: row.text, value }
    }
}

/// `annie notifications`
///
/// # Errors
/// If no server runs, or its stream cannot be resumed.
pub async fn run(site: &Site, options: Notifications) -> Result<(), Failure> {
    let client = site.running().await?;
    if !options.follow {
        let page = page::parameters(options.limit, options.next.as_deref());
        let answer = client.get(&format!("/api/v1/notifications?after={}&{page}", options.after)).await?;
        if site.console.is_json() {
            return site.console.json(&answer);
        }
        let notices: Vec<Notice> =
            answer["notifications"].as_array().into_iter().flatten().cloned().filter_map(Notice::of).collect();
        if notices.is_empty() {
            site.console.say("no notifications");
        }
        notices.iter().try_for_each(|notice| show(site, notice))?;
        page::say_more(site, notices.len(), &answer);
        return Ok(());
    }
    let mut notices = Notices::of_server(client, options.after);
    loop {
        tokio::select! {
            notice = notices.next() => show(site, &notice?)?,
            pressed = tokio::signal::ctrl_c() => {
                return pressed.map_err(|e| Failure::io("cannot wait for Ctrl-C", &e));
            }
        }
    }
}

fn show(site: &Site, notice: &Notice) -> Result<(), Failure> {
    if site.console.is_json() {
        return site.console.json(&notice.value);
    }
    let at = notice.value["at"].as_str().unwrap_or_default();
    site.console.line(&format!("{:>4}  {at}  {}", notice.id, tame(&notice.text)))
}

/// A stream of a user's notifications.
pub struct Notices(From);

enum From {
    Here(NoticeStream),
    Server { stream: Resumed, seen: u64 },
}

impl Notices {
    /// Follows the notifications after an id.
    #[must_use]
    pub fn of(partner: &Partner, after: u64) -> Self {
        match partner {
            Partner::Here { kernel, user } => Self(From::Here(kernel.follow_notifications(user, after))),
            Partner::Server(client) => Self::of_server(client.clone(), after),
        }
    }

    fn of_server(client: Client, after: u64) -> Self {
        Self(From::Server { stream: Resumed::of(client), seen: after })
    }

    /// Waits for the next notification. Cancel-safe.
    ///
    /// # Errors
    /// If the notifications cannot be followed any more.
    pub async fn next(&mut self) -> Result<Notice, Failure> {
        match &mut self.0 {
            From::Here(notices) => match notices.next().await? {
                Some(row) => Ok(Notice::stored(row)),
                None => Err(Failure::new(Exit::Unavailable, "the kernel has ended")),
            },
            From::Server { stream, seen } => loop {
                let Some(event) = stream.next(|| format!("/api/v1/notifications/stream?after={seen}")).await? else {
                    continue;
                };
                let value = serde_json::from_str(&event.data).ok().filter(|_| event.kind == "notification");
                if let Some(notice) = value.and_then(Notice::of).filter(|n| n.id > *seen) {
                    *seen = notice.id;
                    stream.note_progress();
                    return Ok(notice);
                }
            },
        }
    }
}

/// All notifications after an id until now, oldest first.
///
/// # Errors
/// If they cannot be read.
pub async fn notices_since(partner: &Partner, after: u64) -> Result<Vec<Notice>, Failure> {
    let mut all: Vec<Notice> = Vec::new();
    for _ in 0..PAGES_MAX {
        let from = all.last().map_or(after, |last| last.id);
        let page = match partner {
            Partner::Here { kernel, user } => stored(kernel, user, from).await?,
            Partner::Server(client) => {
                let answer = client.get(&format!("/api/v1/notifications?after={from}&limit={PAGE}")).await?;
                let page = answer["notifications"].as_array().into_iter().flatten().cloned();
                page.filter_map(Notice::of).collect()
            }
        };
        let is_last = page.len() < PAGE as usize;
        all.extend(page);
        if is_last {
            break;
        }
    }
    Ok(all)
}

async fn stored(kernel: &Kernel, user: &UserId, after: u64) -> Result<Vec<Notice>, Failure> {
    Ok(kernel.notifications(user, after, PAGE).await?.into_iter().map(Notice::stored).collect())
}
