//! The invariants of a soak as a pure function of what clients saw and what was found afterwards. `checks.rs` shows that
//! this function catches each kind of violation.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::history::{Found, History, Kind, Log, LogEvent, Submit};

/// Failures that a user may see because of the injected faults: each has a text for the user, and nothing is lost
/// silently.
const MAY_FAIL: &[&str] = &["engine_crashed", "process_restarted", "conversation_quarantined"];
/// The failure of a round on an agentic backend that was killed: its work may have taken effect.
const IN_DOUBT: &str = "model_in_doubt";
/// Refusals that ask a client to retry later.
const MAY_REFUSE: &[&str] = &["queue_full", "rate_limited", "too_soon", "overloaded"];

/// The kinds of violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// Acknowledged, but not stored or without an end.
    Lost,
    /// Stored or answered more than once.
    Doubled,
    /// In another order than sent or begun.
    Reordered,
    /// A user saw data of another user.
    CrossUser,
    /// An effect of a `once` run happened or began more than once.
    OnceRepeated,
    /// An `idempotent` effect took effect twice.
    EffectRepeated,
    /// A stream with a gap or a repeat, or one that shows an event that is not in the log.
    Stream,
    /// A read that does not show a message that was acknowledged before it.
    StaleRead,
    /// An answer to another message, a failure without a cause, a refused message that was stored.
    Answer,
    /// Two processes used the same data.
    TwoOwners,
    /// `annie doctor` reports a fault in the data.
    Doctor,
}

impl Wrong {
    pub const ALL: [Self; 11] = [
        Self::Lost,
        Self::Doubled,
        Self::Reordered,
        Self::CrossUser,
        Self::OnceRepeated,
        Self::EffectRepeated,
        Self::Stream,
        Self::StaleRead,
        Self::Answer,
        Self::TwoOwners,
        Self::Doctor,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Doubled => "doubled",
            Self::Reordered => "reordered",
            Self::CrossUser => "cross-user",
            Self::OnceRepeated => "once effects repeated",
            Self::EffectRepeated => "idempotent effects repeated",
            Self::Stream => "streams with a gap or a repeat",
            Self::StaleRead => "stale reads",
            Self::Answer => "wrong answers",
            Self::TwoOwners => "two owners",
            Self::Doctor => "doctor's faults",
        }
    }
}

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub wrong: Wrong,
    /// The conversation or the token of the violation.
    pub about: String,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.wrong.name(), self.about, self.detail)
    }
}

/// Returns all violations.
pub fn check(history: &History, found: &Found) -> Vec<Violation> {
    let mut all = Findings::default();
    messages(history, found, &mut all);
    logs(found, &mut all);
    sent_order(history, &mut all);
    effects(history, found, &mut all);
    owners(history, found, &mut all);
    streams(history, found, &mut all);
    reads(history, &mut all);
    cancels(history, found, &mut all);
    if let Some(fault) = &found.doctor {
        all.add(Wrong::Doctor, "the data", fault.clone());
    }
    all.0
}

#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, wrong: Wrong, about: &str, detail: impl Into<String>) {
        self.0.push(Violation { wrong, about: about.to_owned(), detail: detail.into() });
    }
}

/// The messages in the logs by token, each with its conversation and event.
fn received(found: &Found) -> BTreeMap<&str, Vec<(&str, &LogEvent)>> {
    let mut all: BTreeMap<&str, Vec<(&str, &LogEvent)>> = BTreeMap::new();
    for (conversation, log) in &found.logs {
        for event in log.events.iter().filter(|e| e.kind == "received") {
            for token in &event.tokens {
                all.entry(token).or_default().push((conversation, event));
            }
        }
    }
    all
}

/// Each message is stored once and ends once, with its own answer.
fn messages(history: &History, found: &Found, all: &mut Findings) {
    let received = received(found);
    for submit in &history.submits {
        let places = received.get(submit.token.as_str()).map_or(&[][..], Vec::as_slice);
        let tasks: BTreeSet<&str> = submit.acks.iter().map(|a| a.task.as_str()).collect();
        if tasks.len() > 1 {
            all.add(Wrong::Doubled, &submit.token, format!("acknowledged as {tasks:?}"));
        }
        if places.len() > 1 {
            let at: Vec<_> = places.iter().map(|(c, e)| format!("{c} at {}", e.seq)).collect();
            all.add(Wrong::Doubled, &submit.token, format!("stored {} times: {at:?}", places.len()));
        }
        for code in submit.refused.iter().filter(|c| !MAY_REFUSE.contains(&c.as_str())) {
            all.add(Wrong::Answer, &submit.token, format!("refused with {code}"));
        }
        let is_acknowledged = !submit.acks.is_empty();
        if !is_acknowledged && submit.unknown == 0 && !places.is_empty() {
            all.add(Wrong::Answer, &submit.token, "refused each time, and stored");
        }
        for ack in &submit.acks {
            let there = places.iter().any(|(c, e)| *c == ack.conversation && e.task == ack.task && e.seq == ack.seq);
            if !there {
                let detail =
                    format!("acknowledged as {} at {} of {}, and not there", ack.task, ack.seq, ack.conversation);
                all.add(Wrong::Lost, &submit.token, detail);
            }
        }
        for (conversation, event) in places {
            if let Some(log) = found.logs.get(*conversation) {
                ending(submit, log, &event.task, all);
            }
        }
    }
}

fn ending(submit: &Submit, log: &Log, task: &str, all: &mut Findings) {
    let finals: Vec<&LogEvent> = log.events.iter().filter(|e| e.task == task && e.is_final()).collect();
    match finals.as_slice() {
        [] => all.add(Wrong::Lost, &submit.token, format!("{task} never ended")),
        [one] => {
            if one.kind == "answered" && !one.tokens.contains(&submit.token) {
                all.add(Wrong::Answer, &submit.token, format!("answered with {:?}", one.tokens));
            }
            let may_fail = |code: &str| MAY_FAIL.contains(&code) || (code == IN_DOUBT && submit.kind == Kind::Send);
            if one.kind == "failed" && !may_fail(&one.code) {
                all.add(Wrong::Answer, &submit.token, format!("failed with {}", one.code));
            }
        }
        several => {
            let at: Vec<u64> = several.iter().map(|e| e.seq).collect();
            all.add(Wrong::Doubled, &submit.token, format!("{task} ended {} times, at {at:?}", several.len()));
        }
    }
    for ack in &submit.acks {
        if ack
            .answer
            .as_ref()
            .is_some_and(|a| finals.iter().any(|f| f.kind == "answered") && !a.contains(&submit.token))
        {
            all.add(Wrong::Answer, &submit.token, format!("its waiting client received {:?}", ack.answer));
        }
    }
}

/// Checks that each log is dense, that each agent reports once, and that turns of one lane run one after the other in the
/// order of their messages.
fn logs(found: &Found, all: &mut Findings) {
    for (conversation, log) in &found.logs {
        for (n, event) in log.events.iter().enumerate() {
            if event.seq != n as u64 + 1 {
                all.add(Wrong::Lost, conversation, format!("the log has {} where {} should be", event.seq, n + 1));
                break;
            }
        }
        let mut reports: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for event in log.events.iter().filter(|e| e.kind == "agent_reported") {
            *reports.entry((&event.task, &event.agent)).or_default() += 1;
        }
        for ((task, agent), times) in reports.into_iter().filter(|(_, times)| *times > 1) {
            all.add(Wrong::Doubled, conversation, format!("{agent} of {task} reported {times} times"));
        }
        for class in ["high", "normal"] {
            lane(conversation, log, class, all);
        }
    }
}

fn lane(conversation: &str, log: &Log, class: &str, all: &mut Findings) {
    let seq_of =
        |task: &str, is: &dyn Fn(&LogEvent) -> bool| log.events.iter().find(|e| e.task == task && is(e)).map(|e| e.seq);
    // Deferred and suspended tasks block no other task and are not bound to the order.
    let unordered: BTreeSet<&str> =
        log.events.iter().filter(|e| e.kind == "deferred" || e.kind == "suspended").map(|e| e.task.as_str()).collect();
    let mut before: Option<(&str, u64, Option<u64>)> = None;
    for message in log.events.iter().filter(|e| e.kind == "received" && e.class == class) {
        let task = message.task.as_str();
        let Some(started) = seq_of(task, &|e| e.kind == "turn_started").filter(|_| !unordered.contains(task)) else {
            continue;
        };
        if let Some((other, other_started, other_ended)) = before {
            if started < other_started {
                all.add(Wrong::Reordered, conversation, format!("{task} began at {started}, before {other}"));
            } else if other_ended.is_none_or(|end| end > started) {
                let detail = format!("{task} began at {started}, while {other} was under way ({other_ended:?})");
                all.add(Wrong::Reordered, conversation, detail);
            }
        }
        before = Some((task, started, seq_of(task, &LogEvent::is_final)));
    }
}

/// Checks that a message that was acknowledged before another was sent has the lower sequence number.
fn sent_order(history: &History, all: &mut Findings) {
    let mut by_conversation: BTreeMap<&str, Vec<&Submit>> = BTreeMap::new();
    for submit in &history.submits {
        if let Some(ack) = submit.acks.first() {
            by_conversation.entry(&ack.conversation).or_default().push(submit);
        }
    }
    for (conversation, mut submits) in by_conversation {
        submits.sort_by_key(|s| s.from_us);
        for (n, later) in submits.iter().enumerate() {
            let Some(at) = later.acks.first() else { continue };
            for earlier in submits.iter().take(n) {
                let Some(ack) = earlier.acks.first() else { continue };
                if ack.at_us < later.from_us && ack.seq >= at.seq {
                    let detail =
                        format!("{} at {} was sent after {} at {}", later.token, at.seq, earlier.token, ack.seq);
                    all.add(Wrong::Reordered, conversation, detail);
                }
            }
        }
    }
}

/// Checks that each external effect happened at most once, and that it happened if the answer says so.
fn effects(history: &History, found: &Found, all: &mut Findings) {
    for (token, times) in found.sent.iter().filter(|(_, times)| **times > 1) {
        all.add(Wrong::OnceRepeated, token, format!("sent {times} times"));
    }
    for (token, times) in found.noted.iter().filter(|(_, times)| **times > 1) {
        all.add(Wrong::EffectRepeated, token, format!("noted {times} times"));
    }
    for (conversation, log) in &found.logs {
        let once: BTreeSet<&String> = log.events.iter().flat_map(|e| &e.once).collect();
        let mut begun: BTreeMap<&str, u32> = BTreeMap::new();
        for event in log.events.iter().filter(|e| e.kind == "skill_started" && once.contains(&e.intent)) {
            *begun.entry(&event.intent).or_default() += 1;
        }
        for (intent, times) in begun.into_iter().filter(|(_, times)| *times > 1) {
            all.add(Wrong::OnceRepeated, conversation, format!("{intent} was begun {times} times"));
        }
    }
    let asked: BTreeMap<&str, Kind> = history.submits.iter().map(|s| (s.token.as_str(), s.kind)).collect();
    for token in found.sent.keys().filter(|t| asked.get(t.as_str()) != Some(&Kind::Send)) {
        all.add(Wrong::Answer, token, "sent, and no message asked for it");
    }
    for submit in history.submits.iter().filter(|s| s.kind == Kind::Send) {
        let answered = |e: &LogEvent| e.kind == "answered" && e.tokens.contains(&submit.token);
        let is_done = found.logs.values().any(|l| l.events.iter().any(answered));
        if is_done && !found.sent.contains_key(&submit.token) {
            all.add(Wrong::Answer, &submit.token, "the answer says it was sent, and it was not");
        }
    }
}

/// Checks that no user sees text of another user.
fn owners(history: &History, found: &Found, all: &mut Findings) {
    let owner: BTreeMap<&str, &str> = history.submits.iter().map(|s| (s.token.as_str(), s.user.as_str())).collect();
    let is_foreign = |token: &str, user: &str| owner.get(token).is_some_and(|o| *o != user);
    for (conversation, log) in &found.logs {
        for token in log.events.iter().flat_map(|e| &e.tokens).filter(|t| is_foreign(t, &log.user)) {
            all.add(Wrong::CrossUser, conversation, format!("{token} in a conversation of {}", log.user));
        }
    }
    for stream in &history.streams {
        for token in stream.tokens.iter().filter(|t| is_foreign(t, &stream.user)) {
            all.add(Wrong::CrossUser, &stream.conversation, format!("{token} on a stream of {}", stream.user));
        }
    }
    for read in &history.reads {
        for token in read.messages.iter().flat_map(|m| &m.3).filter(|t| is_foreign(t, &read.user)) {
            all.add(Wrong::CrossUser, &read.conversation, format!("{token} was read by {}", read.user));
        }
    }
    for foreign in history.foreigns.iter().filter(|f| f.status != 404) {
        let detail = format!("{} asked for it and got {}", foreign.user, foreign.status);
        all.add(Wrong::CrossUser, &foreign.conversation, detail);
    }
}

/// Checks that a stream, over all its connections, shows every event after its start once and as the log has it.
fn streams(history: &History, found: &Found, all: &mut Findings) {
    for stream in &history.streams {
        if stream.resets > 0 {
            all.add(Wrong::Stream, &stream.conversation, "the server did not know the position that it had given");
        }
        let events = found.logs.get(&stream.conversation).map_or(&[][..], |l| l.events.as_slice());
        for (n, (seq, kind, task)) in stream.seen.iter().enumerate() {
            let due = stream.after + n as u64 + 1;
            if *seq != due {
                let what = if *seq < due { "a repeat" } else { "a gap" };
                let detail = format!("{what}: {seq} came where {due} was due, to client {}", stream.client);
                all.add(Wrong::Stream, &stream.conversation, detail);
                break;
            }
            let at = usize::try_from(seq.saturating_sub(1)).ok().and_then(|n| events.get(n));
            if at.is_none_or(|e| e.kind != *kind || e.task != *task) {
                let detail = format!("{kind} of {task} was shown at {seq}, and the log has {at:?}");
                all.add(Wrong::Stream, &stream.conversation, detail);
                break;
            }
        }
    }
}

/// Checks that a read shows every message that was acknowledged before it began, in order and once.
fn reads(history: &History, all: &mut Findings) {
    let mut acked: BTreeMap<&str, Vec<(u64, u64, &str)>> = BTreeMap::new();
    for submit in &history.submits {
        if let Some(ack) = submit.acks.first() {
            acked.entry(&ack.conversation).or_default().push((ack.at_us, ack.seq, &submit.token));
        }
    }
    for read in &history.reads {
        let submitted: Vec<u64> = read.messages.iter().map(|m| m.0).collect();
        if submitted.windows(2).any(|w| matches!(w, [a, b] if a >= b)) {
            all.add(Wrong::Reordered, &read.conversation, format!("a read shows {submitted:?}"));
        }
        let mut answers = BTreeSet::new();
        for (seq, _, task, _) in read.messages.iter().filter(|m| m.1 == "assistant") {
            if !answers.insert(task) {
                all.add(Wrong::Doubled, &read.conversation, format!("a read shows two answers to {task}, at {seq}"));
            }
        }
        for (at_us, seq, token) in acked.get(read.conversation.as_str()).into_iter().flatten() {
            let is_due = *at_us < read.from_us && *seq >= read.down_to;
            if is_due && !submitted.contains(seq) {
                let detail = format!("{token} was acknowledged at {seq} before, and is not on the page {submitted:?}");
                all.add(Wrong::StaleRead, &read.conversation, detail);
            }
        }
    }
}

/// Checks that an acknowledged cancellation is in the log.
fn cancels(history: &History, found: &Found, all: &mut Findings) {
    for cancel in history.cancels.iter().filter(|c| c.done == Some(true)) {
        let events = found.logs.get(&cancel.conversation).map_or(&[][..], |l| l.events.as_slice());
        if !events.iter().any(|e| e.task == cancel.task && e.kind == "cancel_requested") {
            all.add(Wrong::Lost, &cancel.conversation, format!("the cancellation of {} was acknowledged", cancel.task));
        }
    }
}
