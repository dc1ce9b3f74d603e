//! What is written together is one statement, whatever tables it is for: an INSERT of all its rows into a view of the
//! writer's own, whose triggers put each row into its table. A statement is a transaction of its own; every statement's end
//! wakes a thread, and a text is prepared anew when it was not seen before. Here there is one end, and the texts differ in
//! the number of their rows only.
//!
//! The first rows may be guards: what was remembered instead of read. A guard that the database does not agree with, as any
//! other constraint, undoes the whole statement.

use super::statements::Statements;
use crate::sql::{Cell, Kind, Row};

/// Most rows in one statement.
pub(super) const ROWS_MAX: usize = 512;
/// Most values of a row, as many as [`VIEW`] has columns beside the kind.
const CELLS_MAX: usize = 15;
/// Up to so many rows every number has its own text; beyond, numbers are rounded up.
const EXACT_ROWS_MAX: usize = 16;

const VIEW: &str = "CREATE TEMP VIEW batch (kind, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) AS \
     SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;";
const INSERT: &str = "INSERT INTO batch VALUES ";
const ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// Every kind, by its number.
const KINDS: [Kind; 14] = [
    Kind::HeadGuard,
    Kind::IntentGuard,
    Kind::Conversation,
    Kind::Event,
    Kind::Task,
    Kind::Letter,
    Kind::Move,
    Kind::Plan,
    Kind::Run,
    Kind::Outbox,
    Kind::Operation,
    Kind::LetterDue,
    Kind::LetterMove,
    Kind::OperationEnd,
];

/// What becomes of a row's values, which are `new.a`, `new.b` and so on. A guard of something that must not be there
/// has the id and nothing else.
const fn does(kind: Kind) -> &'static str {
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
            "INSERT INTO conversations (id, user_id, owner_epoch, next_seq, title, created_at, updated_at, stateless) \
             VALUES (new.a, new.b, 0, new.c, new.d, new.e, new.f, coalesce(new.g, 0)) ON CONFLICT (id) DO UPDATE SET \
             next_seq = excluded.next_seq, updated_at = max(updated_at, excluded.updated_at), \
             stateless = stateless AND coalesce(new.g, stateless), \
             title = iif(title = '', excluded.title, title);"
        }
        Kind::Event => {
            "INSERT INTO events (conversation_id, seq, at, task_id, agent_id, kind, v, body) \
             VALUES (new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h);"
        }
        Kind::Task => {
            "INSERT INTO tasks (id, user_id, conversation_id, seq, client_id, text_sha256, priority, source, title, \
             received_at, not_before, after_ids, is_order, is_steer, joins, state) VALUES (new.a, new.b, new.c, new.d, \
             new.e, new.f, new.g, new.h, new.i, new.j, new.k, new.l, new.m, new.n, new.o, 'queued');"
        }
        // Of an open task only: it stands before the row that ends it.
        Kind::Letter => {
            "INSERT INTO letters (task_id, conversation_id, user_id, seq, code, text, detail, tried, since, retry_at, \
             failed_at, changed_at, state) SELECT new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.i, new.j, \
             new.k, new.k, 'waiting' WHERE EXISTS (SELECT 1 FROM tasks WHERE id = new.a AND conversation_id = new.b \
             AND state IN ('queued', 'running', 'suspended')) ON CONFLICT DO NOTHING;"
        }
        // A task that is let go on (`b`) goes back to where it was.
        Kind::Move => {
            "UPDATE tasks SET state = coalesce(new.a, iif(new.b, iif(started_at IS NULL, 'queued', 'running'), state)), \
             started_at = coalesce(started_at, new.c), ended_at = new.d, error = new.e, \
             priority = coalesce(new.f, priority), not_before = coalesce(new.g, not_before), \
             held_at = coalesce(new.h, held_at) WHERE id = new.i AND conversation_id = new.j \
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
        Kind::Outbox => {
            "INSERT INTO outbox (id, user_id, conversation_id, task_id, text, at) \
             VALUES (new.a, new.b, new.c, new.d, new.e, new.f) ON CONFLICT (id) DO NOTHING;"
        }
        Kind::Operation => {
            "INSERT INTO operations (id, conversation_id, user_id, seq, task_id, intent_id, skill, opened_at, \
             expires_at) VALUES (new.a, new.b, new.c, new.d, new.e, new.f, new.g, new.h, new.i) ON CONFLICT DO NOTHING;"
        }
        // The last of several counts. Whether the letter still waits does not, so that the order of dues and moves does not.
        Kind::LetterDue => {
            "UPDATE letters SET retry_at = new.a WHERE task_id = new.b AND conversation_id = new.c AND seq < new.d;"
        }
        // The first of several counts, if what it moves came before it.
        Kind::LetterMove => {
            "UPDATE letters SET state = new.a, retried_by = new.b, changed_at = new.c \
             WHERE task_id = new.d AND conversation_id = new.e AND seq < new.f AND state = 'waiting';"
        }
        Kind::OperationEnd => {
            "UPDATE operations SET closed_by = new.a, closed_at = new.b \
             WHERE id = new.c AND conversation_id = new.d AND seq < new.e AND closed_by IS NULL;"
        }
    }
}

/// Makes the view and its triggers, for the connection that asks. They are gone with it, so that a new Annie may have
/// others.
pub(super) fn definition() -> String {
    let triggers = KINDS.map(|kind| {
        let (number, does) = (kind as i64, does(kind));
        format!(
            "CREATE TEMP TRIGGER batch_{number} INSTEAD OF INSERT ON batch WHEN new.kind = {number} BEGIN {does} END;"
        )
    });
    [VIEW.to_owned()].into_iter().chain(triggers).collect()
}

/// One statement for each [`ROWS_MAX`] rows, in their order; none if there is nothing to write.
pub(super) fn statements(mut rows: Vec<Row>) -> impl Iterator<Item = Statements> {
    std::iter::from_fn(move || {
        let rest = rows.split_off(rows.len().min(ROWS_MAX));
        let rows = std::mem::replace(&mut rows, rest);
        (!rows.is_empty()).then(|| insert(rows))
    })
}

fn insert(rows: Vec<Row>) -> Statements {
    let mut statements = Statements::default();
    let places = places(rows.len());
    statements.say(INSERT).say_list(ROW, places).say(";");
    let nothing = (places - rows.len()) * (1 + CELLS_MAX);
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

/// How many rows the statement for so many has: few different numbers, and not many more than are needed. A row of nothing
/// does nothing.
const fn places(rows: usize) -> usize {
    if rows <= EXACT_ROWS_MAX { rows } else { rows.next_multiple_of(rows.next_power_of_two() / 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_texts_serve_every_number_of_rows() {
        let sizes: std::collections::BTreeSet<_> = (1..=ROWS_MAX).map(places).collect();
        assert!((1..=ROWS_MAX).all(|n| places(n) >= n && places(n) <= (n + n / 4).min(ROWS_MAX)));
        assert!(sizes.len() <= 36, "{sizes:?}");
    }

    #[test]
    fn every_kind_has_its_own_number() {
        assert!(KINDS.iter().enumerate().all(|(n, kind)| *kind as usize == n));
        assert_eq!(VIEW.matches("NULL").count(), 1 + CELLS_MAX);
        assert_eq!(ROW.matches('?').count(), 1 + CELLS_MAX);
    }
}
