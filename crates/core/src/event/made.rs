//! Makes events of replies and answers.

use super::{AnswerOutcome, EventBody, JudgedCalls, ResolvedCall};
use crate::{
    aloud::{VoiceChange, VoiceFormat},
    message::{Finish, ModelReply, Usage},
};

impl EventBody {
    /// The event of a round's reply with its resolved calls.
    #[must_use]
    pub fn replied(round: u32, reply: ModelReply, calls: Vec<ResolvedCall>, backend: String) -> Self {
        let ModelReply { text, tool_calls: _, finish, usage, model, declined, provider_state, repairs, cached } = reply;
        let (waited_ms, prefill_ms) = (0, 0);
        Self::ModelReplied {
            round,
            text,
            calls,
            finish,
            usage,
            model,
            backend,
            declined,
            provider_state,
            repairs,
            cached,
            waited_ms,
            prefill_ms,
            judged: None,
        }
    }

    /// Sets the time for which the model processed the prompt before its first token, in milliseconds.
    #[must_use]
    pub fn after_prefill(mut self, ms: u64) -> Self {
        if let Self::ModelReplied { prefill_ms, .. } = &mut self {
            *prefill_ms = ms;
        }
        self
    }

    /// Sets the time for which the round waited for its permit, in milliseconds.
    #[must_use]
    pub fn after_waiting(mut self, ms: u64) -> Self {
        if let Self::ModelReplied { waited_ms, .. } = &mut self {
            *waited_ms = ms;
        }
        self
    }

    /// The events about loops that follow this reply.
    #[must_use]
    pub fn loops_detected(&self) -> Vec<Self> {
        let Self::ModelReplied { judged: Some(judged), .. } = self else { return Vec::new() };
        let found = judged.loops.iter().cloned();
        found.map(|found| Self::LoopDetected { found, ends_run: judged.ends_run }).collect()
    }

    /// Sets the verdicts about the calls of a reply.
    #[must_use]
    pub fn with_verdicts(mut self, verdicts: Option<JudgedCalls>) -> Self {
        if let Self::ModelReplied { judged, .. } = &mut self {
            *judged = verdicts;
        }
        self
    }

    /// Adds what was changed in an answer because it is read aloud.
    #[must_use]
    pub fn with_spoken(mut self, changes: Vec<VoiceChange>) -> Self {
        if let Self::Answered { spoken, .. } = &mut self {
            for change in changes {
                if !spoken.contains(&change) {
                    spoken.push(change);
                }
            }
        }
        self
    }

    /// The same event with its text for the user as it is spoken, if it is a final event. The number of sentences is not limited.
    #[must_use]
    pub fn read_aloud(mut self, voice: VoiceFormat) -> Self {
        let (Self::Answered { text, .. } | Self::Failed { text, .. } | Self::Cancelled { text }) = &mut self else {
            return self;
        };
        let (said, changes) = voice.without_limit().spoken(text);
        *text = said;
        self.with_spoken(changes)
    }

    /// The same answer with another outcome.
    #[must_use]
    pub fn with_outcome(mut self, now: AnswerOutcome) -> Self {
        if let Self::Answered { outcome, .. } = &mut self {
            *outcome = now;
        }
        self
    }

    /// A complete answer to a request that was carried out, without costs.
    #[must_use]
    pub fn answered(text: impl Into<String>) -> Self {
        Self::Answered {
            text: text.into(),
            paused: false,
            usage: Usage::default(),
            outcome: AnswerOutcome::Done,
            finish: Finish::Stop,
            calls: Vec::new(),
            redacted: Vec::new(),
            spoken: Vec::new(),
        }
    }
}
