//! What a turn's prompts are made of besides the conversation, read once when the turn begins (S0 6.1).

use std::time::Duration;

use annie_core::{
    classify::{Brevity, Mood},
    context::skills_text,
    event::{Inbound, Mode, PromptFacts},
    ids::{AgentId, ConversationId, IntentId, TaskId, UserId},
    limits::TurnLimits,
    ports::{MemoryQuery, SkillCall, Store, TodoSummary},
    skill::{SkillFormat, SkillSet},
    time::Micros,
    turn::manual_of,
};
use chrono_tz::Tz;
use serde_json::json;

use crate::{
    tasks::caught,
    wiring::{Profile, Wiring},
};

/// Memories in a prompt, at most.
const MEMORIES_MAX: u32 = 5;
/// How long reading may take before the turn goes on without, in milliseconds.
const READ_MS_MAX: u64 = 2_000;

/// Reads the facts for one turn. What cannot be read in time is left out: an answer without memories beats none.
pub(crate) async fn read_facts(
    wiring: &Wiring,
    user: &UserId,
    conversation: ConversationId,
    task: TaskId,
    inbound: &Inbound,
    said: Option<&str>,
) -> (Mode, PromptFacts, TurnLimits) {
    // A program that brings its own instructions and tools is told nothing of the user, and offered no skill.
    if inbound.thread().is_some_and(|thread| !thread.with_skills) {
        let timezone = wiring.profiles.of(user).timezone.clone();
        return (Mode::Direct, PromptFacts { timezone, ..PromptFacts::default() }, wiring.limits.turn.clone());
    }
    let mode = if inbound.thread().is_some() { Mode::Direct } else { inbound.mode.unwrap_or(wiring.limits.mode) };
    let limits = wiring.limits.turn.clone();
    let now = wiring.env.now();
    let profile = wiring.profiles.of(user);
    let skills = wiring.catalog.skills();
    let (local_now, local_minute) = local(now, &profile.timezone);
    let remembered = tokio::time::timeout(
        Duration::from_millis(READ_MS_MAX),
        caught(remember(wiring.store.as_ref(), user, &inbound.text, local_minute)),
    );
    let (todo_summary, memories) = remembered.await.ok().and_then(Result::ok).unwrap_or_default();
    let manual = match mode {
        Mode::Direct => skills.for_model().map(|s| manual_of(s, true)).collect(),
        Mode::MultiAgent | Mode::SingleLoop => Vec::new(),
    };
    let facts = PromptFacts {
        skills: skills_text(&skills, limits.skill_list_chars_max()),
        domains: skills.domains().into_iter().map(|d| d.name).collect(),
        manual,
        user_name: profile.name.clone(),
        timezone: profile.timezone.clone(),
        local_now,
        spoken: spoken(wiring, profile, &skills, (user, conversation, task), &inbound.text)
            .await
            .or_else(|| said.map(str::to_owned)),
        suggestion: String::new(),
        tone: inbound.mood.as_ref().map(tone).unwrap_or_default().to_owned(),
        todo_summary,
        memories,
    };
    (mode, facts, limits)
}

async fn remember(store: &dyn Store, user: &UserId, text: &str, local_minute: String) -> (String, Vec<String>) {
    let query = MemoryQuery { text: text.to_owned(), limit: MEMORIES_MAX, ..MemoryQuery::default() };
    let memories = match store.find_memories(user.clone(), query).await {
        Ok(hits) => hits.into_iter().map(|h| h.memory.content).collect(),
        Err(e) => {
            tracing::warn!(error = %e, "memories could not be read");
            Vec::new()
        }
    };
    let summary = match store.todo_summary(user.clone(), local_minute).await {
        Ok(summary) => summary_line(&summary),
        Err(e) => {
            tracing::warn!(error = %e, "the task summary could not be read");
            String::new()
        }
    };
    (summary, memories)
}

/// How the answer should sound, for the prompt (S3 12.1).
const fn tone(mood: &Mood) -> &'static str {
    match (mood.brevity, mood.nudges) {
        (Brevity::Minimal, _) => "Answer in as few words as possible, and suggest nothing that was not asked for.",
        (Brevity::Short, false) => "Answer briefly, and suggest nothing that was not asked for.",
        (Brevity::Short, true) => "Answer briefly.",
        (Brevity::Full, _) => "There is time: details and what else belongs to it are welcome.",
        (Brevity::Normal, false) => "Suggest nothing that was not asked for.",
        (Brevity::Normal, true) => "",
    }
}

fn summary_line(summary: &TodoSummary) -> String {
    if summary.open == 0 {
        return String::new();
    }
    let mut line =
        format!("Tasks: {} open, {} overdue, {} due today", summary.open, summary.overdue, summary.due_today);
    if let Some(top) = &summary.top {
        line.push_str(&format!(" (most urgent: \"{top}\")"));
    }
    line
}

/// `2026-02-18 14:05 Wednesday` for the prompt, `2026-02-18T14:05` for comparisons.
fn local(now: Micros, timezone: &str) -> (String, String) {
    let zone: Tz = timezone.parse().unwrap_or(Tz::UTC);
    let local = now.to_utc().with_timezone(&zone);
    (local.format("%Y-%m-%d %H:%M %A").to_string(), local.format("%Y-%m-%dT%H:%M").to_string())
}

/// `/name arguments` of a prompt skill that users may invoke becomes the skill's instructions (S1, path 2).
async fn spoken(
    wiring: &Wiring,
    profile: &Profile,
    skills: &SkillSet,
    (user, conversation, task): (&UserId, ConversationId, TaskId),
    text: &str,
) -> Option<String> {
    let (name, arguments) =
        text.strip_prefix('/').map(|rest| rest.split_once(char::is_whitespace).unwrap_or((rest, "")))?;
    let skill = skills.get(name)?;
    if !matches!(skill.format, SkillFormat::Prompt { user_invocable: true, .. }) {
        return None;
    }
    let agent = AgentId::orchestrator();
    let intent = IntentId::for_call(task, &agent, "slash");
    let call = SkillCall {
        intent,
        skill: name.to_owned(),
        arguments: json!({"args": arguments.trim()}),
        user: user.clone(),
        conversation,
        task,
        agent,
        now: wiring.env.now(),
        timezone: profile.timezone.clone(),
        operation: wiring.operations.grant(intent),
    };
    let run = caught(wiring.runner.run(call));
    let read = tokio::time::timeout(Duration::from_millis(READ_MS_MAX), run).await.ok()?.ok()?;
    read.status.is_ok().then(|| format!("[Skill: {name}]\n\n{}", read.data))
}
