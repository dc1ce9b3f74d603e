//! The actors of extensions.
//!
//! Owns: nothing beside the extension. Supervised by: infra. Survives its death: the extension itself; an incarnation begins with
//! a pass, or with the request to read the store again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use annie_core::{
    event::Event,
    ports::{self, LogSubscriber},
};
use serde_json::{Map, Value, json};

use super::{Extensions, chore_name, subscriber_name};
use crate::{
    observe::{Branch, Context, Handle, Named, Node, NodeError, Path},
    subscriptions::Subscription,
    supervise::ChildSpec,
    wiring::Wiring,
    worker::{Chore, Pass, Worker},
};

/// The actors.
pub(crate) fn children(all: &Extensions, wiring: &Arc<Wiring>) -> Vec<ChildSpec> {
    let chores = all.chores.iter().cloned().map(|chore| {
        let wiring = wiring.clone();
        let name = chore_name(chore.as_ref());
        ChildSpec::permanent::<Worker<Extension>>(&name, move || (chore.clone(), wiring.clone()))
    });
    let subscribers = all.subscribers.iter().cloned().map(|subscriber| {
        let name = subscriber_name(subscriber.as_ref());
        ChildSpec::permanent::<Subscriber>(&name, move || subscriber.clone())
    });
    chores.chain(subscribers).collect()
}

/// What the log writer does for the subscribers.
pub(crate) fn subscriptions<M: Named + Send + 'static>(
    all: &Extensions,
    log: &Handle<M>,
    infra: &Path,
) -> Vec<Subscription> {
    let one = |subscriber: &Arc<dyn LogSubscriber>| {
        let actor: Handle<SubscriberMsg> = log.sibling(infra.child(&subscriber_name(subscriber.as_ref())));
        let (to, missed) = (actor.clone(), AtomicBool::new(false));
        Subscription {
            topics: subscriber.topics(),
            stored: Box::new(move |stored| {
                if to.cast(SubscriberMsg::Stored(stored.event.clone())).is_err() {
                    missed.store(true, Relaxed);
                } else if missed.swap(false, Relaxed) {
                    to.tell(SubscriberMsg::Reread);
                }
            }),
            reread: Box::new(move || {
                actor.tell(SubscriberMsg::Reread);
            }),
        }
    };
    all.subscribers.iter().map(one).collect()
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
    subscriber: Arc<dyn LogSubscriber>,
    received: u64,
}

/// The actor of a subscriber.
pub(crate) struct Subscriber;

impl Node for Subscriber {
    type Msg = SubscriberMsg;
    type Args = Arc<dyn LogSubscriber>;
    type State = SubscriberState;
    const KIND: &'static str = "subscriber";

    fn init(_ctx: &Context<Self>, subscriber: Arc<dyn LogSubscriber>) -> Result<SubscriberState, NodeError> {
        Ok(SubscriberState { subscriber, received: 0 })
    }

    async fn ready(_ctx: &Context<Self>, state: &mut SubscriberState) -> Result<(), NodeError> {
        state.subscriber.reread();
        Ok(())
    }

    async fn handle(_ctx: &Context<Self>, state: &mut SubscriberState, msg: SubscriberMsg) -> Result<(), NodeError> {
        match msg {
            SubscriberMsg::Stored(event) => {
                state.subscriber.stored(&event);
                state.received += 1;
            }
            SubscriberMsg::Reread => state.subscriber.reread(),
        }
        Ok(())
    }

    fn view(state: &SubscriberState) -> Value {
        json!({"received": state.received})
    }
}
