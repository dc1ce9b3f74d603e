//! The actors of extensions.
//!
//! Owns: nothing beside the extension. Supervised by: infra. Survives its death: the extension itself; an incarnation begins with
//! a pass, or with the request to read the store again.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use annie_core::{
    event::{Event, Topics},
    ports,
};
use serde_json::{Map, Value, json};

use super::{Installed, Subscribed, channel_name, chore_name, subscriber_name};
use crate::{
    delivery::Delivery,
    observe::{Branch, Context, Handle, Named, Node, NodeError, Path},
    subscriptions::Subscription,
    supervise::{BudgetLimits, ChildSpec, Supervisor, SupervisorArgs},
    wiring::Wiring,
    worker::{Chore, Pass, Worker, WorkerMsg},
};

/// The path of the supervisor of all extensions, below infra.
pub(crate) const EXTENSIONS: &str = "extensions";

/// The supervisor of all extensions. It has a restart budget of its own, so that an extension that panics again and again does
/// not use up the one of the log writer.
pub(crate) fn supervisor(wiring: &Arc<Wiring>) -> ChildSpec {
    let wiring = wiring.clone();
    ChildSpec::permanent::<Supervisor>(EXTENSIONS, move || SupervisorArgs {
        children: children(&wiring),
        budget: BudgetLimits { restarts_max: 10, window_ms: 10_000 },
    })
}

fn children(wiring: &Arc<Wiring>) -> Vec<ChildSpec> {
    let Installed { chores, subscribers, channels } = &wiring.extensions;
    let chores = chores.iter().cloned().map(|chore| {
        let wiring = wiring.clone();
        let name = chore_name(chore.as_ref());
        ChildSpec::permanent::<Worker<Extension>>(&name, move || (chore.clone(), wiring.clone()))
    });
    let subscribers = subscribers.iter().cloned().map(|subscribed| {
        let name = subscriber_name(subscribed.subscriber.as_ref());
        ChildSpec::permanent::<Subscriber>(&name, move || subscribed.clone())
    });
    let channels = channels.iter().cloned().map(|channel| {
        let wiring = wiring.clone();
        let name = channel_name(channel.as_ref());
        ChildSpec::permanent::<Worker<Delivery>>(&name, move || (channel.clone(), wiring.clone()))
    });
    chores.chain(subscribers).chain(channels).collect()
}

/// What the log writer does for the subscribers and the channels.
pub(crate) fn subscriptions<M: Named + Send + 'static>(
    all: &Installed,
    log: &Handle<M>,
    infra: &Path,
) -> Vec<Subscription> {
    let extensions = infra.child(EXTENSIONS);
    let one = |Subscribed { subscriber, topics, missed }: &Subscribed| {
        let actor: Handle<SubscriberMsg> = log.sibling(extensions.child(&subscriber_name(subscriber.as_ref())));
        let (to, missed) = (actor.clone(), missed.clone());
        Subscription {
            topics: *topics,
            stored: Box::new(move |stored| {
                // If the actor is dead, its next incarnation reads the store.
                if to.cast(SubscriberMsg::Stored(stored.event.clone())).is_err() {
                    missed.store(true, Relaxed);
                }
            }),
            reread: Box::new(move || {
                actor.tell(SubscriberMsg::Reread);
            }),
        }
    };
    // Whether a text has an address is stored with it, so every channel reads its own.
    let channel = |channel: &Arc<dyn ports::Channel>| {
        let actor = log.sibling::<WorkerMsg<Delivery>>(extensions.child(&channel_name(channel.as_ref())));
        Subscription::of_actor(Topics::FINAL_TEXT, actor, |_| Some(WorkerMsg::New(())), || WorkerMsg::New(()))
    };
    all.subscribers.iter().map(one).chain(all.channels.iter().map(channel)).collect()
}

/// The worker of a chore that stands outside the kernel.
pub(crate) struct Extension {
    chore: Arc<dyn ports::Chore>,
    passes: u64,
}

impl Chore for Extension {
    const KIND: &'static str = "chore";
    const SUBJECT: &'static str = "the work of an extension";
    type Config = Arc<dyn ports::Chore>;
    type Hint = ();
    type Batch = Arc<dyn ports::Chore>;
    type Done = ();

    fn new(chore: Arc<dyn ports::Chore>, _wiring: Arc<Wiring>, _owner: Branch) -> Self {
        Self { chore, passes: 0 }
    }

    fn take_hint(&mut self, (): ()) -> u64 {
        0
    }

    fn batch(&mut self) -> Arc<dyn ports::Chore> {
        self.chore.clone()
    }

    async fn pass(wiring: &Wiring, chore: &Arc<dyn ports::Chore>) -> Result<Pass<()>, String> {
        chore.pass(wiring.env.now()).await.map(|next| Pass { next, done: () })
    }

    fn passed(&mut self, (): ()) {
        self.passes += 1;
    }

    fn view(&self) -> Map<String, Value> {
        [("passes".to_owned(), self.passes.into())].into_iter().collect()
    }
}

/// Messages of a subscriber's actor.
pub(crate) enum SubscriberMsg {
    /// An event was stored.
    Stored(Arc<Event>),
    /// Events may have been stored that were not received.
    Reread,
}

impl Named for SubscriberMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Stored(_) => "Stored",
            Self::Reread => "Reread",
        }
    }

    fn again(&self) -> Option<Self> {
        matches!(self, Self::Reread).then_some(Self::Reread)
    }
}

pub(crate) struct SubscriberState {
    subscribed: Subscribed,
    received: u64,
}

/// The actor of a subscriber.
pub(crate) struct Subscriber;

impl Node for Subscriber {
    type Msg = SubscriberMsg;
    type Args = Subscribed;
    type State = SubscriberState;
    const KIND: &'static str = "subscriber";

    fn init(_ctx: &Context<Self>, subscribed: Subscribed) -> Result<SubscriberState, NodeError> {
        Ok(SubscriberState { subscribed, received: 0 })
    }

    async fn ready(_ctx: &Context<Self>, state: &mut SubscriberState) -> Result<(), NodeError> {
        state.subscribed.missed.store(false, Relaxed);
        state.subscribed.subscriber.reread();
        Ok(())
    }

    async fn handle(_ctx: &Context<Self>, state: &mut SubscriberState, msg: SubscriberMsg) -> Result<(), NodeError> {
        match msg {
            SubscriberMsg::Stored(event) => {
                state.subscribed.subscriber.stored(&event);
                state.received += 1;
            }
            SubscriberMsg::Reread => state.subscribed.missed.store(true, Relaxed),
        }
        if state.subscribed.missed.swap(false, Relaxed) {
            state.subscribed.subscriber.reread();
        }
        Ok(())
    }

    fn view(state: &SubscriberState) -> Value {
        json!({"received": state.received})
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use annie_core::{
        event::{EventBody, Topics},
        ids::{AgentId, ConversationId, Seq, TaskId, UserId},
    };
    use annie_testkit::env::env;

    use super::*;
    use crate::{
        extensions::Extensions,
        observe::{Directory, System, spawn},
        subscriptions::Stored,
    };

    #[derive(Default)]
    struct Counter {
        stored: AtomicU64,
        reread: AtomicU64,
    }

    impl ports::LogSubscriber for Counter {
        fn name(&self) -> &'static str {
            "counter"
        }

        fn topics(&self) -> Topics {
            Topics::FINAL_TEXT
        }

        fn stored(&self, _event: &Event) {
            self.stored.fetch_add(1, Relaxed);
        }

        fn reread(&self) {
            self.reread.fetch_add(1, Relaxed);
        }
    }

    #[tokio::test]
    async fn subscriber_of_extension_whose_mailbox_was_full_reads_the_store_again() {
        let counter = Arc::new(Counter::default());
        let extensions = Extensions { subscribers: vec![counter.clone()], ..Extensions::default() };
        let installed = extensions.install().unwrap();
        let system = Arc::new(System { env: env(1), directory: Arc::new(Directory::new()) });
        let infra = Path::root().child("infra");
        let path = infra.child(EXTENSIONS).child("subscriber:counter");
        let actor: Handle<SubscriberMsg> = system.handle(&path);
        spawn::<Subscriber>(&system, path, installed.subscribers[0].clone(), None).await.expect("it starts");
        while actor.resolve().is_err() || counter.reread.load(Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let log: Handle<SubscriberMsg> = system.handle(&infra.child("log"));
        let to = subscriptions(&installed, &log, &infra);
        let (id, user) = (system.env.uuid(), UserId::new("ann").unwrap());
        let event = Arc::new(Event {
            conversation: ConversationId::from_uuid(id),
            seq: Seq(1),
            at: system.env.now(),
            task: TaskId::from_uuid(id),
            agent: AgentId::orchestrator(),
            body: EventBody::ResultsGiven,
        });
        // The actor handles no message before this test waits, so the last event finds a full mailbox.
        for _ in 0..=Subscriber::MAILBOX_MAX {
            (to[0].stored)(&Stored { conversation: event.conversation, user: &user, event: &event });
        }
        let accepted = u64::try_from(Subscriber::MAILBOX_MAX).unwrap();
        while counter.stored.load(Relaxed) < accepted {
            tokio::task::yield_now().await;
        }
        assert_eq!((counter.stored.load(Relaxed), counter.reread.load(Relaxed)), (accepted, 2));
    }
}
