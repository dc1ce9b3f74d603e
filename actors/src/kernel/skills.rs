//! Runs of skills that a user asks for by a command, without a message and without a model: lists and changes of the user's own
//! data, and what a person asks for expressly. The run goes through the breaker of the skill and asks the hooks, like a call of an
//! agent. No event records it. A run that a repetition would harm is recorded as a document (`command_runs.rs`).

use std::slice;

use annie_core::{
    approval::ApprovalMode,
    command::{Resolution, quote, resolve},
    event::PlannedSkill,
    hooks::{Decided, HookContext, HookPoint, HookSubject, HookVerdict},
    ids::{AgentId, ConversationId, Epoch, IntentId, TaskId, UserId},
    outcome::{Outcome, Status},
    people::for_people,
    skill::{DONE_COMMAND, Effect, PromptContext, SkillFormat, SkillSet, SkillSpec},
};
use serde_json::Value;

use super::{
    Kernel, KernelError,
    command_runs::{Begun, CommandRun},
};
use crate::{
    agent::note,
    breaker::RunRequest,
    effects::{call_skill, fork_by_command},
};

/// The longest key of a run, in bytes.
const KEY_BYTES_MAX: usize = 200;

/// A run of a skill by command.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillRun {
    /// The name of the skill.
    pub skill: String,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The caller of a run by command.
#[derive(Debug, Clone)]
pub struct CommandCaller<'a> {
    /// The user for whom the skill runs.
    pub user: UserId,
    /// The front end, for hooks.
    pub source: &'a str,
    /// Whether the caller may approve calls of skills. Then a rule that asks a person is satisfied: the person has decided by
    /// writing the command.
    pub may_approve: bool,
    /// The origins of the command, if it is not the user's own text: what the run stores carries them.
    pub origins: Vec<String>,
    /// Whether this process goes on after the run, so that a background task of it is carried out.
    pub is_served: bool,
}

/// How a skill is run by command.
#[derive(Debug, Clone, Copy)]
struct How {
    /// Its author tries it.
    is_test: bool,
    /// The caller asks expressly for a run that reaches other machines or cannot be repeated.
    is_express: bool,
}

impl Kernel {
    /// Whether [`Kernel::run_skill`] accepts commands of this skill: it works on the user's own data at once, and is no prompt.
    #[must_use]
    pub fn runs_by_command(skill: &SkillSpec) -> bool {
        matches!(skill.format, SkillFormat::Command) && How { is_test: false, is_express: false }.check(skill).is_ok()
    }

    /// Runs the skill of a command such as `tasks.search --status done` for a user. A repetition with the same key changes
    /// nothing more. A skill that reaches other machines or must not be repeated runs only if the caller asks for it expressly
    /// (`accepts_once`). A prompt skill with `context: fork` starts its background task.
    ///
    /// # Errors
    /// `Invalid` if the text is no command, or the skill must be asked for expressly, runs in a conversation only, needs the approval
    /// of a person that the caller cannot give, or is the subject of a hook that refuses it or is a program.
    pub async fn run_skill(
        &self,
        caller: CommandCaller<'_>,
        command: &str,
        key: &str,
        accepts_once: bool,
    ) -> Result<SkillRun, KernelError> {
        self.run_checked(caller, command, key, How { is_test: false, is_express: accepts_once }).await
    }

    /// Tries a skill for its author: also one that reaches other machines and, if the author accepts that, one that must not be
    /// repeated.
    ///
    /// # Errors
    /// As [`Kernel::run_skill`].
    pub async fn test_skill(
        &self,
        caller: CommandCaller<'_>,
        command: &str,
        key: &str,
        accepts_once: bool,
    ) -> Result<SkillRun, KernelError> {
        self.run_checked(caller, command, key, How { is_test: true, is_express: accepts_once }).await
    }

    async fn run_checked(
        &self,
        caller: CommandCaller<'_>,
        command: &str,
        key: &str,
        how: How,
    ) -> Result<SkillRun, KernelError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(KernelError::Invalid(format!("the key must have 1 to {KEY_BYTES_MAX} bytes")));
        }
        let skills = self.wiring.catalog.skills();
        let (skill, arguments) = match resolve(command, &skills, of_people(command, &skills).as_deref()) {
            Resolution::Run { skill, arguments } => (skill, arguments),
            Resolution::Help(text) => {
                let skill = command.split_whitespace().next().unwrap_or_default().to_owned();
                return Ok(SkillRun { skill, outcome: Outcome::success(text) });
            }
            Resolution::Error(text) => return Err(KernelError::Invalid(for_people(&text))),
        };
        how.check(&skill)?;
        let begins = if how.is_test { None } else { begun(&skill, &arguments)? };
        match begins {
            Some(PromptContext::Inline) => return Err(message_needed(&skill.name, &arguments)),
            Some(PromptContext::Fork) if !caller.is_served => {
                let what =
                    format!("{} runs as a background task, which needs a running server: `annie serve`", skill.name);
                return Err(KernelError::Invalid(what));
            }
            Some(PromptContext::Fork) | None => {}
        }
        let agent = AgentId::orchestrator();
        let conversation = ConversationId::for_key(&caller.user, "skills run by command");
        // There is no task. The intent needs an id in its place, which is the same for a repetition and for no other user.
        let task = TaskId::from_uuid(ConversationId::for_key(&caller.user, &format!("skill run {key}")).uuid());
        let planned = PlannedSkill {
            intent: IntentId::for_call(task, &agent, &format!("{} {arguments}", skill.name)),
            skill: skill.name.clone(),
            arguments,
            effect: skill.effect,
            external: skill.external,
            timeout_ms: skill.timeout_ms,
            origin: caller.origins.clone(),
        };
        let source = caller.source.to_owned();
        let at = HookContext {
            user: &caller.user,
            channels: slice::from_ref(&source),
            conversation,
            task,
            agent: &agent,
            point: HookPoint::BeforeSkill,
            subject: HookSubject::Skill(&planned),
        };
        self.ask_hooks(&at, &skill.name, caller.may_approve)?;
        let outcome = match begins {
            Some(_) => fork_by_command(&self.wiring, caller.user, source, &planned).await?,
            None => self.run_planned(&caller, (conversation, task), key, planned).await?,
        };
        if outcome.status == Status::Pending {
            return Err(conversation_needed(&skill.name, "its result comes later"));
        }
        if skill.effect != Effect::Read {
            // No event tells the workers of this run.
            self.schedules_changed();
            self.reminders_changed();
        }
        Ok(SkillRun { skill: skill.name.clone(), outcome })
    }

    /// Runs the skill. A run that must not be repeated is recorded before it begins, and its outcome answers each repetition.
    async fn run_planned(
        &self,
        caller: &CommandCaller<'_>,
        (conversation, task): (ConversationId, TaskId),
        key: &str,
        planned: PlannedSkill,
    ) -> Result<Outcome, KernelError> {
        let is_recorded = planned.effect == Effect::Once;
        let record = CommandRun { user: &caller.user, source: caller.source, task, planned: &planned };
        let begun = if is_recorded { Some(record.begin(&self.wiring).await?) } else { None };
        if let Some(Begun::Before(outcome)) = begun {
            return Ok(*outcome);
        }
        // Nothing resumes another run, so the breaker need not record its start: its client repeats it under its key.
        let effect = if is_recorded { Effect::Once } else { Effect::Read };
        let request = RunRequest {
            skill: PlannedSkill { effect, ..planned.clone() },
            call_id: key.to_owned(),
            timezone: self.wiring.profiles.of(&caller.user).timezone.clone(),
            user: caller.user.clone(),
            conversation,
            task,
            agent: AgentId::orchestrator(),
            epoch: Epoch(0),
            started_before: false,
            asked_before: false,
            is_recorded,
        };
        let done = call_skill(self.wiring.clone(), request).await;
        let outcome = done.outcome.ok_or_else(|| KernelError::Unavailable("the run was not possible".to_owned()))?;
        if let Some(Begun::Now { number }) = begun {
            record.end(&self.wiring, number, &outcome).await;
        }
        Ok(outcome)
    }

    fn ask_hooks(&self, at: &HookContext<'_>, skill: &str, may_approve: bool) -> Result<(), KernelError> {
        if self.wiring.hooks.is_empty() {
            return Ok(());
        }
        if let Some(Decided { hook, point, verdict, failure }) = self.wiring.hooks.judge(at) {
            match verdict {
                HookVerdict::Continue => note(&hook, point, "continue", skill, &failure),
                HookVerdict::Refuse { text } => {
                    note(&hook, point, "refuse", skill, &failure);
                    return Err(KernelError::Invalid(format!("the rule \"{hook}\" does not allow {skill}: {text}")));
                }
            }
        }
        if self.wiring.hooks.outside(at).next().is_some() {
            return Err(conversation_needed(skill, "a hook outside the kernel decides about it"));
        }
        match self.wiring.hooks.approval().mode(at) {
            ApprovalMode::Off => Ok(()),
            _ if may_approve => Ok(()),
            ApprovalMode::AskFirstTime | ApprovalMode::Ask | ApprovalMode::Always => {
                Err(conversation_needed(skill, "a person must approve it"))
            }
        }
    }
}

impl How {
    /// Refuses what the caller must ask for expressly, and what only a conversation can wait for.
    fn check(self, skill: &SkillSpec) -> Result<(), KernelError> {
        let name = &skill.name;
        let reason = match skill.effect {
            _ if name == "system.await" => return Err(conversation_needed(name, "its result comes later")),
            _ if self.is_express => return Ok(()),
            Effect::Once if self.is_test => {
                return Err(KernelError::Invalid(format!(
                    "a test of {name} happens for real, and cannot be undone or repeated: accept that with --yes (in the API: \
                     `accepts_once`)"
                )));
            }
            _ if self.is_test => return Ok(()),
            _ if skill.external => "it reaches other machines",
            Effect::Once => "it must not be repeated",
            Effect::Read | Effect::Idempotent => return Ok(()),
        };
        Err(KernelError::Invalid(format!(
            "{name} runs in a conversation only, because {reason}: ask for it in a message, or expressly here with --yes (in the \
             API: `accepts_once`)"
        )))
    }
}

/// The skill that a command names if a person may run it and a model may not.
fn of_people(command: &str, skills: &SkillSet) -> Option<Vec<String>> {
    let name = command.split_whitespace().next()?.trim_start_matches('/');
    let SkillFormat::Prompt { user_invocable: true, model_invocable: false, .. } = &skills.get(name)?.format else {
        return None;
    };
    Some(vec![name.to_owned()])
}

/// Where the instructions of a prompt skill go if a command begins or ends them; `None` if the command does something else.
fn begun(skill: &SkillSpec, arguments: &Value) -> Result<Option<PromptContext>, KernelError> {
    let SkillFormat::Prompt { context, user_invocable, .. } = &skill.format else { return Ok(None) };
    let has = |key: &str| arguments.get(key).is_some_and(|value| !value.is_null() && *value != Value::Bool(false));
    if has("file") || has("script") {
        return Ok(None);
    }
    if !user_invocable {
        return Err(KernelError::Invalid(format!(
            "only models begin {}: its file says `user-invocable: false`",
            skill.name
        )));
    }
    // A skill ends where it is active.
    Ok(Some(if has("done") { PromptContext::Inline } else { *context }))
}

/// The error of a command that a conversation must carry out: what to send there.
fn message_needed(skill: &str, arguments: &Value) -> KernelError {
    let args = arguments["args"].as_str().unwrap_or_default();
    let message = format!("/{skill} {args}");
    let message = if arguments["done"] == true { DONE_COMMAND } else { message.trim_end() };
    KernelError::Invalid(format!(
        "{skill} is a prompt skill, whose instructions hold in a conversation: send the message `{message}`, such as with `annie ask \
         {}`",
        quote(message)
    ))
}

fn conversation_needed(skill: &str, reason: &str) -> KernelError {
    KernelError::Invalid(format!("{skill} runs in a conversation only, because {reason}: ask for it in a message"))
}
