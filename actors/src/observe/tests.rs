//! The wrapper by itself, around an actor that does nothing.

use std::{sync::Arc, time::Duration};

use annie_testkit::{env::env, faults::FaultPlan};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Addr, Context, Directory, Named, Node, NodeError, Path, SendError, System, node::spawn};
use crate::tasks::Tasks;

enum IdlerMsg {
    Wait(oneshot::Receiver<()>),
    Answer(oneshot::Sender<()>),
    Break,
}

impl Named for IdlerMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Wait(_) => "Wait",
            Self::Answer(_) => "Answer",
            Self::Break => "Break",
        }
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
            IdlerMsg::Break => tasks.spawn((), async { panic!("the task breaks down") }),
        }
        Ok(())
    }

    fn view(_tasks: &Tasks<()>) -> Value {
        json!({})
    }
}

async fn idler() -> Addr<IdlerMsg> {
    let mut env = env(1);
    env.faults = Some(Arc::new(FaultPlan::recording()));
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
