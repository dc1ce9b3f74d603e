//! The root of the tree: a supervisor that notifies the process when the kernel has ended.
//!
//! Owns: the permanent actors. Supervised by: the process, which exits non-zero so that the service manager starts it again.
//! Survives its death: the log and the store's other tables, from which the next process starts.

use std::{fmt, sync::Arc};

use serde_json::Value;
use tokio::sync::watch;

use crate::{
    observe::{ChildEnded, Context, Node, NodeError},
    supervise::{Supervisor, SupervisorArgs, SupervisorMsg, SupervisorState},
};

/// Why a kernel ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// It was stopped on request.
    Asked,
    /// The root used up its restart budget or died: the process should exit and be started again.
    Failed(String),
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("stopped as asked"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

pub(crate) struct RootArgs {
    pub tree: SupervisorArgs,
    pub ended: Arc<watch::Sender<Option<StopReason>>>,
}

pub(crate) struct RootState {
    inner: SupervisorState,
    ended: Arc<watch::Sender<Option<StopReason>>>,
}

impl Drop for RootState {
    fn drop(&mut self) {
        self.ended.send_if_modified(|reason| {
            let is_unreported = reason.is_none();
            if is_unreported {
                *reason = Some(StopReason::Failed("the root was killed".to_owned()));
            }
            is_unreported
        });
    }
}

/// The root's actor.
pub(crate) struct Root;

impl Node for Root {
    type Msg = SupervisorMsg;
    type Args = RootArgs;
    type State = RootState;
    const KIND: &'static str = "root";

    fn init(ctx: &Context<Self>, args: RootArgs) -> Result<RootState, NodeError> {
        Ok(RootState { inner: Supervisor::init(&ctx.cast(), args.tree)?, ended: args.ended })
    }

    async fn ready(ctx: &Context<Self>, state: &mut RootState) -> Result<(), NodeError> {
        let ready = Supervisor::ready(&ctx.cast(), &mut state.inner).await;
        report_failure(state, ready)
    }

    async fn handle(ctx: &Context<Self>, state: &mut RootState, msg: SupervisorMsg) -> Result<(), NodeError> {
        let handled = Supervisor::handle(&ctx.cast(), &mut state.inner, msg).await;
        report_failure(state, handled)
    }

    async fn child_ended(ctx: &Context<Self>, state: &mut RootState, ended: ChildEnded) -> Result<(), NodeError> {
        let handled = Supervisor::child_ended(&ctx.cast(), &mut state.inner, ended).await;
        report_failure(state, handled)
    }

    async fn stopping(ctx: &Context<Self>, state: &mut RootState) {
        Supervisor::stopping(&ctx.cast(), &mut state.inner).await;
        state.ended.send_replace(Some(StopReason::Asked));
    }

    fn view(state: &RootState) -> Value {
        Supervisor::view(&state.inner)
    }
}

/// Notifies the process of an error before the root dies. Such an error is the end of the kernel.
fn report_failure(state: &RootState, handled: Result<(), NodeError>) -> Result<(), NodeError> {
    if let Err(e) = &handled {
        tracing::error!(error = %e, "the root gives up");
        state.ended.send_replace(Some(StopReason::Failed(e.to_string())));
    }
    handled
}
