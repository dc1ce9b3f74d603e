//! Collects the state after a soak: the logs through the API of the next run, the files of effects, and the findings of
//! `annie doctor` while no process uses the data.

use std::{
    collections::BTreeMap,
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    clients::SharedState,
    history::{Found, History, Log, LogEvent, tokens_in},
    nemesis::Nemesis,
    pace::pause,
};

/// How long open tasks may take to end once no faults are injected any more.
const END_MAX: Duration = Duration::from_secs(60);

/// Kills the process once more, runs the doctor on its data, and reads everything in the next run.
pub async fn gather(nemesis: &mut Nemesis, shared: &SharedState) -> (History, Found) {
    let mut found = Found::default();
    let since = Instant::now();
    // Acknowledged or not: every stored message must end.
    loop {
        nemesis.look_after().await;
        found.logs = logs(nemesis, shared).await;
        if found.logs.values().all(is_ended) || since.elapsed() > END_MAX {
            break;
        }
        pause(Duration::from_millis(100)).await;
    }
    nemesis.site.kill();
    found.doctor = nemesis.site.run(&["doctor"]).err();
    nemesis.site.spawn();
    nemesis.site.ready().await;
    found.logs = logs(nemesis, shared).await;
    for token in read(&nemesis.site.effects()).lines() {
        *found.sent.entry(token.to_owned()).or_default() += 1;
    }
    notes(&nemesis.site.folder.join("data").join("notes"), &mut found.noted);
    (shared.recorder.take(), found)
}

fn is_ended(log: &Log) -> bool {
    let received = log.events.iter().filter(|e| e.kind == "received");
    received.into_iter().all(|r| log.events.iter().any(|e| e.task == r.task && e.is_final()))
}

async fn logs(nemesis: &Nemesis, shared: &SharedState) -> BTreeMap<String, Log> {
    let mut all = BTreeMap::new();
    learn_all(nemesis, shared).await;
    for (conversation, user) in shared.known() {
        let Some(key) = nemesis.site.keys.get(&user) else { continue };
        let mut log = Log { user, events: Vec::new() };
        let since = Instant::now();
        while since.elapsed() < END_MAX {
            let after = log.events.last().map_or(0, |e| e.seq);
            let path = format!("/api/v1/conversations/{conversation}/events?limit=500&after={after}");
            let Some(page) = nemesis.site.read_as(key, &path).await else {
                pause(Duration::from_millis(20)).await;
                continue;
            };
            log.events.extend(page["events"].as_array().into_iter().flatten().map(event));
            if page["next"].is_null() {
                break;
            }
        }
        all.insert(conversation, log);
    }
    all
}

/// Adds every conversation of the users, also those that no client received.
async fn learn_all(nemesis: &Nemesis, shared: &SharedState) {
    for (user, key) in &nemesis.site.keys {
        let mut next = String::new();
        let since = Instant::now();
        while since.elapsed() < END_MAX {
            let path = format!("/api/v1/conversations?limit=500&next={next}");
            let Some(page) = nemesis.site.read_as(key, &path).await else {
                pause(Duration::from_millis(20)).await;
                continue;
            };
            let rows = page["conversations"].as_array().cloned().unwrap_or_default();
            rows.iter().filter_map(|r| r["id"].as_str()).for_each(|id| shared.learn(id, user));
            match page["next"].as_str() {
                Some(more) => next = more.to_owned(),
                None => break,
            }
        }
    }
}

fn event(event: &Value) -> LogEvent {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let kind = text(&event["kind"]);
    let has_text = ["received", "answered", "failed", "cancelled"].contains(&kind.as_str());
    let text_with_tokens = if has_text { text(&event["text"]) } else { event.to_string() };
    let planned = event["calls"].as_array().into_iter().flatten().map(|c| &c["action"]);
    LogEvent {
        seq: event["seq"].as_u64().unwrap_or(0),
        task: text(&event["task_id"]),
        agent: text(&event["agent"]),
        class: text(&event["priority"]),
        intent: text(&event["intent"]),
        code: text(&event["code"]),
        tokens: tokens_in(&text_with_tokens),
        once: planned.filter(|a| a["effect"] == "once").map(|a| text(&a["intent"])).collect(),
        kind,
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn notes(folder: &Path, into: &mut BTreeMap<String, u32>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|n| n != ".annie") {
            notes(&path, into);
        } else if path.extension().is_some_and(|e| e == "md") {
            for token in tokens_in(&read(&path)) {
                *into.entry(token).or_default() += 1;
            }
        }
    }
}

/// The duration of an fsync of 8 kB on this machine, in milliseconds: the median of 100.
pub fn fsync_ms(folder: &Path) -> f64 {
    let mut file = std::fs::File::create(folder.join("fsync")).expect("a file");
    file.write_all(&[0; 8192]).expect("written");
    let mut took = Vec::new();
    for n in 0..100_u8 {
        file.write_all_at(&[n; 8192], 0).expect("written");
        let from = Instant::now();
        file.sync_data().expect("synced");
        took.push(from.elapsed().as_secs_f64() * 1e3);
    }
    super::report::quantiles(&took)[0]
}
