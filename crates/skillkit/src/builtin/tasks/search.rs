//! `tasks.search`: open tasks by default, the most urgent dates first.

use annie_core::{outcome::Outcome, ports::TextRange, skill::Effect};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    data::{self, OPEN, Priority, Status, Todo, TodoQuery, Trashed},
    lines, numbers, origins,
};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text, trash, when,
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
    Deleted,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Words that title, description or tags must hold, all of them.
    query: Option<String>,
    /// Which tasks; open means todo, in progress or blocked, overdue means open and late, deleted means the trash.
    #[serde(default = "open")]
    status: Wanted,
    /// Only those due then: today, tomorrow, this_week, next_week, this_month or any date.
    #[schemars(extend("format" = "date"))]
    due: Option<String>,
    /// Only with this priority.
    priority: Option<Priority>,
    /// Only with this tag.
    tag: Option<String>,
    /// Only the parts of this task.
    #[schemars(range(min = 1))]
    parent: Option<u64>,
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
    /// An empty list stands for all.
    const fn statuses(self) -> &'static [Status] {
        match self {
            // The trash is not searched by status.
            Self::All | Self::Deleted => &[],
            Self::Open | Self::Overdue => OPEN,
            Self::Todo => &[Status::Todo],
            Self::InProgress => &[Status::InProgress],
            Self::Blocked => &[Status::Blocked],
            Self::Done => &[Status::Done],
            Self::Cancelled => &[Status::Cancelled],
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
            Self::Deleted => "deleted ",
        }
    }
}

impl Handler for Search {
    type Args = Args;
    const NAME: &'static str = "tasks.search";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        if args.status == Wanted::Deleted {
            return deleted(&ctx, &args).await;
        }
        let span = args.due.as_deref().map(|text| when::span(text, ctx.now())).transpose();
        let span = span.map_err(|e| SkillError::argument("due", format!("does not fit: {e}")))?;
        let tag = args.tag.as_ref().map(|tag| text::tags(std::slice::from_ref(tag))).transpose()?;
        let mut due: Vec<TextRange> =
            span.into_iter().map(|s| TextRange { from: Some(s.from), before: Some(s.before) }).collect();
        if args.status == Wanted::Overdue {
            due = within(data::overdue(ctx.local_now()), due.pop());
        }
        let query = TodoQuery {
            text: args.query.clone().unwrap_or_default().trim().to_owned(),
            statuses: args.status.statuses(),
            priority: args.priority,
            due,
            tag: tag.and_then(|tags| tags.into_iter().next()),
            parent: args.parent,
            limit: args.limit,
        };
        let found = data::find(&*ctx.tools.documents, &ctx.call.user, query.clone()).await?;
        if found.is_empty() && args.status == Wanted::Open && !query.text.is_empty() {
            let ended = TodoQuery { statuses: &[], ..query.clone() };
            let ended = data::find(&*ctx.tools.documents, &ctx.call.user, ended).await?;
            if !ended.is_empty() {
                let message = format!(
                    "No open tasks found{}, but these that have ended:\n\n{}",
                    filters(&args),
                    lines(&ended, &ctx)
                );
                return Ok(shown(message, &ended));
            }
        }
        let is_all = found.len() < args.limit as usize;
        let total = if is_all { None } else { Some(data::count(&*ctx.tools.documents, &ctx.call.user, query).await?) };
        Ok(shown(summary(&ctx, &args, &found, total), &found))
    }
}

fn shown(message: String, todos: &[Todo]) -> Outcome {
    Outcome::success(message).with_evidence(numbers(todos)).with_origins(origins(todos))
}

/// The tasks in the trash, the last deleted first.
async fn deleted(ctx: &Ctx, args: &Args) -> Ran {
    if args.due.is_some() || args.priority.is_some() || args.tag.is_some() || args.parent.is_some() {
        let what = "--status deleted goes with --query and --limit only";
        return Err(SkillError::Arguments(what.to_owned()));
    }
    let query = args.query.as_deref().unwrap_or_default().to_lowercase();
    let fits = |trashed: &Trashed| {
        let title = trashed.todo.title.to_lowercase();
        query.split_whitespace().all(|word| title.contains(word))
    };
    let mut found = data::trashed(&*ctx.tools.documents, &ctx.call.user).await?;
    found.retain(fits);
    found.truncate(args.limit as usize);
    let filters = filters(args);
    if found.is_empty() {
        return Ok(Outcome::success(format!("No deleted tasks found{filters}.")).with_evidence(numbers(&[])));
    }
    let lines: Vec<String> = found.iter().map(|trashed| trashed_line(ctx, trashed)).collect();
    let counted = text::count(found.len(), "deleted task", "deleted tasks");
    let todos: Vec<Todo> = found.into_iter().map(|trashed| trashed.todo).collect();
    let message = format!("Found {counted}{filters}:\n\n{}\n\n{}", lines.join("\n"), trash::KEPT);
    Ok(shown(message, &todos))
}

fn trashed_line(ctx: &Ctx, trashed: &Trashed) -> String {
    let day = trash::day(ctx, trashed.deleted_at);
    format!("- #{} {} (deleted {day})", trashed.todo.number, trashed.todo.title)
}

/// The parts of the ranges that are within another range, if there is one.
fn within(ranges: Vec<TextRange>, outer: Option<TextRange>) -> Vec<TextRange> {
    let Some(outer) = outer else { return ranges };
    let both = |inner: TextRange| TextRange {
        from: inner.from.max(outer.from.clone()),
        before: match (inner.before, outer.before.clone()) {
            (Some(inner), Some(outer)) => Some(inner.min(outer)),
            (inner, outer) => inner.or(outer),
        },
    };
    ranges.into_iter().map(both).collect()
}

/// The search filters as text.
fn filters(args: &Args) -> String {
    let mut filters = String::new();
    if let Some(due) = &args.due {
        filters.push_str(&format!(" due {}", due.trim().replace('_', " ")));
    }
    if let Some(tag) = args.tag.as_deref().map(str::trim).filter(|tag| !tag.is_empty()) {
        filters.push_str(&format!(" tagged {tag}"));
    }
    if let Some(priority) = args.priority {
        filters.push_str(&format!(" of {} priority", priority.as_str()));
    }
    if let Some(parent) = args.parent {
        filters.push_str(&format!(" below task #{parent}"));
    }
    if let Some(query) = args.query.as_deref().map(str::trim).filter(|q| !q.is_empty()) {
        filters.push_str(&format!(" matching '{query}'"));
    }
    filters
}

/// `total`: the number of all that match, if not all of them were read.
fn summary(ctx: &Ctx, args: &Args, found: &[Todo], total: Option<u64>) -> String {
    let (kind, filters) = (args.status.adjective(), filters(args));
    if found.is_empty() {
        let hint = if args.status == Wanted::Open { " Finished ones are found with status all." } else { "" };
        return format!("No {kind}tasks found{filters}.{hint}");
    }
    let total = total.and_then(|total| usize::try_from(total).ok()).unwrap_or(found.len());
    let counted = text::count(total, &format!("{kind}task"), &format!("{kind}tasks"));
    let more = if total > found.len() { format!(", the first {} of them", found.len()) } else { String::new() };
    format!("Found {counted}{filters}{more}:\n\n{}", lines(found, ctx))
}
