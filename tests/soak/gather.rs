//! What is found when everything is over: the logs through the door of the next life, the files of effects, and what the
//! doctor says of the data while nobody uses it.

use std::{
    collections::BTreeMap,
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    clients::Around,
    history::{Found, History, Log, LogEvent, tokens_in},
    nemesis::Nemesis,
    pace::pause,
};

/// How long what is open may take to end when nothing is killed any more.
const END_MAX: Duration = Duration::from_secs(60);

/// Kills the process once more, has the doctor look at what it left, and reads everything in the next life.
pub async fn gather(nemesis: &mut Nemesis, around: &Around) -> (History, Found) {
    let mut found = Found::default();
    let since = Instant::now();
    // Whatever was acknowledged or not: what is stored must end.
    loop {
        nemesis.look_after().await;
        found.logs = logs(nemesis, around).await;
        if found.logs.values().all(is_ended) || since.elapsed() > END_MAX {
            break;
        }
        pause(Duration::from_millis(100)).await;
    }
    nemesis.site.kill();
    found.doctor = nemesis.site.run(&["doctor"]).err();
    nemesis.site.spawn();
    nemesis.site.ready().await;
    found.logs = logs(nemesis, around).await;
    for token in read(&nemesis.site.effects()).lines() {
        *found.sent.entry(token.to_owned()).or_default() += 1;
    }
    notes(&nemesis.site.folder.join("data").join("notes"), &mut found.noted);
    (around.recorder.take(), found)
}

fn is_ended(log: &Log) -> bool {
    let received = log.events.iter().filter(|e| e.kind == "received");
    received.into_iter().all(|r| log.events.iter().any(|e| e.task == r.task && e.is_final()))
}

async fn logs(nemesis: &Nemesis, around: &Around) -> BTreeMap<String, Log> {
    let mut all = BTreeMap::new();
    learn_all(nemesis, around).await;
    for (conversation, user) in around.known() {
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

/// Learns every conversation that users have, also those that no client was told of.
async fn learn_all(nemesis: &Nemesis, around: &Around) {
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
            rows.iter().filter_map(|r| r["id"].as_str()).for_each(|id| around.learn(id, user));
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
    let is_said = ["received", "answered", "failed", "cancelled"].contains(&kind.as_str());
    let words = if is_said { text(&event["text"]) } else { event.to_string() };
    let planned = event["calls"].as_array().into_iter().flatten().map(|c| &c["action"]);
    LogEvent {
        seq: event["seq"].as_u64().unwrap_or(0),
        task: text(&event["task_id"]),
        agent: text(&event["agent"]),
        class: text(&event["priority"]),
        intent: text(&event["intent"]),
        code: text(&event["code"]),
        tokens: tokens_in(&words),
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

/// What an fsync of 8 kB costs here, in milliseconds: the median of 100.
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
