//! The actor tree: list, view, operate.

use std::convert::identity;

use annie_actors::{Crash, Kernel, NodeInfo, OperatedActor, Operation as Command};
use annie_core::ids::Incarnation;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    acts::{Subject, optional_reason, reason, recorded},
    row::{
        Call, Operation,
        Verb::{Get, Post},
        route,
    },
};
use crate::{
    api::{TreePage, actor_path, page},
    auth::{
        KeyScope::{OpsControl, OpsRead},
        Need::Scope,
    },
    error::{ApiError, Code},
    grpc::{convert, v1},
    http::extract::{Args, Body, whole_option},
};

/// The operations on actors.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/actors", Scope(OpsRead), list_actors, Tree::from)
            .about("list_actors", "operations", "List actors.", "actors tree")
            .rpc("/annie.v1.Actors/Tree", asked_tree, listed),
        route(Get, "/api/v1/actors/view", Scope(OpsRead), view_actor, ActorView::from)
            .about("view_actor", "operations", "Get an actor.", "actors show")
            .rpc("/annie.v1.Actors/View", |r: v1::ViewRequest| Ok(Args(ViewArgs { path: r.path })), viewed),
        route(Get, "/api/v1/actors/crashes", Scope(OpsRead), list_crashes, identity)
            .about("list_crashes", "operations", CRASHES, "actors crashes")
            .http_only(),
        route(
            Post,
            "/api/v1/actors/stop",
            Scope(OpsControl),
            recorded("actor.stop", about, stop_actor),
            ActorSnapshot::from,
        )
        .about("stop_actor", "operations", "Stop an actor gracefully.", "actors stop")
        .rpc("/annie.v1.Actors/Stop", asked_act, operated),
        route(
            Post,
            "/api/v1/actors/kill",
            Scope(OpsControl),
            recorded("actor.kill", about, kill_actor),
            ActorSnapshot::from,
        )
        .about("kill_actor", "operations", "Kill an actor at once.", "actors kill")
        .rpc("/annie.v1.Actors/Kill", asked_act, operated),
        route(
            Post,
            "/api/v1/actors/restart",
            Scope(OpsControl),
            recorded("actor.restart", about, restart_actor),
            ActorSnapshot::from,
        )
        .about("restart_actor", "operations", "Stop an actor and start its next incarnation.", "actors restart")
        .rpc("/annie.v1.Actors/Restart", asked_act, operated),
    ]
}

const CRASHES: &str = "List the most recent crashes, and apart from them the ends that operators requested.";

/// Actors, ordered by path.
#[derive(Debug, Serialize, ToSchema)]
pub struct Tree {
    /// Path, kind, incarnation, status, mailbox, and the message that is being handled.
    #[schema(value_type = Vec<Object>)]
    actors: Vec<NodeInfo>,
    /// The number of actors in the subtree, on this page and all others.
    total: usize,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TreeArgs {
    /// Only the subtree at this path.
    under: Option<String>,
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^(/[ -~]*)?$")]
    next: Option<String>,
    /// The maximum number of rows; 1000 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 5000)]
    limit: Option<String>,
}

impl From<TreePage> for Tree {
    fn from(page: TreePage) -> Self {
        let TreePage { actors, total, next } = page;
        Self { actors, total, next }
    }
}

fn listed(page: TreePage) -> v1::TreeResponse {
    let actors = page.actors.into_iter().map(convert::actor).collect();
    v1::TreeResponse { actors, total: page.total as u64, next: page.next.unwrap_or_default() }
}

fn asked_tree(asked: v1::TreeRequest) -> Result<Args<TreeArgs>, ApiError> {
    let v1::TreeRequest { under, limit, next } = asked;
    Ok(Args(TreeArgs { under: Some(under), next: Some(next), limit: page::text_of(limit) }))
}

async fn list_actors(call: Call, Args(args): Args<TreeArgs>) -> Result<TreePage, ApiError> {
    let limit = page::ACTORS.of_text(args.limit.as_deref())?;
    let after = args.next.as_deref().unwrap_or_default();
    let under = args.under.as_deref().unwrap_or_default();
    TreePage::of(&call.state.kernel, under, after, limit)
}

/// An actor and its own view of its state.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActorView {
    #[schema(value_type = Object)]
    actor: NodeInfo,
    /// The actor's own view of its state; absent if the actor is too busy to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    view: Option<Value>,
}

/// An actor, and its view unless it is too busy.
type Viewed = (NodeInfo, Option<Value>);

impl From<Viewed> for ActorView {
    fn from((actor, view): Viewed) -> Self {
        Self { actor, view }
    }
}

fn viewed((actor, view): Viewed) -> v1::ViewResponse {
    v1::ViewResponse { actor: Some(convert::actor(actor)), view_json: view.map(|view| view.to_string()) }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ViewArgs {
    /// The path of the actor, such as `/scheduler`.
    path: String,
}

async fn view_actor(call: Call, Args(args): Args<ViewArgs>) -> Result<Viewed, ApiError> {
    Ok(call.state.kernel.view(&actor_path(&args.path)).await?)
}

/// Crashes of actors.
#[derive(Debug, Serialize, ToSchema)]
pub struct Crashes {
    /// Oldest first: path, incarnation, reason, time, and the kinds of the last messages.
    #[schema(value_type = Vec<Object>)]
    crashes: Vec<Crash>,
    /// Oldest first: path, incarnation, operation, operator with reason, and time.
    #[schema(value_type = Vec<Object>)]
    operated: Vec<OperatedActor>,
}

async fn list_crashes(call: Call, (): ()) -> Result<Crashes, ApiError> {
    let kernel = &call.state.kernel;
    Ok(Crashes { crashes: kernel.crashes(), operated: kernel.operated() })
}

/// An operator command on an actor.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// The path of the actor.
    path: String,
    /// The expected incarnation. The command is refused if the actor has another one.
    #[serde(default, deserialize_with = "whole_option")]
    incarnation: Option<u64>,
    /// The reason, which the record of actions shows; required to kill and to restart.
    #[serde(default)]
    #[schema(max_length = 200)]
    reason: Option<String>,
    /// Required for the root (`/`), because the whole server ends with it, and to kill or restart an actor whose incarnation is not
    /// named.
    #[serde(default)]
    force: bool,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

/// The actor as it was when the operation took effect.
#[derive(Debug, Serialize, ToSchema)]
pub struct ActorSnapshot {
    #[schema(value_type = Object)]
    actor: NodeInfo,
    /// What the operation does, or would do.
    effect: String,
    /// Whether the request only asked what would happen.
    dry_run: bool,
}

/// What an operation did to an actor, or would do.
struct Operated {
    actor: NodeInfo,
    effect: String,
    is_dry: bool,
}

impl From<Operated> for ActorSnapshot {
    fn from(Operated { actor, effect, is_dry }: Operated) -> Self {
        Self { actor, effect, dry_run: is_dry }
    }
}

fn operated(Operated { actor, effect, is_dry }: Operated) -> v1::ActResponse {
    v1::ActResponse { actor: Some(convert::actor(actor)), effect, dry_run: is_dry }
}

fn asked_act(asked: v1::ActRequest) -> Result<Body<Act>, ApiError> {
    let v1::ActRequest { path, incarnation, reason, force, dry_run } = asked;
    Ok(Body(Act { path, incarnation: Some(incarnation).filter(|n| *n > 0), reason: Some(reason), force, dry_run }))
}

fn about(Body(act): &Body<Act>) -> Subject {
    Subject::of(actor_path(&act.path)).because(act.reason.as_deref().unwrap_or_default()).unless(act.dry_run)
}

async fn operate(call: Call, act: Act, operation: Command) -> Result<Operated, ApiError> {
    let (path, kernel) = (actor_path(&act.path), &call.state.kernel);
    let is_dangerous = matches!(operation, Command::Kill | Command::Restart);
    if act.dry_run {
        let actor = kernel.actor(&path)?;
        if act.incarnation.is_some_and(|expected| Incarnation(expected) != actor.incarnation) {
            let why = format!("{path} is now incarnation {}: look again before you act", actor.incarnation);
            return Err(ApiError::new(Code::Stale, why));
        }
        let effect = effect_of(kernel, &actor, operation);
        return Ok(Operated { actor, effect, is_dry: true });
    }
    if path.trim_matches('/').is_empty() && !act.force {
        let why = "`/` is the root: the whole server ends with it; set `force` (--force) if that is meant, or name an \
                   actor below it";
        return Err(ApiError::invalid(why).at("force"));
    }
    let why = if is_dangerous { reason(act.reason.as_deref())? } else { optional_reason(act.reason.as_deref())? };
    let actor = kernel.actor(&path)?;
    if is_dangerous && act.incarnation.is_none() && !act.force {
        let now = actor.incarnation;
        let why = format!(
            "name the incarnation that is meant (--incarnation {now}), or set `force` (--force) for whichever runs"
        );
        return Err(ApiError::invalid(why).at("incarnation"));
    }
    let effect = effect_of(kernel, &actor, operation);
    let by = if why.is_empty() { call.caller.name() } else { format!("{}: {why}", call.caller.name()) };
    let actor = kernel.operate(&path, act.incarnation.map(Incarnation), operation, &by).await?;
    Ok(Operated { actor, effect, is_dry: false })
}

/// What an operation does to an actor, in one sentence.
fn effect_of(kernel: &Kernel, actor: &NodeInfo, operation: Command) -> String {
    let path = actor.path.as_str();
    let prefix = format!("{}/", path.trim_end_matches('/'));
    let below =
        kernel.tree().iter().filter(|one| one.path.as_str().starts_with(&prefix) && one.path != actor.path).count();
    let how = match operation {
        Command::Kill => "ends at once",
        Command::Stop | Command::Restart => "ends after its current message",
    };
    let parent = path.rsplit_once('/').map_or("/", |(parent, _)| if parent.is_empty() { "/" } else { parent });
    let then = match actor.kind {
        "root" => "the server ends".to_owned(),
        "sub_agent" => format!("{parent} reports it as crashed"),
        _ => format!("{parent} starts it again if it has work"),
    };
    format!(
        "{path} (incarnation {}) {how}, with {below} actors below it and {} messages in its mailbox; {then}",
        actor.incarnation, actor.mailbox_depth
    )
}

async fn stop_actor(call: Call, Body(act): Body<Act>) -> Result<Operated, ApiError> {
    operate(call, act, Command::Stop).await
}

async fn kill_actor(call: Call, Body(act): Body<Act>) -> Result<Operated, ApiError> {
    operate(call, act, Command::Kill).await
}

async fn restart_actor(call: Call, Body(act): Body<Act>) -> Result<Operated, ApiError> {
    operate(call, act, Command::Restart).await
}
