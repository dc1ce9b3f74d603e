//! `tasks.search`: open tasks by default, the most urgent dates first.

use annie_core::{
    outcome::Outcome,
    ports::{Todo, TodoQuery, TodoStatus},
    skill::Effect,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Priority, lines, numbers};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text, when,
};

pub(crate) struct Search;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Wanted {
    Open,
    Overdue,
    Todo,
    InProgress,
    Blocked,
    Done,
    Cancelled,
    All,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Words that title, description or tags must hold, all of them.
    query: Option<String>,
    /// Which tasks; open means todo, in progress or blocked, overdue means open and late.
    #[serde(default = "open")]
    status: Wanted,
    /// Only those due then: today, tomorrow, this_week, next_week, this_month or any date.
    #[schemars(extend("format" = "date"))]
    due: Option<String>,
    /// Only with this priority.
    priority: Option<Priority>,
    /// Only with this tag.
    tag: Option<String>,
    /// How many at most.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
}

const fn open() -> Wanted {
    Wanted::Open
}

const fn twenty() -> u32 {
    20
}

impl Wanted {
    const fn status(self) -> Option<TodoStatus> {
        match self {
            Self::Open | Self::Overdue | Self::All => None,
            Self::Todo => Some(TodoStatus::Todo),
            Self::InProgress => Some(TodoStatus::InProgress),
            Self::Blocked => Some(TodoStatus::Blocked),
            Self::Done => Some(TodoStatus::Done),
            Self::Cancelled => Some(TodoStatus::Cancelled),
        }
    }

    const fn adjective(self) -> &'static str {
        match self {
            Self::Open => "open ",
            Self::Overdue => "overdue ",
            Self::Todo => "unstarted ",
            Self::InProgress => "started ",
            Self::Blocked => "blocked ",
            Self::Done => "finished ",
            Self::Cancelled => "cancelled ",
            Self::All => "",
        }
    }
}

impl Handler for Search {
    type Args = Args;
    const NAME: &'static str = "tasks.search";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let span = args.due.as_deref().map(|text| when::span(text, ctx.now())).transpose();
        let span = span.map_err(|e| SkillError::argument("due", format!("does not fit: {e}")))?;
        let tag = args.tag.as_ref().map(|tag| text::tags(std::slice::from_ref(tag))).transpose()?;
        let query = TodoQuery {
            text: args.query.clone().unwrap_or_default().trim().to_owned(),
            status: args.status.status(),
            open: matches!(args.status, Wanted::Open | Wanted::Overdue),
            priority: args.priority.map(Into::into),
            due_from: span.as_ref().map(|s| s.from.clone()),
            due_before: span.map(|s| s.before),
            tag: tag.and_then(|tags| tags.into_iter().next()),
            limit: args.limit,
        };
        let found = if args.status == Wanted::Overdue {
            overdue(&ctx, query.clone()).await?
        } else {
            ctx.tools.todos.find_todos(ctx.call.user.clone(), query.clone()).await?
        };
        if found.is_empty() && args.status == Wanted::Open && !query.text.is_empty() {
            let ended = TodoQuery { open: false, ..query };
            let ended = ctx.tools.todos.find_todos(ctx.call.user.clone(), ended).await?;
            if !ended.is_empty() {
                let message = format!(
                    "No open tasks found{}, but these that have ended:\n\n{}",
                    filters(&args),
                    lines(&ended, ctx.local_now())
                );
                return Ok(Outcome::success(message).with_evidence(numbers(&ended)));
            }
        }
        Ok(Outcome::success(summary(&ctx, &args, &found)).with_evidence(numbers(&found)))
    }
}

/// A date without a time is overdue when its day is over, one with a time when that time has passed. In stored texts these
/// are two ranges: everything before today, and times of today before now.
async fn overdue(ctx: &Ctx, query: TodoQuery) -> Result<Vec<Todo>, SkillError> {
    let now = ctx.local_now();
    let today = now.date().to_string();
    let midnight = format!("{today}T00:00");
    let before = |bound: String| Some(query.due_before.clone().map_or(bound.clone(), |own| own.min(bound)));
    let from = |bound: String| Some(query.due_from.clone().map_or(bound.clone(), |own| own.max(bound)));
    let days = TodoQuery { due_before: before(today.clone()), ..query.clone() };
    let times = TodoQuery {
        due_from: from(midnight),
        due_before: before(now.format("%Y-%m-%dT%H:%M").to_string()),
        ..query.clone()
    };
    let mut found = ctx.tools.todos.find_todos(ctx.call.user.clone(), days).await?;
    found.extend(ctx.tools.todos.find_todos(ctx.call.user.clone(), times).await?);
    found.truncate(query.limit as usize);
    Ok(found)
}

/// The search filters as text.
fn filters(args: &Args) -> String {
    let mut filters = String::new();
    if let Some(due) = &args.due {
        filters.push_str(&format!(" due {}", due.trim().replace('_', " ")));
    }
    if let Some(query) = args.query.as_deref().map(str::trim).filter(|q| !q.is_empty()) {
        filters.push_str(&format!(" matching '{query}'"));
    }
    filters
}

fn summary(ctx: &Ctx, args: &Args, found: &[Todo]) -> String {
    let (kind, filters) = (args.status.adjective(), filters(args));
    if found.is_empty() {
        let hint = if args.status == Wanted::Open { " Finished ones are found with status all." } else { "" };
        return format!("No {kind}tasks found{filters}.{hint}");
    }
    let counted = text::count(found.len(), &format!("{kind}task"), &format!("{kind}tasks"));
    let more = if found.len() == args.limit as usize { " (there may be more)" } else { "" };
    format!("Found {counted}{filters}{more}:\n\n{}", lines(found, ctx.local_now()))
}
