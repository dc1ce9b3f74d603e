//! The table of operations: what HTTP, gRPC and the command line offer, each operation once, with its name, request, result,
//! scope and handler. The HTTP routes, their OpenAPI description, the unary gRPC methods and the access rules follow from the
//! table. Streams and the OpenAI-compatible API are not in it.

mod actors;
pub(crate) mod acts;
mod agents;
mod approvals;
mod audit;
pub mod built;
pub mod conversations;
mod data;
mod dead_letters;
mod deletions;
mod events;
mod input;
mod jobs;
mod keys;
mod mcp;
pub(crate) mod notifications;
mod operations;
pub(crate) mod orders;
mod reminders;
mod replay;
mod row;
mod scheduler;
mod schedules;
mod settings;
pub mod skill_problems;
pub mod skills;
mod state;
pub mod tasks;
#[cfg(test)]
mod tests;
mod usage;
mod workflows;

use std::sync::LazyLock;

use input::Input;
use row::Operation;
pub(crate) use row::{Call, Run};

use crate::auth::{Need, OTHER_RULES, Rule};

/// All operations.
pub(crate) static ALL: LazyLock<Vec<Operation>> = LazyLock::new(|| TABLES.iter().flat_map(|table| table()).collect());

/// The parts of the table.
const TABLES: &[fn() -> Vec<Operation>] = &[
    conversations::table,
    deletions::table,
    replay::table,
    audit::table,
    acts::table,
    keys::table,
    tasks::table,
    jobs::table,
    dead_letters::table,
    operations::table,
    orders::table,
    approvals::table,
    agents::table,
    built::table,
    notifications::table,
    scheduler::table,
    schedules::table,
    reminders::table,
    skills::table,
    skill_problems::table,
    state::table,
    workflows::table,
    data::table,
    events::table,
    settings::table,
    mcp::table,
    usage::table,
    actors::table,
];

/// The requirement of every route of HTTP and gRPC. A route that is not listed is refused.
pub(crate) static RULES: LazyLock<Vec<Rule>> =
    LazyLock::new(|| OTHER_RULES.iter().copied().chain(ALL.iter().flat_map(Operation::rules)).collect());

/// The requirement of a route; nothing if the route is not listed.
pub(crate) fn need(method: &str, path: &str) -> Option<Need> {
    let method = if method == "HEAD" { "GET" } else { method };
    RULES.iter().find(|(m, p, _)| *m == method && *p == path).map(|(_, _, need)| *need)
}

/// The route of a command of the command line; empty if there is none.
pub fn path_of(command: &str) -> &'static str {
    ALL.iter().find(|operation| operation.about.cli == command).map_or("", |operation| operation.about.path)
}

/// The commands of the command line that the table names.
pub fn commands() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|operation| operation.about.cli).filter(|command| !command.is_empty())
}

/// Whether there is a route at the path with any method.
pub(crate) fn is_path(path: &str) -> bool {
    RULES.iter().any(|(_, p, _)| *p == path)
}
