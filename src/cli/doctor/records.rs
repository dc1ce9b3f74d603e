//! The thorough part of `annie doctor`: the log against what is folded from it, and the repair.

use annie_core::{ports::Store, time::Micros};
use annie_store::{Examination, TableCheck, examine, repair};

use super::{Finding, State};
use crate::{
    boot::Mark,
    cli::{
        args,
        failure::{Exit, Failure, MEND_DATABASE},
        site::Site,
    },
};

/// Rows and events that are named; the rest is counted.
const NAMED_MAX: usize = 5;

/// Looks, and puts right if that is asked for. Nobody else may use the store meanwhile. One that does not answer is a finding.
///
/// # Errors
/// If a server runs on it.
pub async fn run(site: &Site, wish: &args::Doctor) -> Result<Vec<Finding>, Failure> {
    if let Some(client) = site.server().await? {
        let failure = Failure::new(Exit::Unavailable, format!("a server uses this data, at {}", client.url()));
        return Err(failure.fix("stop it first: it would write while its log is read"));
    }
    Ok(looked(site, wish).await.unwrap_or_else(|failure| vec![Finding::fault("log", &failure)]))
}

async fn looked(site: &Site, wish: &args::Doctor) -> Result<Vec<Finding>, Failure> {
    if site.loaded.config.store.address(&site.loaded.environment)?.is_none() && !site.has_database() {
        // Opening it would make it.
        return Ok(vec![Finding::ok("log", "there is none yet")]);
    }
    let store = site.store().await?;
    let found = all_of(site, store.as_ref(), wish).await;
    store.close().await;
    found
}

async fn all_of(site: &Site, store: &dyn Store, wish: &args::Doctor) -> Result<Vec<Finding>, Failure> {
    let looked = look(store, wish.repair).await;
    // After the repair, which may write damaged pages anew; and also if the log could not be read: damage is why.
    let mut found = match store.verify_files().await {
        Ok(damage) => of_the_files(store.name(), &damage),
        Err(error) => vec![Finding::fault("database file", &error.into())],
    };
    // Where these reads fail, the finding `database` says so.
    if let Ok(held) = Mark::of(store).await
        && let Some(until) = Mark::read(&site.folder).lost_until(held)
    {
        let newest = Micros(held.newest_event_us);
        let what = format!("events up to {until} were stored here, and the newest one is of {newest}: the end is lost");
        let fix = "restore a backup, or the file annie.db-wal that belongs to this annie.db; the next start goes on without them";
        found.push(Finding::fault("log", &Failure::new(Exit::Failure, what).fix(fix)));
    }
    match looked {
        Ok(rest) => found.extend(rest),
        Err(failure) => found.push(Finding::fault("log", &failure)),
    }
    Ok(found)
}

async fn look(store: &dyn Store, repairs: bool) -> Result<Vec<Finding>, Failure> {
    let before = examine(store).await?;
    let mut found = of_the_log(&before);
    if before.is_folded_right() || !repairs {
        found.extend(of_the_tables(&before, "annie doctor --repair"));
        return Ok(found);
    }
    found.extend(of_the_tables(&before, "").into_iter().map(|finding| match finding.state {
        // It is about to be put right.
        State::Fault => Finding { state: State::Warning, fix: None, ..finding },
        State::Ok | State::Warning => finding,
    }));
    repair(store, &before).await?;
    let after = examine(store).await?;
    if after.is_folded_right() {
        found.push(Finding::ok("repair", "the log was folded again, and all tables are as it says"));
    } else {
        found.extend(of_the_tables(&after, "the log was folded again, and this is left: restore a backup"));
    }
    Ok(found)
}

fn of_the_files(store: &str, damage: &[String]) -> Vec<Finding> {
    const WHAT: &str = "database file";
    if damage.is_empty() {
        return vec![Finding::ok(WHAT, format!("{store}: no damage found"))];
    }
    let fault = |what: String| Finding::fault(WHAT, &Failure::new(Exit::Failure, what).fix(MEND_DATABASE));
    let mut found: Vec<Finding> = damage.iter().take(NAMED_MAX).map(|line| fault(line.clone())).collect();
    if damage.len() > NAMED_MAX {
        let more = format!("and {} more places", damage.len() - NAMED_MAX);
        found.push(fault(more));
    }
    found
}

fn of_the_log(found: &Examination) -> Vec<Finding> {
    const WHAT: &str = "log";
    if found.is_log_whole() {
        let detail = format!("{} events of {} conversations, none missing", found.events, found.conversations);
        return vec![Finding::ok(WHAT, detail)];
    }
    let fix = "restore a backup; until then the conversation is left as it is, and nothing of it is deleted";
    let fault = |what: String| Finding::fault(WHAT, &Failure::new(Exit::Failure, what).fix(fix));
    let unreadable = found.unreadable.iter().take(NAMED_MAX);
    let mut said: Vec<Finding> = unreadable
        .map(|one| fault(format!("{} event {} cannot be read: {}", one.conversation, one.seq, one.why)))
        .collect();
    let gaps = found.gaps.iter().take(NAMED_MAX);
    said.extend(gaps.map(|gap| {
        fault(format!("{}: between event {} and event {} some are missing", gap.conversation, gap.after, gap.next))
    }));
    let more = found.unreadable.len().saturating_sub(NAMED_MAX) + found.gaps.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        said.push(fault(format!("and {more} more")));
    }
    said
}

fn of_the_tables(found: &Examination, fix: &str) -> Vec<Finding> {
    let fault = |what, detail: String| Finding::fault(what, &Failure::new(Exit::Failure, detail).fix(fix));
    let mut said: Vec<Finding> = found
        .tables
        .iter()
        .map(|table| match table.is_right() {
            true => Finding::ok(table.table, format!("{} rows, all as the log says", table.right)),
            false if table.broken.is_some() && !fix.is_empty() => {
                let fix = format!("{fix}; if that fails too, {MEND_DATABASE}");
                Finding::fault(table.table, &Failure::new(Exit::Failure, told(table)).fix(fix))
            }
            false => fault(table.table, told(table)),
        })
        .collect();
    if let Some(wrong) = found.snapshots.first() {
        let detail = format!("{} wrong, as that of {}: {}", found.snapshots.len(), wrong.conversation, wrong.why);
        said.push(fault("snapshots", detail));
    }
    said
}

fn told(table: &TableCheck) -> String {
    let TableCheck { right, missing, orphans, different, broken, .. } = table;
    if let Some(why) = broken {
        return format!("cannot be read: {why}");
    }
    let mut parts = vec![format!("{right} rows as the log says")];
    for (rows, what) in [(missing, "missing"), (orphans, "that no event accounts for"), (different, "different")] {
        if let Some(first) = rows.first() {
            parts.push(format!("{} {what} ({first}{})", rows.len(), if rows.len() > 1 { " …" } else { "" }));
        }
    }
    parts.join(", ")
}
