//! A channel of an extension: it delivers final texts to the addresses that messages name.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::{KernelError, Submission, Submitted};
use annie_core::{
    ids::{OutboxId, TaskId, UserId},
    ports::{
        Address, Channel, Delivered, DeliveryError, FaultAction, Fut, Inbox, InboxError, Incoming, Notification,
        OutboxRow,
    },
};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, says},
};

use crate::world::{World, WorldParts, ann, eventually, kill, last_text};

/// What a chat service does with a text.
enum Does {
    Deliver,
    Refuse,
    Panic,
    Hang,
    /// Delivers when the test allows one more delivery.
    Wait,
}

/// A chat service with one chat for each user, `chat:USER`.
struct ChatService {
    name: &'static str,
    is_idempotent: bool,
    /// What it does with the next texts. It delivers all further ones.
    does: Mutex<VecDeque<Does>>,
    is_down_until: Option<tokio::time::Instant>,
    calls: AtomicUsize,
    /// Deliveries that the test allows.
    allowed: tokio::sync::Semaphore,
    /// Messages that it has received, and hands over each time that it starts.
    incoming: Vec<Incoming>,
    accepted: Mutex<Vec<Result<TaskId, InboxError>>>,
    sent: tokio::sync::watch::Sender<Vec<(String, OutboxId)>>,
}

impl ChatService {
    fn named(name: &'static str) -> Self {
        Self {
            name,
            is_idempotent: false,
            does: Mutex::default(),
            is_down_until: None,
            calls: AtomicUsize::new(0),
            allowed: tokio::sync::Semaphore::new(0),
            incoming: Vec::new(),
            accepted: Mutex::default(),
            sent: tokio::sync::watch::Sender::default(),
        }
    }

    fn that(does: Does) -> Self {
        Self { does: Mutex::new(VecDeque::from([does])), ..Self::named("chats") }
    }

    fn texts(&self) -> Vec<String> {
        self.sent.borrow().iter().map(|(text, _)| text.clone()).collect()
    }

    /// Waits until this number of texts was sent.
    async fn until_sent(&self, count: usize) -> Vec<String> {
        let mut sent = self.sent.subscribe();
        let wait = sent.wait_for(|sent| sent.len() >= count);
        assert!(tokio::time::timeout(LONG, wait).await.is_ok(), "only {:?} were sent", self.texts());
        self.texts()
    }

    async fn until_called(&self) {
        self.until_calls(1).await;
    }

    async fn until_calls(&self, count: usize) {
        eventually("the channel is called", async || (self.calls.load(Relaxed) >= count).then_some(())).await;
    }
}

/// Longer than any wait of the kernel; the clock is paused.
const LONG: Duration = Duration::from_secs(30 * 3_600);

impl Channel for ChatService {
    fn name(&self) -> &str {
        self.name
    }

    fn check(&self, user: &UserId, to: &str) -> Result<(), String> {
        let own = format!("chat:{user}");
        if to == own { Ok(()) } else { Err(format!("{to:?} is no chat of yours: use {own:?}")) }
    }

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    fn deliver<'a>(&'a self, text: &'a OutboxRow) -> Fut<'a, Result<Delivered, DeliveryError>> {
        self.calls.fetch_add(1, Relaxed);
        Box::pin(async move {
            if self.is_down_until.is_some_and(|until| tokio::time::Instant::now() < until) {
                return Err(DeliveryError::Retry { after_ms: 0, why: "connection refused".to_owned() });
            }
            let does = self.does.lock().unwrap().pop_front();
            match does.unwrap_or(Does::Deliver) {
                Does::Deliver => {}
                Does::Refuse => return Err(DeliveryError::Refused("the chat was deleted".to_owned())),
                Does::Panic => panic!("the chat service panics"),
                Does::Hang => std::future::pending().await,
                Does::Wait => self.allowed.acquire().await.unwrap().forget(),
            }
            self.sent.send_modify(|sent| sent.push((text.text.clone(), text.id)));
            Ok(Delivered::Received)
        })
    }

    fn receive(&self, inbox: Arc<dyn Inbox>) -> Fut<'_, Result<(), String>> {
        Box::pin(async move {
            if self.is_down_until.is_some_and(|until| tokio::time::Instant::now() < until) {
                return Err("connection refused".to_owned());
            }
            for message in &self.incoming {
                let result = inbox.submit(message.clone()).await;
                self.accepted.lock().unwrap().push(result);
            }
            std::future::pending().await
        })
    }
}

fn parts(services: &[&Arc<ChatService>]) -> WorldParts {
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::new(|request, _| Ok(says(last_text(request))))));
    for chats in services {
        parts.extensions.channels.push((*chats).clone());
    }
    parts
}

fn message(text: &str, channel: &str, to: &str) -> Submission {
    let mut message = Submission::new(ann(), "test", text);
    message.reply_to = Some(Address { channel: channel.to_owned(), to: to.to_owned() });
    message
}

async fn ask(world: &World, text: &str, channel: &str) -> Submitted {
    world.kernel.submit(message(text, channel, "chat:ann")).await.expect("the message is accepted")
}

async fn all_delivered(world: &World) {
    eventually("the outbox is empty", async || world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(()))
        .await;
}

async fn notifications(world: &World) -> Vec<Notification> {
    world.kernel.notifications(&ann(), 0, 100).await.expect("readable")
}

/// Waits for the user's first notification.
async fn notified(world: &World) -> String {
    let mut stream = world.kernel.follow_notifications(&ann(), 0);
    let notification = tokio::time::timeout(LONG, stream.next()).await.expect("the user is notified");
    notification.expect("readable").expect("the kernel runs").text
}

#[tokio::test(start_paused = true)]
async fn channel_of_extension_delivers_each_answer_once_to_its_address() {
    let chats = Arc::new(ChatService::named("chats"));
    let world = parts(&[&chats]).start().await;
    let one = ask(&world, "one", "chats").await;
    assert_eq!(world.answer(&one).await, "one", "a client that follows the conversation has it too");
    assert_eq!(chats.until_sent(1).await, ["one"]);
    let without = world.say("two").await;
    world.answer(&without).await;
    ask(&world, "three", "chats").await;
    assert_eq!(chats.until_sent(2).await, ["one", "three"]);
    all_delivered(&world).await;
    assert_eq!((chats.calls.load(Relaxed), notifications(&world).await.len()), (2, 0));
    eventually("the actor's view counts the texts", async || {
        let (_, view) = world.kernel.view("/infra/extensions/channel:chats").await.ok()?;
        (view?["delivered"] == 2).then_some(())
    })
    .await;
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn channel_address_of_another_user_or_without_a_channel_is_refused() {
    let chats = Arc::new(ChatService::named("chats"));
    let world = parts(&[&chats]).start().await;
    let long = "x".repeat(Address::TO_BYTES_MAX + 1);
    for (channel, to, reason) in [
        ("chats", "chat:bob", "is no chat of yours"),
        ("radio", "chat:ann", "there is no channel \"radio\": use one of the configured channels (chats)"),
        ("chats", "", "must have 1 to 256 bytes"),
        ("chats", "a\nb", "no control characters"),
        ("chats", long.as_str(), "must have 1 to 256 bytes"),
    ] {
        let refused = world.kernel.submit(message("hello", channel, to)).await;
        let Err(KernelError::Invalid(why)) = refused else { panic!("{channel} {to}: {refused:?}") };
        assert!(why.contains(reason), "{why}");
    }
    assert_eq!(chats.calls.load(Relaxed), 0);
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn channel_that_is_down_for_an_hour_delivers_in_order_afterwards() {
    const DOWN: Duration = Duration::from_secs(3_600);
    let from = tokio::time::Instant::now();
    let chats = Arc::new(ChatService { is_down_until: Some(from + DOWN), ..ChatService::named("chats") });
    let world = parts(&[&chats]).start().await;
    for text in ["one", "two", "three"] {
        let sent = ask(&world, text, "chats").await;
        world.answer(&sent).await;
        // Texts of one microsecond and of several conversations have no order.
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(chats.until_sent(3).await, ["one", "two", "three"]);
    let late = from.elapsed() - DOWN;
    assert!(late <= Duration::from_secs(310), "the longest wait between two attempts is 300 s, not {late:?}");
    let calls = chats.calls.load(Relaxed);
    assert!((10..40).contains(&calls), "{calls} attempts in an hour: the wait between them grows");
    all_delivered(&world).await;
    assert_eq!(notifications(&world).await, []);
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn channel_whose_service_is_down_for_an_hour_receives_afterwards() {
    let message = Incoming {
        user: ann(),
        conversation: "7".to_owned(),
        text: "hello".to_owned(),
        id: "1".to_owned(),
        reply_to: "chat:ann".to_owned(),
    };
    let until = tokio::time::Instant::now() + Duration::from_secs(3_600);
    let chats =
        Arc::new(ChatService { incoming: vec![message], is_down_until: Some(until), ..ChatService::named("chats") });
    let world = parts(&[&chats]).start().await;
    assert_eq!(chats.until_sent(1).await, ["hello"]);
    world.kernel.stop().await;
}

const DOUBT: &str = "I finished \"hello\": hello\nI do not know whether I delivered \"hello\" to chat:ann (channel chats): the attempt broke off.";

#[tokio::test(start_paused = true)]
async fn channel_delivery_that_is_interrupted_is_not_repeated_and_its_user_is_notified() {
    for (point, sent) in [("before", 0), ("after", 1)] {
        for action in [FaultAction::Panic, FaultAction::Fail] {
            let chats = Arc::new(ChatService::named("chats"));
            let plan = Arc::new(FaultPlan::once_at("delivery", point, 0, action));
            let world = parts(&[&chats]).faults(plan.clone()).start().await;
            ask(&world, "hello", "chats").await;
            assert_eq!(notified(&world).await, DOUBT, "{action:?} at {point}");
            all_delivered(&world).await;
            assert_eq!((plan.injected().len(), chats.texts().len()), (1, sent), "{action:?} at {point}");
            assert_eq!(notifications(&world).await.len(), 1);
            world.kernel.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn channel_whose_recipient_knows_ids_gets_an_interrupted_text_again() {
    for (point, sent) in [("before", 1), ("after", 2)] {
        let chats = Arc::new(ChatService { is_idempotent: true, ..ChatService::named("chats") });
        let plan = Arc::new(FaultPlan::once_at("delivery", point, 0, FaultAction::Panic));
        let world = parts(&[&chats]).faults(plan).start().await;
        ask(&world, "hello", "chats").await;
        chats.until_sent(sent).await;
        all_delivered(&world).await;
        let ids: Vec<OutboxId> = chats.sent.borrow().iter().map(|(_, id)| *id).collect();
        assert!(ids.len() == sent && ids.iter().all(|id| *id == ids[0]), "{point}: {ids:?}");
        assert_eq!(notifications(&world).await, []);
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn channel_whose_actor_or_process_dies_in_a_delivery_is_not_called_again_for_it() {
    for is_process in [false, true] {
        let chats = Arc::new(ChatService::that(Does::Hang));
        let parts = parts(&[&chats]);
        let mut world = parts.start().await;
        ask(&world, "hello", "chats").await;
        chats.until_called().await;
        if is_process {
            world.kernel.crash().await;
            world = parts.start().await;
        } else {
            kill(&world, "/infra/extensions/channel:chats").await;
        }
        assert_eq!(notified(&world).await, DOUBT);
        ask(&world, "again", "chats").await;
        assert_eq!(chats.until_sent(1).await, ["again"], "the address is free for the next text");
        all_delivered(&world).await;
        assert_eq!((chats.calls.load(Relaxed), notifications(&world).await.len()), (2, 1));
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn channel_ends_its_deliveries_before_a_stop_and_begins_no_others() {
    let chats =
        Arc::new(ChatService { does: Mutex::new((0..9).map(|_| Does::Wait).collect()), ..ChatService::named("chats") });
    let parts = parts(&[&chats]);
    let world = parts.start().await;
    // The first text is a pass of its own. The others are stored meanwhile, so the next pass finds nine addresses.
    for n in 0..10 {
        let user = UserId::new(format!("user{n}")).unwrap();
        let mut message = Submission::new(user.clone(), "test", format!("text {n}"));
        message.reply_to = Some(Address { channel: "chats".to_owned(), to: format!("chat:{user}") });
        world.kernel.submit(message).await.expect("the message is accepted");
        chats.until_called().await;
    }
    eventually("all answers are stored", async || {
        (world.kernel.store().outbox(20).await.ok()?.len() == 10).then_some(())
    })
    .await;
    chats.allowed.add_permits(1);
    chats.until_calls(9).await;
    let release = async {
        eventually("the worker stops", async || {
            let actors = world.kernel.tree();
            let worker = actors.iter().find(|actor| actor.path.as_str() == "/infra/extensions/channel:chats")?;
            (worker.status == "stopping").then_some(())
        })
        .await;
        chats.allowed.add_permits(8);
    };
    tokio::join!(world.kernel.stop(), release);
    assert_eq!((chats.calls.load(Relaxed), chats.texts().len()), (9, 9), "the tenth delivery has not begun");
    let world = parts.start().await;
    assert_eq!(chats.until_sent(10).await.len(), 10);
    all_delivered(&world).await;
    assert_eq!(chats.calls.load(Relaxed), 10);
    for n in 0..10 {
        let user = UserId::new(format!("user{n}")).unwrap();
        assert_eq!(world.kernel.notifications(&user, 0, 100).await.expect("readable"), [], "user {n}");
    }
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn channel_that_hangs_panics_or_refuses_delays_no_other_channel_and_its_user_is_notified() {
    let refused = "I finished \"hello\": hello\nI could not deliver \"hello\" to chat:ann (channel chats): the channel refused it.";
    for (does, text) in [(Does::Hang, DOUBT), (Does::Panic, DOUBT), (Does::Refuse, refused)] {
        let (chats, bell) = (Arc::new(ChatService::that(does)), Arc::new(ChatService::named("bell")));
        let world = parts(&[&chats, &bell]).start().await;
        let from = tokio::time::Instant::now();
        ask(&world, "hello", "chats").await;
        chats.until_called().await;
        ask(&world, "ring", "bell").await;
        assert_eq!(bell.until_sent(1).await, ["ring"]);
        assert!(from.elapsed() < Duration::from_secs(20), "a delivery may take 30 s");
        assert_eq!(notified(&world).await, text);
        assert!(from.elapsed() < Duration::from_secs(60), "the attempt was not cut off after 30 s");
        assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
        assert_eq!(chats.texts(), [""; 0]);
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn channel_that_is_gone_after_a_restart_leaves_its_texts_to_a_notification() {
    let chats = Arc::new(ChatService {
        is_down_until: Some(tokio::time::Instant::now() + LONG),
        ..ChatService::named("chats")
    });
    let mut parts = parts(&[&chats]);
    let world = parts.start().await;
    ask(&world, "hello", "chats").await;
    chats.until_called().await;
    world.kernel.stop().await;
    parts.extensions.channels.clear();
    let world = parts.start().await;
    let gone = "I finished \"hello\": hello\nI could not deliver \"hello\" to chat:ann (channel chats): no channel has this name any more.";
    assert_eq!(notified(&world).await, gone);
    all_delivered(&world).await;
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn channel_of_extension_receives_messages_and_answers_each_once() {
    let incoming = |user: &UserId, id: &str, reply_to: &str| Incoming {
        user: user.clone(),
        conversation: "7".to_owned(),
        text: format!("text {id}"),
        id: id.to_owned(),
        reply_to: reply_to.to_owned(),
    };
    let bob = UserId::new("bob").unwrap();
    let messages =
        vec![incoming(&ann(), "1", "chat:ann"), incoming(&bob, "2", "chat:ann"), incoming(&ann(), "3", "chat:ann")];
    let chats = Arc::new(ChatService { incoming: messages, ..ChatService::named("chats") });
    let world = parts(&[&chats]).start().await;
    let handed_over = async |count: usize| {
        eventually("it has handed over this number of messages", async || {
            (chats.accepted.lock().unwrap().len() == count).then_some(())
        })
        .await;
    };
    handed_over(3).await;
    assert_eq!(chats.until_sent(2).await.len(), 2);
    // It has lost its position, and hands over all messages again.
    kill(&world, "/listeners/service:channel:chats").await;
    handed_over(6).await;
    all_delivered(&world).await;
    let mut texts = chats.texts();
    texts.sort();
    assert_eq!(texts, ["text 1", "text 3"]);
    let accepted = chats.accepted.lock().unwrap().clone();
    assert_eq!(accepted[..3], accepted[3..], "a repeated message is acknowledged again");
    assert!(matches!(&accepted[1], Err(InboxError::Refused(why)) if why.contains("no chat of yours")), "{accepted:?}");
    let mut taken = message("hello", "chats", "chat:ann");
    taken.client_id = Some("channel:chats:9".to_owned());
    let refused = world.kernel.submit(taken).await;
    assert!(matches!(&refused, Err(KernelError::Invalid(why)) if why.contains("`channel:`")), "{refused:?}");
    world.kernel.stop().await;
}
