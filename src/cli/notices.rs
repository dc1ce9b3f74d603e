//! `annie notifications`, and the notifications that a chat tells between two lines.

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
/// Pages that are read to find the end: more than are ever kept.
const PAGES_MAX: usize = 100;

/// What a user is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Its place.
    pub id: u64,
    /// The words.
    pub text: String,
    /// As the server tells it.
    pub value: Value,
}

impl Notice {
    fn of(value: Value) -> Option<Self> {
        Some(Self { id: value["id"].as_u64()?, text: value["text"].as_str()?.to_owned(), value })
    }

    /// About which tasks.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        let tasks = self.value["task_ids"].as_array().into_iter().flatten();
        tasks.filter_map(|task| task.as_str()?.parse().ok())
    }

    fn stored(told: Notification) -> Self {
        let value = json!({"id": told.id, "text": told.text, "task_ids": told.tasks, "at": told.at.to_string()});
        Self { id: told.id, text: told.text, value }
    }
}

/// `annie notifications`
///
/// # Errors
/// If no server runs, or its stream breaks for good.
pub async fn run(site: &Site, wish: Notifications) -> Result<(), Failure> {
    let client = site.running().await?;
    if !wish.follow {
        let place = page::parameters(wish.limit, wish.next.as_deref());
        let answer = client.get(&format!("/api/v1/notifications?after={}&{place}", wish.after)).await?;
        if site.console.is_json() {
            return site.console.json(&answer);
        }
        let told: Vec<Notice> =
            answer["notifications"].as_array().into_iter().flatten().cloned().filter_map(Notice::of).collect();
        if told.is_empty() {
            site.console.say("nothing was told beside the conversations");
        }
        told.iter().try_for_each(|notice| show(site, notice))?;
        page::say_more(site, told.len(), &answer);
        return Ok(());
    }
    let mut notices = Notices::of_server(client, wish.after);
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

/// A user's notifications as they come.
pub struct Notices(From);

enum From {
    Here(NoticeStream),
    Server { stream: Resumed, seen: u64 },
}

impl Notices {
    /// Those of a partner, from behind a place on.
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

    /// The next one; waits for it. May be given up at any time and asked again.
    ///
    /// # Errors
    /// If they cannot be followed any more.
    pub async fn next(&mut self) -> Result<Notice, Failure> {
        match &mut self.0 {
            From::Here(notices) => match notices.next().await? {
                Some(told) => Ok(Notice::stored(told)),
                None => Err(Failure::new(Exit::Unavailable, "the kernel has ended")),
            },
            From::Server { stream, seen } => loop {
                let Some(event) = stream.next(|| format!("/api/v1/notifications/stream?after={seen}")).await? else {
                    continue;
                };
                let said = serde_json::from_str(&event.data).ok().filter(|_| event.kind == "notification");
                if let Some(notice) = said.and_then(Notice::of).filter(|n| n.id > *seen) {
                    *seen = notice.id;
                    stream.goes_on();
                    return Ok(notice);
                }
            },
        }
    }
}

/// What was told behind a place until now, oldest first.
///
/// # Errors
/// If it cannot be read.
pub async fn told_since(partner: &Partner, after: u64) -> Result<Vec<Notice>, Failure> {
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
