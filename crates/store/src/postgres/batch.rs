//! The writes of a batch are one statement, for all tables together. Each table's rows are bound as lists, one for each
//! column, and a part of the statement writes them. One statement is one round trip, however many rows it has.
//!
//! All parts see the tables as they were when the statement began. A change of a row that another part of the same batch
//! inserts therefore comes in a later statement ([`Plan::statements`] then has more than one, within a transaction).
//!
//! The statement begins with its conditions: it locks the conversations' rows in the order of their ids, so that no two
//! batches of any processes deadlock, reads them under the lock, and writes nothing unless all conditions hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use sqlx::postgres::PgArguments;
use uuid::Uuid;

use super::bound::{
    Bound, Column,
    Holds::{self, Bytes, Flags, Ids, Numbers, Texts},
};
use crate::sql::{Cell, Kind, Row};

/// One statement of a batch. The same kinds of rows give the same text.
pub(super) struct Statement {
    pub text: String,
    pub bound: PgArguments,
}

/// All writes of a batch, and their conditions.
pub(super) struct Plan {
    stages: Vec<BTreeMap<Part, Vec<Vec<Cell>>>>,
}

/// A part of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Guards of existing conversations.
    Known,
    KnownIntents,
    /// Guards of runs that must not be planned yet.
    NoIntents,
    /// Existing conversations that get new events.
    Moved,
    /// New conversations.
    Made,
    Written(Kind),
}

impl Plan {
    /// A plan of guards and rows. A new conversation's row follows the guard that states its absence.
    pub fn of(rows: Vec<Row>) -> Self {
        let order = Order::of(&rows);
        let mut stages: Vec<BTreeMap<Part, Vec<Vec<Cell>>>> = vec![BTreeMap::new(); 4];
        let mut new = BTreeSet::new();
        for (kind, cells) in rows {
            let part = match kind {
                Kind::HeadGuard if cells.len() == 1 => {
                    new.extend(id_at(&cells, 0));
                    continue;
                }
                Kind::HeadGuard => Part::Known,
                Kind::IntentGuard if cells.len() == 1 => Part::NoIntents,
                Kind::IntentGuard => Part::KnownIntents,
                Kind::Conversation if id_at(&cells, 0).is_some_and(|id| new.contains(&id)) => Part::Made,
                Kind::Conversation => Part::Moved,
                kind => Part::Written(kind),
            };
            if let Some(stage) = stages.get_mut(order.stage(kind)) {
                stage.entry(part).or_default().push(cells);
            }
        }
        stages.retain(|stage| !stage.is_empty());
        Self { stages }
    }

    /// Whether one statement, which is a transaction of its own, writes everything.
    pub fn is_one_statement(&self) -> bool {
        self.stages.len() == 1
    }

    /// The statements, in order. Each returns whether its conditions hold.
    pub fn statements(&self) -> impl Iterator<Item = Result<Statement, sqlx::Error>> {
        self.stages.iter().map(statement)
    }
}

/// Which rows must wait for other rows of the same batch.
struct Order {
    /// The batch changes rows that it inserts.
    is_divided: bool,
    /// The batch inserts and moves the same dead letter.
    has_moved_dead_letter: bool,
    /// The batch sets a retry time of a dead letter that it inserts or moves: one statement changes a row only once.
    has_due_dead_letter: bool,
    /// The batch inserts the address of a task and a text for it.
    has_addressed_text: bool,
}

impl Order {
    fn of(rows: &[Row]) -> Self {
        let ids = |kind: Kind, index: usize| {
            let of_kind = rows.iter().filter(move |(other, _)| *other == kind);
            of_kind.filter_map(move |(_, cells)| id_at(cells, index)).collect::<BTreeSet<Uuid>>()
        };
        let tasks = ids(Kind::Task, 0);
        let dead_letters = ids(Kind::DeadLetter, 0);
        let (moved, due) = (ids(Kind::DeadLetterMove, 3), ids(Kind::DeadLetterDue, 1));
        Self {
            is_divided: !tasks.is_disjoint(&ids(Kind::Move, 8))
                || !tasks.is_disjoint(&dead_letters)
                || !ids(Kind::Plan, 0).is_disjoint(&ids(Kind::Run, 3))
                || !ids(Kind::Operation, 0).is_disjoint(&ids(Kind::OperationEnd, 2)),
            has_moved_dead_letter: !dead_letters.is_disjoint(&moved),
            has_due_dead_letter: !dead_letters.is_disjoint(&due) || !moved.is_disjoint(&due),
            has_addressed_text: !ids(Kind::Address, 0).is_disjoint(&ids(Kind::Outbox, 3)),
        }
    }

    const fn stage(&self, kind: Kind) -> usize {
        match kind {
            Kind::DeadLetter | Kind::Move | Kind::Run | Kind::OperationEnd if self.is_divided => 1,
            Kind::Outbox if self.has_addressed_text => 1,
            Kind::DeadLetterMove if self.has_moved_dead_letter => 2,
            Kind::DeadLetterDue if self.has_due_dead_letter => 3,
            _ => 0,
        }
    }
}

fn id_at(cells: &[Cell], index: usize) -> Option<Uuid> {
    match cells.get(index) {
        Some(Cell::Id(id)) => Some(*id),
        _ => None,
    }
}

/// The parts as one statement. Its text consists of fixed pieces and the numbers of its arguments.
fn statement(parts: &BTreeMap<Part, Vec<Vec<Cell>>>) -> Result<Statement, sqlx::Error> {
    let mut bound = Bound::default();
    let mut text = String::from("WITH ");
    let mut conditions = Vec::new();
    for (part, rows) in parts {
        let new = lists(&mut bound, part.columns(), rows);
        if let Some(condition) = part.condition() {
            let _ = write!(text, "{}, ", part.sql().replace("{new}", &new));
            conditions.push(condition.replace("{new}", &new));
        }
    }
    let conditions = if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") };
    let _ = write!(text, "agreed AS MATERIALIZED (SELECT {conditions} AS yes)");
    let mut number = 0;
    for part in parts.keys() {
        let first = number + 1;
        number += part.columns().len();
        if part.condition().is_none() {
            let new = list_text(part.columns(), first);
            let _ = write!(text, ", {} AS ({})", part.name(), part.sql().replace("{new}", &new));
        }
    }
    text.push_str(" SELECT yes FROM agreed");
    Ok(Statement { text, bound: bound.finish()? })
}

/// Binds the columns of the rows, and returns the SQL that turns them into rows again.
fn lists(bound: &mut Bound, columns: &[Holds], rows: &[Vec<Cell>]) -> String {
    let mut first = 0;
    for (index, holds) in columns.iter().enumerate() {
        let mut column = Column::new(*holds, rows.len());
        for cells in rows {
            column.push(cells.get(index).cloned().unwrap_or(Cell::Nothing));
        }
        let number = bound.column(column);
        if index == 0 {
            first = number;
        }
    }
    list_text(columns, first)
}

/// `unnest($1::uuid[], $2::text[]) AS new (a, b)`: the columns have the same names as in SQLite's triggers.
fn list_text(columns: &[Holds], first: usize) -> String {
    let lists: Vec<String> = columns.iter().zip(first..).map(|(holds, n)| format!("${n}::{}", holds.list())).collect();
    let names: Vec<String> = ('a'..='z').take(columns.len()).map(String::from).collect();
    format!("unnest({}) AS new ({})", lists.join(", "), names.join(", "))
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::KnownIntents => "known_intents",
            Self::NoIntents => "no_intents",
            Self::Moved => "moved",
            Self::Made => "made",
            Self::Written(kind) => match kind {
                Kind::HeadGuard => "head_guard",
                Kind::IntentGuard => "intent_guard",
                Kind::Conversation => "conversation",
                Kind::Event => "event",
                Kind::Task => "task",
                Kind::DeadLetter => "dead_letter",
                Kind::Move => "move",
                Kind::Plan => "plan",
                Kind::Run => "run",
                Kind::Outbox => "word",
                Kind::Operation => "operation",
                Kind::DeadLetterDue => "dead_letter_due",
                Kind::DeadLetterMove => "dead_letter_move",
                Kind::OperationEnd => "operation_end",
                Kind::Address => "address",
                Kind::Usage => "used",
                Kind::Text => "shared_text",
            },
        }
    }

    const fn columns(self) -> &'static [Holds] {
        match self {
            Self::Known => &[Ids, Texts, Numbers, Numbers],
            Self::KnownIntents => &[Ids, Ids, Texts, Texts],
            Self::NoIntents => &[Ids],
            Self::Moved | Self::Made => &[Ids, Texts, Numbers, Texts, Numbers, Numbers, Flags, Ids],
            Self::Written(kind) => match kind {
                Kind::HeadGuard | Kind::IntentGuard | Kind::Conversation => &[],
                Kind::Event => &[Ids, Numbers, Numbers, Ids, Texts, Texts, Numbers, Texts, Ids],
                Kind::Task => &[
                    Ids, Texts, Ids, Numbers, Texts, Bytes, Texts, Texts, Texts, Numbers, Numbers, Texts, Flags, Flags,
                    Ids,
                ],
                Kind::DeadLetter => &[Ids, Ids, Texts, Numbers, Texts, Texts, Texts, Texts, Numbers, Numbers, Numbers],
                Kind::Move => &[Texts, Flags, Numbers, Numbers, Texts, Texts, Numbers, Numbers, Ids, Ids, Flags],
                Kind::Plan => &[Ids, Ids, Ids, Numbers, Numbers, Texts, Texts, Numbers],
                Kind::Run => &[Texts, Numbers, Numbers, Ids, Ids],
                Kind::Outbox => &[Ids, Texts, Ids, Ids, Texts, Numbers, Numbers],
                Kind::Operation => &[Ids, Ids, Texts, Numbers, Ids, Ids, Texts, Numbers, Numbers],
                Kind::DeadLetterDue => &[Numbers, Ids, Ids, Numbers],
                Kind::DeadLetterMove => &[Texts, Ids, Numbers, Ids, Ids, Numbers],
                Kind::OperationEnd => &[Ids, Numbers, Ids, Ids, Numbers],
                Kind::Address => &[Ids, Ids, Texts, Texts],
                Kind::Usage => {
                    &[Ids, Numbers, Texts, Texts, Texts, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers]
                }
                Kind::Text => &[Ids, Texts, Numbers],
            },
        }
    }

    /// The condition of a part that only reads.
    const fn condition(self) -> Option<&'static str> {
        match self {
            Self::Known => Some(
                "NOT EXISTS (SELECT 1 FROM {new} LEFT JOIN known ON known.id = new.a WHERE \
                 (known.user_id, known.owner_epoch, known.next_seq) IS DISTINCT FROM (new.b, new.c, new.d))",
            ),
            Self::KnownIntents => Some(
                "NOT EXISTS (SELECT 1 FROM {new} LEFT JOIN known_intents k ON k.id = new.a WHERE \
                 (k.conversation_id, k.effect, k.state) IS DISTINCT FROM (new.b, new.c, new.d))",
            ),
            Self::NoIntents => Some("NOT EXISTS (SELECT 1 FROM no_intents)"),
            _ => None,
        }
    }

    /// The SQL of a part; its rows are `new.a`, `new.b` and so on.
    const fn sql(self) -> &'static str {
        match self {
            Self::Known => {
                "known AS MATERIALIZED (SELECT id, user_id, owner_epoch, next_seq FROM conversations \
                 WHERE id IN (SELECT new.a FROM {new}) ORDER BY id FOR NO KEY UPDATE)"
            }
            // Read after the conversations, whose locks protect these rows: changes of other transactions are seen.
            Self::KnownIntents => {
                "known_intents AS MATERIALIZED (SELECT id, conversation_id, effect, state FROM intents \
                 WHERE id IN (SELECT new.a FROM {new}) ORDER BY id FOR NO KEY UPDATE)"
            }
            Self::NoIntents => {
                "no_intents AS MATERIALIZED (SELECT id FROM intents WHERE id IN (SELECT new.a FROM {new}))"
            }
            Self::Moved => {
                "UPDATE conversations c SET next_seq = new.c, updated_at = greatest(c.updated_at, new.f), \
                 stateless = c.stateless AND coalesce(new.g, c.stateless), \
                 title = CASE WHEN c.title = '' THEN new.d ELSE c.title END \
                 FROM {new} WHERE c.id = new.a AND (SELECT yes FROM agreed)"
            }
            Self::Made => {
                "INSERT INTO conversations (id, user_id, owner_node, owner_epoch, next_seq, title, created_at, updated_at, \
                 stateless) SELECT new.a, new.b, new.h, CASE WHEN new.h IS NULL THEN 0 ELSE 1 END, new.c, new.d, new.e, \
                 new.f, coalesce(new.g, FALSE) FROM {new} \
                 WHERE (SELECT yes FROM agreed) \
                 ORDER BY new.a"
            }
            Self::Written(kind) => written(kind),
        }
    }
}

const INSERT_TASK: &str = "INSERT INTO tasks (id, user_id, conversation_id, seq, client_id, text_sha256, priority, \
     source, title, received_at, not_before, after_ids, is_order, is_steer, joins, state) SELECT new.a, new.b, new.c, new.d, \
     new.e, new.f, new.g, new.h, new.i, new.j, new.k, new.l, new.m, new.n, new.o, 'queued' FROM {new} \
     WHERE (SELECT yes FROM agreed) ORDER BY new.b, new.e";

const INSERT_DEAD_LETTER: &str = "INSERT INTO dead_letters (task_id, conversation_id, user_id, seq, code, text, detail, tried, \
     since, retry_at, failed_at, changed_at, state) SELECT new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.i, new.j, \
     new.k, new.k, 'waiting' FROM {new} WHERE (SELECT yes FROM agreed) AND EXISTS (SELECT 1 FROM tasks t \
     WHERE t.id = new.a AND t.conversation_id = new.b AND t.state IN ('queued', 'running', 'suspended')) \
     ON CONFLICT DO NOTHING";

const INSERT_OUTBOX: &str = "INSERT INTO outbox (id, user_id, conversation_id, task_id, text, at, seq, channel, recipient) \
     SELECT new.a, new.b, new.c, new.d, new.e, new.f, new.g, r.channel, r.recipient FROM {new} \
     LEFT JOIN addresses r ON r.task_id = new.d AND r.conversation_id = new.c \
     WHERE (SELECT yes FROM agreed) ON CONFLICT (id) DO NOTHING";

/// The conversations' rows are locked, so no two batches add to the same row at the same time.
const ADD_USAGE: &str = "INSERT INTO usage_totals AS u (conversation_id, day, backend, skills, user_id, rounds, input_tokens, \
     cached_tokens, cache_written_tokens, output_tokens, reasoning_tokens, nanodollars) SELECT new.a, new.b, new.c, new.d, \
     new.e, new.f, new.g, new.h, new.i, new.j, new.k, new.l FROM {new} WHERE (SELECT yes FROM agreed) \
     ON CONFLICT (conversation_id, day, backend, skills) DO UPDATE SET \
     rounds = u.rounds + excluded.rounds, input_tokens = u.input_tokens + excluded.input_tokens, \
     cached_tokens = u.cached_tokens + excluded.cached_tokens, \
     cache_written_tokens = u.cache_written_tokens + excluded.cache_written_tokens, \
     output_tokens = u.output_tokens + excluded.output_tokens, \
     reasoning_tokens = u.reasoning_tokens + excluded.reasoning_tokens, \
     nanodollars = u.nanodollars + excluded.nanodollars";

const fn written(kind: Kind) -> &'static str {
    match kind {
        Kind::HeadGuard | Kind::IntentGuard | Kind::Conversation => "SELECT",
        Kind::Event => {
            "INSERT INTO events (conversation_id, seq, at, task_id, agent_id, kind, v, body, text_id) \
             SELECT new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.i FROM {new} WHERE (SELECT yes FROM agreed)"
        }
        // Inserted in the order of the unique key: a transaction that waits for another one's row then holds no later row.
        Kind::Task => INSERT_TASK,
        // Only for an open task: this part sees the task as it is before the part that ends it.
        Kind::DeadLetter => INSERT_DEAD_LETTER,
        // A task that is resumed (`b`) returns to its former state.
        Kind::Move => {
            "UPDATE tasks t SET state = coalesce(new.a, CASE WHEN new.b THEN \
             CASE WHEN t.started_at IS NULL THEN 'queued' ELSE 'running' END ELSE t.state END), \
             started_at = coalesce(t.started_at, new.c), ended_at = new.d, error = new.e, \
             priority = coalesce(new.f, t.priority), not_before = coalesce(new.g, t.not_before), \
             held_at = coalesce(new.h, t.held_at), has_model_failed = coalesce(new.k, t.has_model_failed) \
             FROM {new} WHERE t.id = new.i AND t.conversation_id = new.j \
             AND t.state IN ('queued', 'running', 'suspended') AND (SELECT yes FROM agreed)"
        }
        Kind::Plan => {
            "INSERT INTO intents (id, conversation_id, task_id, seq, place, skill, effect, planned_at, changed_at, \
             state, attempts) SELECT new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.h, 'planned', 0 \
             FROM {new} WHERE (SELECT yes FROM agreed) ORDER BY new.a, new.d, new.e ON CONFLICT (id) DO NOTHING"
        }
        Kind::Run => {
            "UPDATE intents i SET state = new.a, attempts = i.attempts + new.b, changed_at = new.c FROM {new} \
             WHERE i.id = new.d AND i.conversation_id = new.e AND i.state <> 'done' AND (SELECT yes FROM agreed)"
        }
        Kind::Outbox => INSERT_OUTBOX,
        Kind::Operation => {
            "INSERT INTO operations (id, conversation_id, user_id, seq, task_id, intent_id, skill, opened_at, \
             expires_at) SELECT new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.i FROM {new} \
             WHERE (SELECT yes FROM agreed) ON CONFLICT DO NOTHING"
        }
        // The last of several counts. Whether the dead letter is still waiting does not matter, so that dues and moves are
        // independent of their order.
        Kind::DeadLetterDue => {
            "UPDATE dead_letters l SET retry_at = m.a FROM (SELECT DISTINCT ON (new.b) new.* \
             FROM {new} JOIN dead_letters k ON k.task_id = new.b AND k.conversation_id = new.c AND k.seq < new.d \
             ORDER BY new.b, new.d DESC) m WHERE l.task_id = m.b AND (SELECT yes FROM agreed)"
        }
        // The first of several counts, if the dead letter was put before it.
        Kind::DeadLetterMove => {
            "UPDATE dead_letters l SET state = m.a, retried_by = m.b, changed_at = m.c FROM (SELECT DISTINCT ON (new.d) new.* \
             FROM {new} JOIN dead_letters k ON k.task_id = new.d AND k.conversation_id = new.e AND k.seq < new.f \
             AND k.state = 'waiting' ORDER BY new.d, new.f) m \
             WHERE l.task_id = m.d AND l.state = 'waiting' AND (SELECT yes FROM agreed)"
        }
        Kind::OperationEnd => {
            "UPDATE operations o SET closed_by = m.a, closed_at = m.b FROM (SELECT DISTINCT ON (new.c) new.* \
             FROM {new} JOIN operations k ON k.id = new.c AND k.conversation_id = new.d AND k.seq < new.e \
             AND k.closed_by IS NULL ORDER BY new.c, new.e) m \
             WHERE o.id = m.c AND o.closed_by IS NULL AND (SELECT yes FROM agreed)"
        }
        Kind::Usage => ADD_USAGE,
        Kind::Address => {
            "INSERT INTO addresses (task_id, conversation_id, channel, recipient) \
             SELECT new.a, new.b, new.c, new.d FROM {new} WHERE (SELECT yes FROM agreed) ORDER BY new.a \
             ON CONFLICT (task_id) DO NOTHING"
        }
        Kind::Text => {
            "INSERT INTO texts (id, text, stored_at) SELECT new.a, new.b, new.c FROM {new} \
             WHERE (SELECT yes FROM agreed) ORDER BY new.a ON CONFLICT (id) DO UPDATE SET stored_at = excluded.stored_at \
             WHERE texts.stored_at < excluded.stored_at - 600000000"
        }
    }
}
