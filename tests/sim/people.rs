//! Users: they repeat messages that were not acknowledged, follow conversations over bad connections, and try to read
//! what belongs to others.

use std::{sync::Arc, time::Duration};

use annie_actors::{Control, KernelError, StreamItem, Submission, Submitted};
use annie_core::{
    event::{EventBody, Priority, Scope},
    ids::{ConversationId, Seq, UserId},
    ports::Log,
};

use super::{
    scenario::{Say, USERS},
    town::{Acked, Town, pass_ms},
    watch::now,
};

/// How long a client waits for an acknowledgement, in milliseconds.
const PATIENCE_MS: u64 = 20_000;
/// How many times a client sends a message, and how many refusals it accepts when the queue is full.
const SENDS_MAX: u64 = 60;
const REFUSALS_MAX: u64 = 5;

pub fn user(n: usize) -> UserId {
    UserId::new(USERS[n]).expect("a user's id")
}

pub fn conversation(user: &UserId, n: u64) -> ConversationId {
    ConversationId::for_key(user, &format!("c{n}"))
}

/// Sends a message until it is acknowledged or finally refused because the queue is full.
pub async fn say(town: Arc<Town>, id: u64, say: Say) {
    let user = user(say.user);
    let mut message = Submission::new(user.clone(), say.source, say.text.clone());
    message.client_id = Some(format!("step{id}"));
    message.conversation = say.name.is_none().then(|| conversation(&user, say.conversation));
    message.priority = say.priority;
    message.mode = say.mode;
    message.steer = say.is_steer;
    message.private = say.is_private;
    message.name = say.name.map(str::to_owned);
    let mine = |acked: &Acked| (acked.user == say.user).then_some(acked.task);
    message.after = town.acked().iter().rev().find_map(mine).filter(|_| say.is_after).into_iter().collect();
    message.not_before = say.not_before_ms.map(|ms| town.clock_now().plus_ms(i64::try_from(ms).unwrap_or(0)));
    let Some(sent) = send(&town, &message).await else { return };
    let Submitted { task, conversation, seq, .. } = sent;
    town.acknowledges(Acked { user: say.user, task, conversation });
    if let Some(ms) = say.again_ms {
        pass_ms(ms).await;
        if let Some(again) = send(&town, &message).await
            && (again.task, again.conversation, again.seq) != (task, conversation, seq)
        {
            town.watch.wrong(format!("a repeat of {task} was acknowledged as {again:?}"));
        }
    }
}

async fn send(town: &Town, message: &Submission) -> Option<Submitted> {
    let mut refusals = 0;
    for n in 0..SENDS_MAX {
        let process = town.process().await;
        let submitting =
            tokio::time::timeout(Duration::from_millis(PATIENCE_MS), process.kernel.submit(message.clone()));
        match submitting.await {
            Ok(Ok(sent)) => {
                check_ack(town, message, &sent);
                return Some(sent);
            }
            Ok(Err(KernelError::Full(refusal))) => {
                refusals += 1;
                if refusals > REFUSALS_MAX {
                    return None;
                }
                pass_ms(refusal.retry_after_ms.clamp(1, 4_000)).await;
            }
            Ok(Err(KernelError::TooSoon { retry_after_ms })) => pass_ms(retry_after_ms).await,
            Ok(Err(KernelError::NotReady(_) | KernelError::Unavailable(_) | KernelError::Store(_))) => {
                pass_ms(20 + 30 * n).await
            }
            Ok(Err(e)) => {
                town.watch.wrong(format!("a message was refused: {e} ({message:?})"));
                return None;
            }
            Err(_) => {}
        }
    }
    None
}

/// Checks that an acknowledged message is stored.
fn check_ack(town: &Town, message: &Submission, sent: &Submitted) {
    let before = Seq(sent.seq.0.saturating_sub(1));
    let stored = now(town.data.events(Scope::User(message.user.clone()), sent.conversation, before, 1));
    let is_it = stored.first().is_some_and(|event| {
        event.task == sent.task && matches!(&event.body, EventBody::Received(inbound) if inbound.text == message.text)
    });
    if !is_it {
        town.watch.wrong(format!("acknowledged and not stored: {sent:?}, the store has {stored:?}"));
    }
}

/// Applies a control to the user's latest task.
pub async fn control(town: Arc<Town>, user_index: usize, verb: &str) {
    let Some(acked) = town.acked().into_iter().rev().find(|a| a.user == user_index) else { return };
    let control = match verb {
        "cancel" => Control::Cancel,
        "suspend" => Control::Suspend,
        "continue" => Control::Continue,
        _ => Control::Reprioritise(Priority::High),
    };
    let process = town.process().await;
    match process.kernel.control(Scope::User(user(user_index)), acked.task, control, "its user").await {
        Ok(_) | Err(KernelError::NotReady(_) | KernelError::Unavailable(_) | KernelError::Store(_)) => {}
        Err(e) => town.watch.wrong(format!("{verb} of {}: {e}", acked.task)),
    }
}

/// Follows a conversation over connections that break. Every event must arrive once and in order.
pub async fn listen(town: Arc<Town>, id: u64, user_index: usize, n: u64) {
    let user = user(user_index);
    let conversation = conversation(&user, n);
    let dice = town.dice.of("listener").nth(id);
    let mut seen = Seq(0);
    let mut connections = 0;
    while !town.is_over() {
        let process = town.process().await;
        let wait = Duration::from_secs(5);
        let follow = process.kernel.follow(Scope::User(user.clone()), conversation, seen);
        if let Ok(Ok(mut follow)) = tokio::time::timeout(wait, follow).await {
            connections += 1;
            let lasts = Duration::from_millis(dice.nth(connections).between(1, 6_000));
            let follows = async {
                while let Ok(Some(item)) = follow.next().await {
                    let StreamItem::Event(event) = item else { continue };
                    town.watch.announced(&event);
                    if event.seq.0 != seen.0 + 1 {
                        town.watch.wrong(format!("{conversation}: {} arrived after {seen}", event.seq));
                    }
                    seen = event.seq;
                    town.received_up_to(id, conversation, seen);
                }
            };
            // The connection breaks, or the process is gone.
            let _ = tokio::time::timeout(lasts, follows).await;
        }
        pass_ms(dice.of("back").nth(connections).between(1, 500)).await;
    }
}

/// Requests data of another user. None of it may be found.
pub async fn spy(town: Arc<Town>, user_index: usize) {
    let scope = Scope::User(user(user_index));
    let Some(prey) = town.acked().into_iter().rev().find(|a| a.user != user_index) else { return };
    let kernel = town.process().await.kernel;
    let found = |what: &str| town.watch.wrong(format!("{} sees {what} of {}", USERS[user_index], USERS[prey.user]));
    if kernel.conversation(scope.clone(), prey.conversation).await.is_ok() {
        found("a conversation");
    }
    if kernel.events(scope.clone(), prey.conversation, Seq(0), 10).await.is_ok() {
        found("the events");
    }
    if kernel.follow(scope.clone(), prey.conversation, Seq(0)).await.is_ok() {
        found("the stream");
    }
    if kernel.task(scope.clone(), prey.task).await.is_ok() {
        found("a task");
    }
    if kernel.control(scope, prey.task, Control::Cancel, "a spy").await.is_ok() {
        found("and cancels a task");
    }
    let intruding = Submission::new(user(user_index), "test", "let me in").within(prey.conversation);
    if kernel.submit(intruding).await.is_ok() {
        found("and speaks in a conversation");
    }
    let jobs = kernel.jobs(&user(user_index)).await.unwrap_or_default();
    if jobs.iter().any(|job| job.task == prey.task) {
        found("a job");
    }
}
