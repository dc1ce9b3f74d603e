//! `annie doctor --check` and `--repair`: compares the log with the tables that are folded from it, and repairs them.

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

/// Maximum number of rows and events that are named; the others are counted.
const NAMED_MAX: usize = 5;

/// Checks the store, and repairs it with `--repair`. No other process may use the store meanwhile. A store that does not answer
/// is a finding.
///
/// # Errors
/// If a server uses the store.
pub async fn run(site: &Site, options: &args::Doctor) -> Result<Vec<Finding>, Failure> {
    if let Some(client) = site.server().await? {
        let failure = Failure::new(Exit::Unavailable, format!("a server uses this data, at {}", client.url()));
        return Err(failure.fix("stop it first: it would write while its log is read"));
    }
    Ok(checked(site, options).await.unwrap_or_else(|failure| vec![Finding::error("log", &failure)]))
}

async fn checked(site: &Site, options: &args::Doctor) -> Result<Vec<Finding>, Failure> {
    if site.loaded.config.store.address(&site.loaded.environment)?.is_none() && !site.has_database() {
        // Opening the store would create the database.
        return Ok(vec![Finding::ok("log", "there is none yet")]);
    }
    let store = site.store().await?;
    let found = all_of(site, store.as_ref(), options).await;
    store.close().await;
    found
}

async fn all_of(site: &Site, store: &dyn Store, options: &args::Doctor) -> Result<Vec<Finding>, Failure> {
    let tables = check_tables(store, options.repair).await;
    // The files are verified after the repair, which may rewrite damaged pages; and also if the log could not be read, because
    // damage may be the cause.
    let mut found = match store.verify_files().await {
        Ok(damage) => of_the_files(store.name(), &damage),
        Err(error) => vec![Finding::error("database file", &error.into())],
    };
    // If these reads fail, the finding `database` reports it.
    if let Ok(held) = Mark::of(store).await
        && let Some(until) = Mark::read(&site.folder).lost_until(held)
    {
        let newest = Micros(held.newest_event_us);
        let what = format!("events up to {until} were stored here, and the newest one is of {newest}: the end is lost");
        let fix = "restore a backup, or the file annie.db-wal that belongs to this annie.db; the next start continues without them";
        found.push(Finding::error("log", &Failure::new(Exit::Failure, what).fix(fix)));
    }
    match tables {
        Ok(findings) => found.extend(findings),
        Err(failure) => found.push(Finding::error("log", &failure)),
    }
    Ok(found)
}

async fn check_tables(store: &dyn Store, repairs: bool) -> Result<Vec<Finding>, Failure> {
    let before = examine(store).await?;
    let mut found = of_the_log(&before);
    if before.is_folded_right() || !repairs {
        found.extend(of_the_tables(&before, "annie doctor --repair"));
        return Ok(found);
    }
    found.extend(of_the_tables(&before, "").into_iter().map(|finding| match finding.state {
        // The repair below fixes it.
        State::Error => Finding { state: State::Warning, fix: None, ..finding },
        State::Ok | State::Warning => finding,
    }));
    repair(store, &before).await?;
    let after = examine(store).await?;
    if after.is_folded_right() {
        found.push(Finding::ok("repair", "the log was folded again, and all tables match it"));
    } else {
        found.extend(of_the_tables(&after, "the log was folded again, and this still differs: restore a backup"));
    }
    Ok(found)
}

fn of_the_files(store: &str, damage: &[String]) -> Vec<Finding> {
    const WHAT: &str = "database file";
    if damage.is_empty() {
        return vec![Finding::ok(WHAT, format!("{store}: no damage found"))];
    }
    let error = |what: String| Finding::error(WHAT, &Failure::new(Exit::Failure, what).fix(MEND_DATABASE));
    let mut found: Vec<Finding> = damage.iter().take(NAMED_MAX).map(|line| error(line.clone())).collect();
    if damage.len() > NAMED_MAX {
        let more = format!("and {} more places", damage.len() - NAMED_MAX);
        found.push(error(more));
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
    let error = |what: String| Finding::error(WHAT, &Failure::new(Exit::Failure, what).fix(fix));
    let unreadable = found.unreadable.iter().take(NAMED_MAX);
    let mut findings: Vec<Finding> = unreadable
        .map(|one| error(format!("{} event {} cannot be read: {}", one.conversation, one.seq, one.why)))
        .collect();
    let gaps = found.gaps.iter().take(NAMED_MAX);
    findings.extend(gaps.map(|gap| {
        error(format!("{}: between event {} and event {} some are missing", gap.conversation, gap.after, gap.next))
    }));
    let more = found.unreadable.len().saturating_sub(NAMED_MAX) + found.gaps.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        findings.push(error(format!("and {more} more")));
    }
    findings
}

fn of_the_tables(found: &Examination, fix: &str) -> Vec<Finding> {
    let error = |what, detail: String| Finding::error(what, &Failure::new(Exit::Failure, detail).fix(fix));
    let mut findings: Vec<Finding> = found
        .tables
        .iter()
        .map(|table| match table.is_right() {
            true => Finding::ok(table.table, format!("{} rows, all match the log", table.right)),
            false if table.broken.is_some() && !fix.is_empty() => {
                let fix = format!("{fix}; if that fails too, {MEND_DATABASE}");
                Finding::error(table.table, &Failure::new(Exit::Failure, described(table)).fix(fix))
            }
            false => error(table.table, described(table)),
        })
        .collect();
    if let Some((conversation, one)) = found.diverged.first() {
        let detail = format!(
            "{} decisions are stored otherwise than they are taken now, as event {} of {conversation}",
            found.diverged.len(),
            one.seq
        );
        let next = format!("if no other version of Annie wrote them: annie replay {conversation} --check");
        findings.push(Finding { state: State::Warning, fix: Some(next), ..Finding::ok("replay", detail) });
    }
    if let Some(wrong) = found.snapshots.first() {
        let detail = format!("{} wrong, as that of {}: {}", found.snapshots.len(), wrong.conversation, wrong.why);
        findings.push(error("snapshots", detail));
    }
    findings
}

fn described(table: &TableCheck) -> String {
    let TableCheck { right, missing, orphans, different, broken, .. } = table;
    if let Some(why) = broken {
        return format!("cannot be read: {why}");
    }
    let mut parts = vec![format!("{right} rows match the log")];
    for (rows, what) in [(missing, "missing"), (orphans, "without an event"), (different, "different")] {
        if let Some(first) = rows.first() {
            parts.push(format!("{} {what} ({first}{})", rows.len(), if rows.len() > 1 { " …" } else { "" }));
        }
    }
    parts.join(", ")
}
