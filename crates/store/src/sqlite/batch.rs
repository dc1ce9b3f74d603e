//! Writes a batch to all tables with one statement: an INSERT of all its rows into a temporary view, whose triggers
//! write each row to its table. One statement for each table would cost more, because the end of each statement wakes a
//! thread, and each new text must be prepared. Here the texts differ only in the number of their rows.
//!
//! Each row runs the conditions of all triggers of its view, so the kinds of rows of which nearly every batch consists have a
//! view with their triggers alone.
//!
//! The first rows may be guards: facts that were taken from memory and not read. If a guard does not match the
//! database, the whole statement is rolled back, as by any violated constraint.

use super::statements::Statements;
use crate::sql::{Cell, Kind, Row};

/// The most rows in one statement.
pub(super) const ROWS_MAX: usize = 512;
/// The most values of a row, as many as the views have columns beside the kind ([`COLUMNS`]).
const CELLS_MAX: usize = 15;
/// Up to this number of rows every number has its own text; beyond it, numbers are rounded up.
const EXACT_ROWS_MAX: usize = 16;

const COLUMNS: &str = "(kind, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) AS \
     SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;";
const INSERT: &str = "INSERT INTO batch VALUES ";
/// For a batch of frequent kinds alone.
const INSERT_FREQUENT: &str = "INSERT INTO frequent VALUES ";
const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Every kind, by its number.
const KINDS: [Kind; 17] = [
    Kind::HeadGuard,
    Kind::IntentGuard,
    Kind::Conversation,
    Kind::Event,
    Kind::Task,
    Kind::DeadLetter,
    Kind::Move,
    Kind::Plan,
    Kind::Run,
    Kind::Outbox,
    Kind::Operation,
    Kind::DeadLetterDue,
    Kind::DeadLetterMove,
    Kind::OperationEnd,
    Kind::Address,
    Kind::Usage,
    Kind::Text,
];

/// Whether rows of a kind are in the batches of turns that succeed.
const fn is_frequent(kind: Kind) -> bool {
    match kind {
        Kind::HeadGuard
        | Kind::IntentGuard
        | Kind::Conversation
        | Kind::Event
        | Kind::Task
        | Kind::Move
        | Kind::Plan
        | Kind::Run
        | Kind::Outbox
        | Kind::Usage => true,
        Kind::DeadLetter
        | Kind::Operation
        | Kind::DeadLetterDue
        | Kind::DeadLetterMove
        | Kind::OperationEnd
        | Kind::Address
        | Kind::Text => false,
    }
}

const INSERT_TASK: &str = "INSERT INTO tasks (id, user_id, conversation_id, seq, client_id, text_sha256, priority, \
     source, title, received_at, not_before, after_ids, is_order, is_steer, joins, state) VALUES (new.a, new.b, new.c, new.d, \
     new.e, new.f, new.g, new.h, new.i, new.j, new.k, new.l, new.m, new.n, new.o, 'queued');";

const INSERT_DEAD_LETTER: &str = "INSERT INTO dead_letters (task_id, conversation_id, user_id, seq, code, text, detail, tried, \
     since, retry_at, failed_at, changed_at, state) SELECT new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.i, new.j, \
     new.k, new.k, 'waiting' WHERE EXISTS (SELECT 1 FROM tasks WHERE id = new.a AND conversation_id = new.b \
     AND state IN ('queued', 'running', 'suspended')) ON CONFLICT DO NOTHING;";

const INSERT_OUTBOX: &str = "INSERT INTO outbox (id, user_id, conversation_id, task_id, text, at, seq, channel, recipient) \
     VALUES (new.a, new.b, new.c, new.d, new.e, new.f, new.g, \
     (SELECT channel FROM addresses WHERE task_id = new.d AND conversation_id = new.c), \
     (SELECT recipient FROM addresses WHERE task_id = new.d AND conversation_id = new.c)) \
     ON CONFLICT (id) DO NOTHING;";

const ADD_USAGE: &str = "INSERT INTO usage_totals (conversation_id, day, backend, skills, user_id, rounds, input_tokens, \
     cached_tokens, cache_written_tokens, output_tokens, reasoning_tokens, nanodollars) VALUES (new.a, new.b, new.c, new.d, \
     new.e, new.f, new.g, new.h, new.i, new.j, new.k, new.l) ON CONFLICT (conversation_id, day, backend, skills) DO UPDATE SET \
     rounds = rounds + excluded.rounds, input_tokens = input_tokens + excluded.input_tokens, \
     cached_tokens = cached_tokens + excluded.cached_tokens, \
     cache_written_tokens = cache_written_tokens + excluded.cache_written_tokens, \
     output_tokens = output_tokens + excluded.output_tokens, \
     reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens, nanodollars = nanodollars + excluded.nanodollars;";

/// The SQL for a row, whose values are `new.a`, `new.b` and so on. A guard for an absent row has the id and nothing else.
const fn sql_of(kind: Kind) -> &'static str {
    match kind {
        Kind::HeadGuard => {
            "SELECT raise(ABORT, 'a conversation is not as remembered') WHERE (new.b, new.c, new.d) IS NOT \
             (SELECT user_id, owner_epoch, next_seq FROM conversations WHERE id = new.a);"
        }
        Kind::IntentGuard => {
            "SELECT raise(ABORT, 'an intent is not as remembered') WHERE (new.b, new.c, new.d) IS NOT \
             (SELECT conversation_id, effect, state FROM intents WHERE id = new.a);"
        }
        Kind::Conversation => {
            "INSERT INTO conversations (id, user_id, owner_node, owner_epoch, next_seq, title, created_at, updated_at, \
             stateless) VALUES (new.a, new.b, new.h, new.h IS NOT NULL, new.c, new.d, new.e, new.f, \
             coalesce(new.g, 0)) ON CONFLICT (id) DO UPDATE SET \
             next_seq = excluded.next_seq, updated_at = max(updated_at, excluded.updated_at), \
             stateless = stateless AND coalesce(new.g, stateless), \
             title = iif(title = '', excluded.title, title);"
        }
        Kind::Event => {
            "INSERT INTO events (conversation_id, seq, at, task_id, agent_id, kind, v, body, text_id) \
             VALUES (new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.i);"
        }
        Kind::Task => INSERT_TASK,
        // Only for an open task: this row comes before the row that ends the task.
        Kind::DeadLetter => INSERT_DEAD_LETTER,
        // A task that is resumed (`b`) returns to its former state.
        Kind::Move => {
            "UPDATE tasks SET state = coalesce(new.a, iif(new.b, iif(started_at IS NULL, 'queued', 'running'), state)), \
             started_at = coalesce(started_at, new.c), ended_at = new.d, error = new.e, \
             priority = coalesce(new.f, priority), not_before = coalesce(new.g, not_before), \
             held_at = coalesce(new.h, held_at), has_model_failed = coalesce(new.k, has_model_failed) \
             WHERE id = new.i AND conversation_id = new.j \
             AND state IN ('queued', 'running', 'suspended');"
        }
        Kind::Plan => {
            "INSERT INTO intents (id, conversation_id, task_id, seq, place, skill, effect, planned_at, changed_at, \
             state, attempts) VALUES (new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.h, 'planned', 0) \
             ON CONFLICT (id) DO NOTHING;"
        }
        Kind::Run => {
            "UPDATE intents SET state = new.a, attempts = attempts + new.b, changed_at = new.c \
             WHERE id = new.d AND conversation_id = new.e AND state <> 'done';"
        }
        Kind::Outbox => INSERT_OUTBOX,
        Kind::Operation => {
            "INSERT INTO operations (id, conversation_id, user_id, seq, task_id, intent_id, skill, opened_at, \
             expires_at) VALUES (new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.i) ON CONFLICT DO NOTHING;"
        }
        // The last of several counts. Whether the dead letter is still waiting does not matter, so that dues and moves are
        // independent of their order.
        Kind::DeadLetterDue => {
            "UPDATE dead_letters SET retry_at = new.a WHERE task_id = new.b AND conversation_id = new.c AND seq < new.d;"
        }
        // The first of several counts, if the dead letter was put before it.
        Kind::DeadLetterMove => {
            "UPDATE dead_letters SET state = new.a, retried_by = new.b, changed_at = new.c \
             WHERE task_id = new.d AND conversation_id = new.e AND seq < new.f AND state = 'waiting';"
        }
        Kind::OperationEnd => {
            "UPDATE operations SET closed_by = new.a, closed_at = new.b \
             WHERE id = new.c AND conversation_id = new.d AND seq < new.e AND closed_by IS NULL;"
        }
        Kind::Address => {
            "INSERT INTO addresses (task_id, conversation_id, channel, recipient) VALUES (new.a, new.b, new.c, new.d) \
             ON CONFLICT (task_id) DO NOTHING;"
        }
        Kind::Usage => ADD_USAGE,
        Kind::Text => {
            "INSERT INTO texts (id, text, stored_at) VALUES (new.a, new.b, new.c) \
             ON CONFLICT (id) DO UPDATE SET stored_at = excluded.stored_at \
             WHERE stored_at < excluded.stored_at - 600000000;"
        }
    }
}

/// The views and their triggers, for the connection that executes this text. They are temporary, so that a newer Annie may define
/// them differently.
pub(super) fn definition() -> String {
    view("batch", |_| true) + &view("frequent", is_frequent)
}

/// A view with the triggers of the kinds that it takes.
fn view(name: &str, takes: impl Fn(Kind) -> bool) -> String {
    let triggers = KINDS.into_iter().filter(|kind| takes(*kind)).map(|kind| {
        let (number, sql_of) = (kind as i64, sql_of(kind));
        format!(
            "CREATE TEMP TRIGGER {name}_{number} INSTEAD OF INSERT ON {name} WHEN new.kind = {number} BEGIN {sql_of} END;"
        )
    });
    [format!("CREATE TEMP VIEW {name} {COLUMNS}")].into_iter().chain(triggers).collect()
}

/// One statement for each [`ROWS_MAX`] rows, in order; none if there is nothing to write.
pub(super) fn statements(mut rows: Vec<Row>) -> impl Iterator<Item = Statements> {
    std::iter::from_fn(move || {
        let rest = rows.split_off(rows.len().min(ROWS_MAX));
        let rows = std::mem::replace(&mut rows, rest);
        (!rows.is_empty()).then(|| insert(rows))
    })
}

fn insert(rows: Vec<Row>) -> Statements {
    let mut statements = Statements::default();
    let padded_rows = padded_rows(rows.len());
    let into = if rows.iter().all(|(kind, _)| is_frequent(*kind)) { INSERT_FREQUENT } else { INSERT };
    statements.push(into).push_list(ROW, padded_rows).push(";");
    let nothing = (padded_rows - rows.len()) * (1 + CELLS_MAX);
    for (kind, cells) in rows {
        debug_assert!(cells.len() <= CELLS_MAX, "{kind:?} has {} values", cells.len());
        let filling = CELLS_MAX.saturating_sub(cells.len());
        statements.with(kind as i64);
        for cell in cells.into_iter().chain(std::iter::repeat_n(Cell::Nothing, filling)) {
            statements.cell(cell);
        }
    }
    for _ in 0..nothing {
        statements.cell(Cell::Nothing);
    }
    statements
}

/// Number of rows of the statement for this number of rows: few different numbers, and not many more than needed. A row of
/// NULLs has no effect.
const fn padded_rows(rows: usize) -> usize {
    if rows <= EXACT_ROWS_MAX { rows } else { rows.next_multiple_of(rows.next_power_of_two() / 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_batch_uses_few_texts_for_all_numbers_of_rows() {
        let sizes: std::collections::BTreeSet<_> = (1..=ROWS_MAX).map(padded_rows).collect();
        assert!((1..=ROWS_MAX).all(|n| padded_rows(n) >= n && padded_rows(n) <= (n + n / 4).min(ROWS_MAX)));
        assert!(sizes.len() <= 36, "{sizes:?}");
    }

    #[test]
    fn sqlite_batch_kinds_have_their_own_numbers() {
        assert!(KINDS.iter().enumerate().all(|(n, kind)| *kind as usize == n));
        assert_eq!(COLUMNS.matches("NULL").count(), 1 + CELLS_MAX);
        assert_eq!(ROW.matches('?').count(), 1 + CELLS_MAX);
    }

    #[test]
    fn sqlite_batch_of_frequent_kinds_runs_their_triggers_alone() {
        let text = |kinds: &[Kind]| insert(kinds.iter().map(|kind| (*kind, Vec::new())).collect()).finish().unwrap().0;
        let frequent: Vec<Kind> = KINDS.into_iter().filter(|kind| is_frequent(*kind)).collect();
        assert!(text(&frequent).starts_with(INSERT_FREQUENT));
        assert!(text(&KINDS).starts_with(INSERT));
        assert_eq!(view("frequent", is_frequent).matches("CREATE TEMP TRIGGER").count(), frequent.len());
        assert_eq!(view("batch", |_| true).matches("CREATE TEMP TRIGGER").count(), KINDS.len());
    }
}
