//! Sums of recorded usage.

use annie_core::{
    ids::ConversationId,
    ports::StoreError,
    spend::{Day, UsageBy, UsageQuery, UsageRow, UsageTotals},
};

use super::{Cell, Columns, Database, SqlStore};

/// The sums by a key. `$1` and `$2` are the first and the last day, `$3` the number of rows. The condition may have a `$4`.
macro_rules! sums {
    ($key:literal, $order:literal, $condition:literal) => {
        concat!(
            "SELECT ",
            $key,
            " AS k, CAST(sum(rounds) AS BIGINT) AS n, CAST(sum(input_tokens) AS BIGINT) AS i, \
             CAST(sum(cached_tokens) AS BIGINT) AS c, CAST(sum(cache_written_tokens) AS BIGINT) AS w, \
             CAST(sum(output_tokens) AS BIGINT) AS o, CAST(sum(reasoning_tokens) AS BIGINT) AS r, \
             CAST(sum(nanodollars) AS BIGINT) AS m FROM usage_totals WHERE day >= $1 AND day <= $2 ",
            $condition,
            " GROUP BY k ORDER BY ",
            $order,
            " LIMIT $3"
        )
    };
}

/// The statements for one kind of key: of all users, and of one.
macro_rules! both {
    ($key:literal, $order:literal) => {
        [sums!($key, $order, ""), sums!($key, $order, "AND user_id = $4")]
    };
}

const ALL: [&str; 2] = both!("CAST('' AS TEXT)", "k");
const BY_DAY: [&str; 2] = both!("day", "k DESC");
// SQLite cannot order by an expression of output columns in a compound way that PostgreSQL also accepts, so the sums are
// repeated.
const BY_USER: [&str; 2] = both!("user_id", "sum(nanodollars) DESC, sum(input_tokens + output_tokens) DESC, user_id");
const BY_CONVERSATION: [&str; 2] =
    both!("conversation_id", "sum(nanodollars) DESC, sum(input_tokens + output_tokens) DESC, conversation_id");
const BY_SKILL: [&str; 2] = both!("skills", "sum(nanodollars) DESC, sum(input_tokens + output_tokens) DESC, skills");
const BY_BACKEND: [&str; 2] =
    both!("backend", "sum(nanodollars) DESC, sum(input_tokens + output_tokens) DESC, backend");
const OF_CONVERSATION: &str = sums!("CAST('' AS TEXT)", "k", "AND conversation_id = $4 AND user_id = $5");

pub(super) async fn usage<D: Database>(store: &SqlStore<D>, query: UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
    let UsageQuery { by, user, conversation, from, to, limit } = query;
    let mut bound = vec![Cell::Number(from.0), Cell::Number(to.0), limit.into()];
    let what = "summing up usage";
    if let (Some(conversation), Some(user)) = (conversation, &user) {
        bound.extend([Cell::Id(conversation.uuid()), Cell::from(user)]);
        return store.list(what, OF_CONVERSATION, bound, |row| usage_of(UsageBy::All, row)).await;
    }
    let [of_all, of_one] = match by {
        UsageBy::All => ALL,
        UsageBy::Day => BY_DAY,
        UsageBy::User => BY_USER,
        UsageBy::Conversation => BY_CONVERSATION,
        UsageBy::Skill => BY_SKILL,
        UsageBy::Backend => BY_BACKEND,
    };
    let sql = if user.is_some() { of_one } else { of_all };
    bound.extend(user.as_ref().map(Cell::from));
    store.list(what, sql, bound, |row| usage_of(by, row)).await
}

fn usage_of(by: UsageBy, row: &mut Columns<'_>) -> Result<UsageRow, StoreError> {
    let key = match by {
        UsageBy::Day => Day(row.number()?).to_string(),
        UsageBy::Conversation => row.id(ConversationId::from_uuid)?.to_string(),
        UsageBy::All | UsageBy::User | UsageBy::Skill | UsageBy::Backend => row.text()?,
    };
    let totals = UsageTotals {
        rounds: row.count()?,
        input_tokens: row.count()?,
        cached_tokens: row.count()?,
        cache_written_tokens: row.count()?,
        output_tokens: row.count()?,
        reasoning_tokens: row.count()?,
        nanodollars: row.count()?,
    };
    Ok(UsageRow { key, totals })
}
