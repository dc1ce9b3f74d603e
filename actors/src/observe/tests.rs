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
        Ok(Tasks::of(ctx.branch()))
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
    spawn::<Idler>(&system, Path::root().child("idler"), (), None).await.expect("it starts").0
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

/// How a parent ends.
#[derive(Debug, Clone, Copy)]
enum EndsBy {
    Stop,
    Failure,
    Panic,
    Kill,
}

impl Named for EndsBy {
    fn name(&self) -> &'static str {
        "EndsBy"
    }
}

/// Says its number when its state is dropped.
struct Child;

struct TellsItsEnd(u32, UnboundedSender<u32>);

impl Drop for TellsItsEnd {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.1.send(self.0);
    }
}

impl Node for Child {
    type Msg = IdlerMsg;
    type Args = TellsItsEnd;
    type State = TellsItsEnd;
    const KIND: &'static str = "child";

    fn init(_ctx: &Context<Self>, args: TellsItsEnd) -> Result<TellsItsEnd, NodeError> {
        Ok(args)
    }

    async fn handle(_ctx: &Context<Self>, _state: &mut TellsItsEnd, _msg: IdlerMsg) -> Result<(), NodeError> {
        Ok(())
    }

    fn view(_state: &TellsItsEnd) -> Value {
        json!({})
    }
}

struct Parent;

const CHILDREN: u32 = 8;

impl Node for Parent {
    type Msg = EndsBy;
    type Args = UnboundedSender<u32>;
    type State = UnboundedSender<u32>;
    const KIND: &'static str = "parent";

    fn init(_ctx: &Context<Self>, ends: UnboundedSender<u32>) -> Result<UnboundedSender<u32>, NodeError> {
        Ok(ends)
    }

    async fn ready(ctx: &Context<Self>, ends: &mut UnboundedSender<u32>) -> Result<(), NodeError> {
        for n in 0..CHILDREN {
            let child = TellsItsEnd(n, ends.clone());
            ctx.spawn::<Child>(&format!("child:{n}"), child).await.map_err(|e| NodeError::new(e.to_string()))?;
        }
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, _ends: &mut UnboundedSender<u32>, by: EndsBy) -> Result<(), NodeError> {
        match by {
            EndsBy::Stop => ctx.stop(),
            EndsBy::Failure => return Err(NodeError::new("the parent fails")),
            EndsBy::Panic => panic!("the parent panics"),
            EndsBy::Kill => ctx.branch().kill(),
        }
        Ok(())
    }

    fn view(_ends: &UnboundedSender<u32>) -> Value {
        json!({})
    }
}

#[tokio::test]
async fn children_of_an_actor_that_ends_are_ended_in_the_order_in_which_they_were_started() {
    for by in [EndsBy::Stop, EndsBy::Failure, EndsBy::Panic, EndsBy::Kill] {
        let system = Arc::new(System { env: env(1), directory: Arc::new(Directory::new()) });
        let (ends, mut ended) = mpsc::unbounded_channel();
        let (parent, _) = spawn::<Parent>(&system, Path::root().child("parent"), ends, None).await.expect("it starts");
        parent.cast(by).expect("there is room");
        let mut order = Vec::new();
        while let Some(n) = ended.recv().await {
            order.push(n);
        }
        assert_eq!(order, (0..CHILDREN).collect::<Vec<_>>(), "{by:?}");
    }
}

#[tokio::test]
async fn children_of_an_idle_actor_that_is_killed_are_ended_in_the_order_in_which_they_were_started() {
    let system = Arc::new(System { env: env(1), directory: Arc::new(Directory::new()) });
    let (ends, mut ended) = mpsc::unbounded_channel();
    let path = Path::root().child("parent");
    let _parent = spawn::<Parent>(&system, path.clone(), ends, None).await.expect("it starts");
    while system.directory.len() < 1 + CHILDREN as usize {
        tokio::task::yield_now().await;
    }
    system.directory.get(&path).expect("it runs").kill();
    let mut order = Vec::new();
    while let Some(n) = ended.recv().await {
        order.push(n);
    }
    assert_eq!(order, (0..CHILDREN).collect::<Vec<_>>());
}
