//! A program as a hook. It gets the question as JSON on stdin and answers with JSON on stdout. An exit code of 2 refuses, and
//! stderr is the reason, as hooks of other agents do it.

use std::{sync::Arc, time::Duration};

use annie_core::{
    event::HookAnswer,
    hooks::HookQuestion,
    ports::{DraftSink, Fut, HookRunner},
};
use annie_process::ShimReport;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    CommandConfig, CommandModel, outcome,
    run::{Ended, execute},
};
use crate::error::LlmError;

/// The exit code that refuses.
const REFUSES: i32 = 2;
/// The reason of a program that gives none.
const NO_REASON: &str = "The rule's program refused it.";

/// How long a question waits for a slot, in milliseconds. A person may wait for the turn.
const SLOT_MS_MAX: u64 = 10_000;

/// A hook that is a program on this machine. It is started like the program of a backend, under the same limits.
#[derive(Debug)]
pub struct ProgramHook {
    program: CommandModel,
    slots: Arc<Semaphore>,
}

impl ProgramHook {
    /// How long a question may take in addition to the time limit of the program, in milliseconds: the wait for a slot, and a
    /// second for the end of a program that was late.
    pub const OVERHEAD_MS_MAX: u64 = SLOT_MS_MAX + 1_000;

    /// Creates a hook for one configured program. `slots` are shared by all hooks whose programs together are
    /// limited. `lookup` reads the variables of this process that are passed on. Does not start the program.
    ///
    /// # Errors
    /// Fails if a setting is invalid.
    pub fn new(
        config: CommandConfig,
        slots: Arc<Semaphore>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, LlmError> {
        Ok(Self { program: CommandModel::new(config, lookup)?, slots })
    }

    async fn run(&self, question: &HookQuestion) -> Result<HookAnswer, String> {
        let config = self.program.config();
        let input = serde_json::to_string(question).map_err(|e| e.to_string())?;
        if input.len() > config.prompt_bytes_max {
            // No failure: a hook whose failure lets through could be evaded by a long text.
            let (bytes, bytes_max) = (input.len(), config.prompt_bytes_max);
            let text = format!("The question to the rule's program has {bytes} bytes, {bytes_max} are allowed.");
            return Ok(HookAnswer::Refuse { text });
        }
        let Ok(Ok(_slot)) = timeout(Duration::from_millis(SLOT_MS_MAX), self.slots.acquire()).await else {
            return Err(format!("it was not started, because other programs of hooks ran for {SLOT_MS_MAX} ms"));
        };
        // Nothing of the output is shown before the answer is whole.
        let drafts: DraftSink = Arc::new(|_| ());
        let ended = execute(&self.program, input, &drafts).await;
        let Ended { how, report, output } = ended.map_err(|e| e.detail)?;
        let status = how.map_err(|why| outcome::broken(config, &why, &output).detail)?;
        if status.success() {
            return answer(&output.reply.bytes);
        }
        let never_began = report == ShimReport::NeverBegan;
        if status.code() != Some(REFUSES) || never_began {
            return Err(outcome::failed(config, status, never_began, &output).detail);
        }
        let reason = config.scrub(String::from_utf8_lossy(&output.stderr.bytes).trim());
        Ok(HookAnswer::Refuse { text: if reason.is_empty() { NO_REASON.to_owned() } else { reason } })
    }
}

/// The answer that a program wrote. Success without output means that the program has no objection.
fn answer(stdout: &[u8]) -> Result<HookAnswer, String> {
    if stdout.trim_ascii().is_empty() {
        return Ok(HookAnswer::Continue);
    }
    serde_json::from_slice(stdout).map_err(|e| format!("its output is no answer: {e}"))
}

impl HookRunner for ProgramHook {
    fn ask<'a>(&'a self, question: &'a HookQuestion) -> Fut<'a, Result<HookAnswer, String>> {
        Box::pin(self.run(question))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use annie_core::{
        hooks::HookPoint,
        ids::{AgentId, ConversationId, TaskId, UserId},
    };

    use super::*;

    /// A hook whose program has no objection.
    fn hook(slots: &Arc<Semaphore>, change: impl FnOnce(&mut CommandConfig)) -> ProgramHook {
        let mut config = CommandConfig {
            program: PathBuf::from("/bin/sh"),
            args: ["-c", "cat > /dev/null"].map(str::to_owned).into(),
            folder: PathBuf::from("/"),
            ..CommandConfig::default()
        };
        change(&mut config);
        ProgramHook::new(config, slots.clone(), |_| None).unwrap()
    }

    fn question() -> HookQuestion {
        let id = uuid::Uuid::nil();
        HookQuestion {
            v: HookQuestion::VERSION,
            id: "1".to_owned(),
            hook: "family".to_owned(),
            point: HookPoint::BeforeTurn,
            user: UserId::new("ann").unwrap(),
            channels: Vec::new(),
            conversation_id: ConversationId::from_uuid(id),
            task_id: TaskId::from_uuid(id),
            agent: AgentId::orchestrator(),
            message: Some("hello".to_owned()),
            skill: None,
            arguments: None,
            effect: None,
            external: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn program_hook_waits_for_a_slot_and_fails_if_none_becomes_free() {
        let slots = Arc::new(Semaphore::new(1));
        let hook = hook(&slots, |_| ());
        let held = slots.acquire().await.unwrap();
        let failure = hook.ask(&question()).await.unwrap_err();
        assert_eq!(failure, "it was not started, because other programs of hooks ran for 10000 ms");
        drop(held);
        // A program takes real time.
        tokio::time::resume();
        assert_eq!(hook.ask(&question()).await, Ok(HookAnswer::Continue));
        assert_eq!(slots.available_permits(), 1, "the slot is free again");
    }

    #[tokio::test]
    async fn program_hook_refuses_what_is_too_long_for_its_question() {
        let hook = hook(&Arc::new(Semaphore::new(1)), |config| config.prompt_bytes_max = 100);
        let answer = hook.ask(&question()).await;
        let bytes = serde_json::to_string(&question()).unwrap().len();
        let text = format!("The question to the rule's program has {bytes} bytes, 100 are allowed.");
        assert_eq!(answer, Ok(HookAnswer::Refuse { text }), "whatever `on_failure` says");
    }

    #[test]
    fn program_hook_output_is_read_as_an_answer_or_is_a_failure() {
        let refuse = HookAnswer::Refuse { text: "No.".to_owned() };
        let replace = HookAnswer::Replace { arguments: serde_json::json!({"title": "x"}) };
        assert_eq!(answer(b" \n"), Ok(HookAnswer::Continue));
        assert_eq!(answer(br#"{"do": "continue"}"#), Ok(HookAnswer::Continue));
        assert_eq!(answer(br#"{"do": "refuse", "text": "No."}"#), Ok(refuse));
        assert_eq!(answer(br#"{"do": "replace", "arguments": {"title": "x"}}"#), Ok(replace));
        for wrong in ["yes", "{}", r#"{"do": "ask"}"#, r#"{"do": "refuse"}"#, r#"{"do": "continue"} {}"#] {
            let failure = answer(wrong.as_bytes()).unwrap_err();
            assert!(failure.starts_with("its output is no answer: "), "{wrong}: {failure}");
        }
    }
}
