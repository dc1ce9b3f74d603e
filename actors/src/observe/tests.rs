//! Tests of the wrapper, around an actor without behaviour of its own.

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
    spawn::<Idler>(&system, Path::root().child("idler"), (), None).await.expect("the actor starts").0
}

#[tokio::test]
async fn mailbox_full_refuses_requests_and_accepts_facts() {
    let idler = idler().await;
    let (resume, until) = oneshot::channel();
    idler.cast(IdlerMsg::Wait(until)).expect("the mailbox has capacity");
    while idler.meter.busy_since_us.load(std::sync::atomic::Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let (reply, request) = oneshot::channel();
    idler.cast(IdlerMsg::Answer(reply)).expect("the mailbox has capacity for one message");
    let (reply, _refused) = oneshot::channel();
    assert_eq!(idler.cast(IdlerMsg::Answer(reply)), Err(SendError::Overloaded));
    let (reply, fact) = oneshot::channel();
    assert!(idler.tell(IdlerMsg::Answer(reply)));
    resume.send(()).expect("the handler waits");
    assert_eq!((request.await, fact.await), (Ok(()), Ok(())));
}

#[tokio::test]
async fn actor_whose_task_panics_ends() {
    let idler = idler().await;
    idler.cast(IdlerMsg::Break).expect("the mailbox has capacity");
    idler.cell.wait(Some(Duration::from_secs(5))).await.expect("the actor ends");
    assert!(!idler.tell(IdlerMsg::Break));
}

/// Injects these faults into arriving messages, one after the other, and no other faults.
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
async fn hint_is_duplicated_or_delayed_by_fault_and_request_is_not() {
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
    assert_eq!(got, [2, 2, 3, 1], "the second hint arrives twice, and the first is overtaken");
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

/// Sends its number when its state is dropped.
struct Child;

struct DropReporter(u32, UnboundedSender<u32>);

impl Drop for DropReporter {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.1.send(self.0);
    }
}

impl Node for Child {
    type Msg = IdlerMsg;
    type Args = DropReporter;
    type State = DropReporter;
    const KIND: &'static str = "child";

    fn init(_ctx: &Context<Self>, args: DropReporter) -> Result<DropReporter, NodeError> {
        Ok(args)
    }

    async fn handle(_ctx: &Context<Self>, _state: &mut DropReporter, _msg: IdlerMsg) -> Result<(), NodeError> {
        Ok(())
    }

    fn view(_state: &DropReporter) -> Value {
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
            let child = DropReporter(n, ends.clone());
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
async fn children_end_in_start_order_when_parent_ends() {
    for by in [EndsBy::Stop, EndsBy::Failure, EndsBy::Panic, EndsBy::Kill] {
        let system = Arc::new(System { env: env(1), directory: Arc::new(Directory::new()) });
        let (ends, mut ended) = mpsc::unbounded_channel();
        let (parent, _) =
            spawn::<Parent>(&system, Path::root().child("parent"), ends, None).await.expect("the actor starts");
        parent.cast(by).expect("the mailbox has capacity");
        let mut order = Vec::new();
        while let Some(n) = ended.recv().await {
            order.push(n);
        }
        assert_eq!(order, (0..CHILDREN).collect::<Vec<_>>(), "{by:?}");
    }
}

#[tokio::test]
async fn children_end_in_start_order_when_idle_parent_is_killed() {
    let system = Arc::new(System { env: env(1), directory: Arc::new(Directory::new()) });
    let (ends, mut ended) = mpsc::unbounded_channel();
    let path = Path::root().child("parent");
    let _parent = spawn::<Parent>(&system, path.clone(), ends, None).await.expect("the actor starts");
    while system.directory.len() < 1 + CHILDREN as usize {
        tokio::task::yield_now().await;
    }
    system.directory.get(&path).expect("the actor runs").kill();
    let mut order = Vec::new();
    while let Some(n) = ended.recv().await {
        order.push(n);
    }
    assert_eq!(order, (0..CHILDREN).collect::<Vec<_>>());
}
