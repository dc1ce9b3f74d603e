//! The wrapper by itself, around an actor that does nothing.

use std::{sync::Arc, time::Duration};

use annie_core::ports::{FaultAction, Faults};
use annie_testkit::{env::env, faults::FaultPlan};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{
    mpsc::{self, UnboundedSender},
    oneshot,
};

use super::{Addr, Context, Directory, Named, Node, NodeError, Path, SendError, System, node::spawn};
use crate::tasks::Tasks;

enum IdlerMsg {
    Wait(oneshot::Receiver<()>),
    Answer(oneshot::Sender<()>),
    Break,
    /// May arrive twice, and late.
    Hint(u32, UnboundedSender<u32>),
}

impl Named for IdlerMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Wait(_) => "Wait",
            Self::Answer(_) => "Answer",
            Self::Break => "Break",
            Self::Hint(..) => "Hint",
        }
    }

    fn again(&self) -> Option<Self> {
        let Self::Hint(n, seen) = self else { return None };
        Some(Self::Hint(*n, seen.clone()))
    }
}

struct Idler;

impl Node for Idler {
    type Msg = IdlerMsg;
    type Args = ();
    type State = Tasks<()>;
    const KIND: &'static str = "idler";
    const MAILBOX_MAX: usize = 1;

    fn init(ctx: &Context<Self>, (): ()) -> Result<Tasks<()>, NodeError> {
        Ok(Tasks::of(ctx.cell()))
    }

    async fn handle(_ctx: &Context<Self>, tasks: &mut Tasks<()>, msg: IdlerMsg) -> Result<(), NodeError> {
        match msg {
            IdlerMsg::Wait(until) => drop(until.await),
            IdlerMsg::Answer(reply) => drop(reply.send(())),
            IdlerMsg::Hint(n, seen) => drop(seen.send(n)),
            IdlerMsg::Break => tasks.spawn((), async { panic!("the task breaks down") }),
        }
        Ok(())
    }

    fn view(_tasks: &Tasks<()>) -> Value {
        json!({})
    }
}

async fn idler() -> Addr<IdlerMsg> {
    idler_with(Arc::new(FaultPlan::recording())).await
}

async fn idler_with(faults: Arc<dyn Faults>) -> Addr<IdlerMsg> {
    let mut env = env(1);
    env.faults = Some(faults);
    let system = Arc::new(System { env, directory: Arc::new(Directory::new()) });
    spawn::<Idler>(&system, Path::root().child("idler"), (), None).await.expect("it starts")
}

#[tokio::test]
async fn a_full_mailbox_refuses_requests_and_takes_facts() {
    let idler = idler().await;
    let (go_on, until) = oneshot::channel();
    idler.cast(IdlerMsg::Wait(until)).expect("there is room");
    while idler.meter.busy_since_us.load(std::sync::atomic::Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let (reply, request) = oneshot::channel();
    idler.cast(IdlerMsg::Answer(reply)).expect("there is room for one");
    let (reply, _refused) = oneshot::channel();
    assert_eq!(idler.cast(IdlerMsg::Answer(reply)), Err(SendError::Overloaded));
    let (reply, fact) = oneshot::channel();
    assert!(idler.tell(IdlerMsg::Answer(reply)));
    go_on.send(()).expect("it waits");
    assert_eq!((request.await, fact.await), (Ok(()), Ok(())));
}

#[tokio::test]
async fn an_actor_whose_task_breaks_down_ends_instead_of_waiting_for_ever() {
    let idler = idler().await;
    idler.cast(IdlerMsg::Break).expect("there is room");
    idler.cell.wait(Some(Duration::from_secs(5))).await.expect("it ends");
    assert!(!idler.tell(IdlerMsg::Break));
}

/// Does these to messages on their way, one after the other, and nothing else.
struct OnTheWay(Mutex<Vec<FaultAction>>);

impl Faults for OnTheWay {
    fn at(&self, _actor: &str, _point: &str) -> FaultAction {
        FaultAction::Pass
    }

    fn in_mail(&self, _actor: &str, _path: &str, point: &str) -> FaultAction {
        let mut left = self.0.lock();
        if point.starts_with("arrival:") && !left.is_empty() { left.remove(0) } else { FaultAction::Pass }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_arrives_twice_or_late_if_a_fault_says_so_and_a_request_does_not() {
    let slow = FaultAction::Slow { wait_ms: 1_000 };
    let idler = idler_with(Arc::new(OnTheWay(Mutex::new(vec![slow, FaultAction::Twice, FaultAction::Pass])))).await;
    let (seen, mut hints) = mpsc::unbounded_channel();
    for n in [1, 2, 3] {
        assert!(idler.tell(IdlerMsg::Hint(n, seen.clone())));
    }
    let (reply, request) = oneshot::channel();
    assert!(idler.tell(IdlerMsg::Answer(reply)));
    assert_eq!(request.await, Ok(()));
    drop(seen);
    let mut got = Vec::new();
    while let Some(n) = hints.recv().await {
        got.push(n);
    }
    assert_eq!(got, [2, 2, 3, 1], "the second came twice, and the first was overtaken");
}
