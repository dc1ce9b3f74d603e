//! The inputs of a turn's prompts besides the conversation, read once when the turn begins [S0 6.1].

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use annie_core::{
    classify::{self, Brevity, Intent, Mood, Spoken},
    effort::Effort,
    event::{Inbound, Mode, PlannedSkill, Priority, PromptFacts},
    ids::{AgentId, ConversationId, TaskId, UserId},
    limits::{MainInterface, TurnLimits},
    message::{Message, ModelReply, ModelRequest},
    ports::{ContextQuery, Model, SkillCall},
    skill::{DONE_COMMAND, SkillChange, SkillFormat, SkillSet},
    state::UNSET_STATE,
    time::Micros,
    turn::{Conversation, manual_of},
};
use chrono_tz::Tz;

use super::{Routed, context::read_context, state::with_state};
use crate::{
    skill_lists::Listed,
    tasks::caught,
    wiring::{Profile, Wiring},
};

/// Time limit of a prompt skill that the user invoked, in milliseconds; the turn continues without its instructions.
const READ_MS_MAX: u64 = 2_000;

/// The last version of the skill set for which it was logged that skill descriptions were left out of prompts.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// What the model reads in place of the message that ends the active skill.
const ENDED: &str = "[The user has ended the active skill: its instructions no longer apply. Say so in a few words.]";

/// The prompt skills of a conversation when a turn begins.
pub(crate) struct SkillsInUse {
    /// How often each skill began.
    uses: BTreeMap<String, u32>,
    has_active: bool,
    /// Whether something is open to which a message may be the answer.
    awaits_answer: bool,
}

impl SkillsInUse {
    pub fn of(conversation: &Conversation) -> Self {
        let has_active = conversation.active_skill().is_some();
        let awaits_answer = has_active || conversation.awaits_answer();
        Self { uses: conversation.skill_uses.clone(), has_active, awaits_answer }
    }

    pub const fn has_active(&self) -> bool {
        self.has_active
    }
}

/// The reply to the message that ends the active skill, of a model that is not a language model and follows no instructions.
pub(crate) fn reply_to_end(model: &dyn Model, request: &ModelRequest) -> Option<ModelReply> {
    let is_end = matches!(request.messages.last(), Some(Message::User { text, .. }) if text == ENDED);
    (is_end && !model.summarises()).then(|| ModelReply {
        model: model.id().to_owned(),
        text: "The active skill is ended: its instructions no longer apply.".to_owned(),
        ..ModelReply::default()
    })
}

/// Reads the facts for one turn. A fact that cannot be read in time is left out: an answer without memories is better than
/// none. A turn that does not recall gets nothing of the context sources.
pub(crate) async fn read_facts(
    wiring: &Wiring,
    (user, conversation, task): (&UserId, ConversationId, TaskId),
    inbound: &Inbound,
    (called, known, recalls): (Option<&PlannedSkill>, &SkillsInUse, bool),
    routed: &Routed,
) -> (Mode, PromptFacts, TurnLimits) {
    let window = window(wiring, &routed.candidates);
    // A program that brings its own instructions and tools gets no facts about the user and no skills.
    if inbound.thread().is_some_and(|thread| !thread.with_skills) {
        let timezone = wiring.profiles.of(user).timezone.clone();
        return (
            Mode::Direct,
            PromptFacts { timezone, ..PromptFacts::default() },
            wiring.limits.turn.clone().fitted_to(window),
        );
    }
    let (mut mode, main_interface) = interface(wiring, inbound, &routed.candidates);
    let mut limits = TurnLimits { main_interface, ..wiring.limits.turn.clone() }.fitted_to(window);
    let spoken_as = (inbound.priority == Priority::Realtime).then(|| classify::spoken(&inbound.text));
    if spoken_as.is_some() {
        // An orchestrator costs extra rounds, and a person who speaks waits for each of them.
        mode = Mode::SingleLoop;
        limits.response_tokens_reserve = limits.response_tokens_reserve.min(limits.voice_response_tokens_max);
    }
    let now = wiring.env.now();
    let profile = wiring.profiles.of(user);
    let skills = wiring.catalog.skills();
    let offered = if spoken_as.is_some_and(Spoken::reads_only) { Arc::new(skills.reading()) } else { skills.clone() };
    let (text, timezone) = (inbound.text.clone(), profile.timezone.clone());
    let query = ContextQuery { user: user.clone(), text, is_private: inbound.private, now, timezone };
    let sources = if recalls { &wiring.context_sources[..] } else { &[] };
    let context = read_context(sources, &query).await;
    let manual = match mode {
        Mode::Direct => skills.for_model().map(|s| manual_of(s, true)).collect(),
        Mode::MultiAgent | Mode::SingleLoop => Vec::new(),
    };
    let (instructions, skill_change) = match called {
        Some(called) => spoken(wiring, profile, (user, conversation, task), called).await.unzip(),
        None if known.has_active && inbound.text.trim() == DONE_COMMAND => {
            (Some(ENDED.to_owned()), Some(Some(Box::new(SkillChange::End))))
        }
        None => (None, None),
    };
    let listed = listed(wiring, (&offered, Arc::ptr_eq(&offered, &skills)), window, &inbound.text, &known.uses);
    let facts = PromptFacts {
        skills: listed.list.text.clone(),
        domains: listed.domains.clone(),
        manual,
        user_name: profile.name.clone(),
        timezone: profile.timezone.clone(),
        local_now: local(now, &profile.timezone),
        spoken: instructions.or_else(|| routed.stripped.clone()),
        skill_change: skill_change.flatten(),
        suggestion: String::new(),
        spoken_as,
        tone: inbound.mood.as_ref().map(tone).unwrap_or_default().to_owned(),
        channel: inbound.source.clone(),
        intent: intent_of(wiring, inbound, called.is_some() || known.awaits_answer),
        rules: with_state(wiring, (user, conversation, task), &wiring.limits.rules).await,
        effort: called.and_then(|called| effort_of(&skills, called)),
        ..context
    };
    (mode, facts, limits)
}

/// How hard the model should think, as a prompt skill asks.
fn effort_of(skills: &SkillSet, called: &PlannedSkill) -> Option<Effort> {
    let spec = skills.get(&called.skill)?;
    if let SkillFormat::Prompt { effort, .. } = &spec.format { *effort } else { None }
}

/// What a message wants; `None` if it is not classified. A message with requirements of its own gets the whole prompt.
fn intent_of(wiring: &Wiring, inbound: &Inbound, is_answer: bool) -> Option<Intent> {
    if !wiring.limits.is_small_talk_short {
        return None;
    }
    let has_requirements = inbound.mode.is_some()
        || inbound.request.is_some()
        || inbound.retry.is_some()
        || inbound.outside_text().is_some()
        || !inbound.preamble.is_empty();
    Some(classify::intent(&inbound.text, is_answer || has_requirements).0)
}

/// The mode and interface of a turn on this route. The caller's choice comes first, then the first backend's, then the
/// configuration's. Commands are used where that backend's model was found not to use tools.
fn interface(wiring: &Wiring, inbound: &Inbound, route: &[String]) -> (Mode, MainInterface) {
    if inbound.thread().is_some() {
        // A caller's thread brings its own tools.
        return (Mode::Direct, MainInterface::Tools);
    }
    let all = &wiring.routing.facts;
    let facts = route.first().map_or_else(|| all.first(), |name| all.iter().find(|f| f.name == *name));
    let mode = inbound.mode.or(facts.and_then(|f| f.mode)).unwrap_or(wiring.limits.mode);
    let set = facts.and_then(|f| f.interface).unwrap_or(wiring.limits.turn.main_interface);
    let is_found = set == MainInterface::Auto && facts.is_some_and(|f| wiring.leases.is_by_commands(&f.name));
    let interface = if is_found { MainInterface::Cmd } else { set };
    (interface.mode(mode), interface)
}

/// The smallest known window of the backends that may run the turn. The prompt fits into each backend whose window is known;
/// a backend with an unknown window may still refuse it.
fn window(wiring: &Wiring, candidates: &[String]) -> Option<u32> {
    // An empty route means the first configured backend.
    let first = wiring.routing.facts.first().filter(|_| candidates.is_empty()).map(|f| &f.name);
    candidates.iter().chain(first).filter_map(|name| wiring.leases.window(name)).min()
}

/// The skill list of the prompt, for all skills of the catalogue or for some of them. If something is left out, that is logged
/// once for each version of the skill set.
fn listed(
    wiring: &Wiring,
    (skills, is_whole_catalog): (&Arc<SkillSet>, bool),
    window: Option<u32>,
    message_text: &str,
    uses: &BTreeMap<String, u32>,
) -> Arc<Listed> {
    let chars_max = TurnLimits::skill_list_chars_max(window);
    let listed = if is_whole_catalog {
        wiring.skill_lists.of(skills, chars_max, message_text, uses)
    } else {
        Arc::new(Listed::of(skills, chars_max, message_text, uses))
    };
    if !listed.is_complete()
        && LEFT_OUT.swap(skills.version().saturating_add(1), Ordering::Relaxed) != skills.version().saturating_add(1)
    {
        let list = &listed.list;
        let (left_out, prompt_skills) =
            (list.left_out.unwrap_or("nothing of the commands"), list.skills_left_out.join(", "));
        tracing::warn!(left_out, prompt_skills, chars_max, "skills were left out of prompts to fit the limit");
    }
    listed
}

/// The tone of the answer, for the prompt [S3 12.1].
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

/// The local time for the prompt: `2026-02-18 14:05 Wednesday`.
fn local(now: Micros, timezone: &str) -> String {
    let zone: Tz = timezone.parse().unwrap_or(Tz::UTC);
    now.to_utc().with_timezone(&zone).format("%Y-%m-%d %H:%M %A").to_string()
}

/// The instructions of a prompt skill that the user called by `/name` [S1 Triggering], and what they change about the active
/// skill.
async fn spoken(
    wiring: &Wiring,
    profile: &Profile,
    (user, conversation, task): (&UserId, ConversationId, TaskId),
    called: &PlannedSkill,
) -> Option<(String, Option<Box<SkillChange>>)> {
    let call = SkillCall {
        intent: called.intent,
        skill: called.skill.clone(),
        arguments: called.arguments.clone(),
        origin: Vec::new(),
        user: user.clone(),
        conversation,
        task,
        agent: AgentId::orchestrator(),
        now: wiring.env.now(),
        timezone: profile.timezone.clone(),
        operation: wiring.operations.grant(called.intent),
    };
    let run = caught(wiring.runner.run(call));
    let read = tokio::time::timeout(Duration::from_millis(READ_MS_MAX), run).await.ok()?.ok()?;
    let text = format!("[Skill: {}]\n\n{}", called.skill, read.data);
    let change = read.skill_change.map(|change| match *change {
        // The task that the skill was started as is this turn's.
        SkillChange::Fork(active) => Box::new(SkillChange::Begin(active)),
        other @ (SkillChange::Begin(_) | SkillChange::End) => Box::new(other),
    });
    if read.error_type.as_deref() == Some(UNSET_STATE) {
        // The user must see why the instructions do not begin.
        let why = read.error_detail.as_deref().unwrap_or(&read.data);
        return Some((format!("[The skill {} could not begin. Tell the user: {why}]", called.skill), None));
    }
    if !read.origins.is_empty() {
        // What the user calls becomes instructions, and these would be those of others.
        let (skill, origins) = (&called.skill, read.origins.join(", "));
        let why = format!(
            "its text names values whose author had read text of others ({origins}). Set them yourself by `annie state set`, and \
             call it again."
        );
        return Some((format!("[The skill {skill} could not begin. Tell the user: {why}]"), None));
    }
    read.status.is_ok().then_some((text, change))
}
