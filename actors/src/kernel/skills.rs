//! Runs of skills that a user asks for by a command, without a message and without a model: lists and changes of the user's own
//! data. The run goes through the breaker of the skill and asks the hooks, like a call of an agent. No event records it, so that
//! it is only for skills that a repetition under the same key does not harm.

use std::slice;

use annie_core::{
    approval::ApprovalMode,
    command::{Resolution, resolve},
    event::PlannedSkill,
    hooks::{Decided, HookContext, HookPoint, HookSubject, HookVerdict},
    ids::{AgentId, ConversationId, Epoch, IntentId, TaskId, UserId},
    outcome::{Outcome, Status},
    people::for_people,
    skill::{Effect, SkillFormat, SkillSpec},
};

use super::{Kernel, KernelError};
use crate::{agent::note, breaker::RunRequest, effects::call_skill};

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
}

impl Kernel {
    /// Whether [`Kernel::run_skill`] accepts commands of this skill: it works on the user's own data at once, and is no prompt.
    #[must_use]
    pub fn runs_by_command(skill: &SkillSpec) -> bool {
        matches!(skill.format, SkillFormat::Command) && check(skill).is_ok()
    }

    /// Runs the skill of a command such as `tasks.search --status done` for a user. A repetition with the same key changes
    /// nothing more.
    ///
    /// # Errors
    /// `Invalid` if the text is no command, or the skill reaches other machines, must not be repeated, needs the approval of a
    /// person that the caller cannot give, or is the subject of a hook that refuses it or is a program.
    pub async fn run_skill(
        &self,
        caller: CommandCaller<'_>,
        command: &str,
        key: &str,
    ) -> Result<SkillRun, KernelError> {
        self.run_checked(caller, command, key, check).await
    }

    /// Tries a skill for its author: also one that reaches other machines and, if the author accepts that, one that must not be
    /// repeated. Such a run is repeated if its command is sent again.
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
        let check = move |skill: &SkillSpec| match skill.effect {
            _ if skill.name == "system.await" => check(skill),
            Effect::Once if !accepts_once => Err(KernelError::Invalid(format!(
                "a test of {} happens for real, and cannot be undone or repeated: accept that with --yes (in the API: \
                 `accepts_once`)",
                skill.name
            ))),
            Effect::Once | Effect::Read | Effect::Idempotent => Ok(()),
        };
        self.run_checked(caller, command, key, check).await
    }

    async fn run_checked(
        &self,
        CommandCaller { user, source, may_approve, origins }: CommandCaller<'_>,
        command: &str,
        key: &str,
        check: impl Fn(&SkillSpec) -> Result<(), KernelError> + Send,
    ) -> Result<SkillRun, KernelError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(KernelError::Invalid(format!("the key must have 1 to {KEY_BYTES_MAX} bytes")));
        }
        let (skill, arguments) = match resolve(command, &self.wiring.catalog.skills(), None) {
            Resolution::Run { skill, arguments } => (skill, arguments),
            Resolution::Help(text) => {
                let skill = command.split_whitespace().next().unwrap_or_default().to_owned();
                return Ok(SkillRun { skill, outcome: Outcome::success(text) });
            }
            Resolution::Error(text) => return Err(KernelError::Invalid(for_people(&text))),
        };
        check(&skill)?;
        let (agent, source) = (AgentId::orchestrator(), source.to_owned());
        let conversation = ConversationId::for_key(&user, "skills run by command");
        // There is no task. The intent needs an id in its place, which is the same for a repetition and for no other user.
        let task = TaskId::from_uuid(ConversationId::for_key(&user, &format!("skill run {key}")).uuid());
        let planned = PlannedSkill {
            intent: IntentId::for_call(task, &agent, &format!("{} {arguments}", skill.name)),
            skill: skill.name.clone(),
            arguments,
            // Nothing resumes this run, so the breaker need not record its start: its client repeats it under its key.
            effect: Effect::Read,
            external: skill.external,
            timeout_ms: skill.timeout_ms,
            origin: origins,
        };
        // The rules judge what the skill does.
        let judged = PlannedSkill { effect: skill.effect, ..planned.clone() };
        let at = HookContext {
            user: &user,
            channels: slice::from_ref(&source),
            conversation,
            task,
            agent: &agent,
            point: HookPoint::BeforeSkill,
            subject: HookSubject::Skill(&judged),
        };
        self.ask_hooks(&at, &skill.name, may_approve)?;
        let request = RunRequest {
            skill: planned,
            call_id: key.to_owned(),
            timezone: self.wiring.profiles.of(&user).timezone.clone(),
            user,
            conversation,
            task,
            agent,
            epoch: Epoch(0),
            started_before: false,
            asked_before: false,
        };
        let done = call_skill(self.wiring.clone(), request).await;
        let outcome = done.outcome.ok_or_else(|| KernelError::Unavailable("the run was not possible".to_owned()))?;
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

fn check(skill: &SkillSpec) -> Result<(), KernelError> {
    let reason = match skill.effect {
        _ if skill.external => "it reaches other machines",
        _ if skill.name == "system.await" => "its result comes later",
        Effect::Once => "it must not be repeated",
        Effect::Read | Effect::Idempotent => return Ok(()),
    };
    Err(conversation_needed(&skill.name, reason))
}

fn conversation_needed(skill: &str, reason: &str) -> KernelError {
    KernelError::Invalid(format!("{skill} runs in a conversation only, because {reason}: ask for it in a message"))
}
