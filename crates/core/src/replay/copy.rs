//! What a copy of a conversation begins with: the finished exchanges, and for each open task a sentence that says what is not
//! carried out in the copy. A copy has no open intents, so it repeats no effect.

use crate::{
    event::{Action, CopiedExchange, CopiedSummary},
    skill::Effect,
    turn::{Conversation, Phase, Turn},
};

/// The most exchanges of a copy, the newest ones.
pub const EXCHANGES_MAX: usize = 100;
/// The most bytes of their texts together.
const BYTES_MAX: usize = 256 * 1024;

/// The exchanges with which a copy of a conversation begins, oldest first. `is_outside`: another user wrote them.
#[must_use]
pub fn history_of(state: &Conversation, is_outside: bool) -> Vec<CopiedExchange> {
    let ended = state.history.exchanges().iter().map(|exchange| CopiedExchange {
        user: exchange.user.clone(),
        answer: exchange.answer.clone(),
        private: exchange.private,
        is_outside: is_outside || exchange.user.contains('<'),
    });
    let open = state.turns.iter().map(|turn| CopiedExchange {
        user: turn.inbound.text.clone(),
        answer: not_carried_out(turn),
        private: turn.inbound.private,
        is_outside: is_outside || turn.inbound.outside_text().is_some(),
    });
    let waiting = state.inbox.iter().map(|pending| CopiedExchange {
        user: pending.inbound.text.clone(),
        answer: "[This message waited when the conversation was copied. It is not answered here.]".to_owned(),
        private: pending.inbound.private,
        is_outside: is_outside || pending.inbound.outside_text().is_some(),
    });
    let all: Vec<CopiedExchange> = ended.chain(open).chain(waiting).collect();
    let mut bytes = 0;
    let fits = |exchange: &&CopiedExchange| {
        bytes += exchange.user.len() + exchange.answer.len();
        bytes <= BYTES_MAX
    };
    let mut newest: Vec<CopiedExchange> = all.iter().rev().take(EXCHANGES_MAX).take_while(fits).cloned().collect();
    newest.reverse();
    newest
}

/// The summary with which a copy of a conversation begins; `None` if it was never compacted.
#[must_use]
pub fn summary_of(state: &Conversation) -> Option<CopiedSummary> {
    // The copy has an exchange for each open task behind those of the original.
    let open = (state.turns.len() + state.inbox.len()) as u64;
    state.history.copied_summary().map(|summary| CopiedSummary {
        not_covered: summary.not_covered + open,
        word_for_word: summary.word_for_word + open,
        ..summary
    })
}

fn not_carried_out(turn: &Turn) -> String {
    let runs = std::iter::once(&turn.main).chain(turn.agents.runs.values());
    let calls = runs.filter_map(|run| match &run.phase {
        Phase::Acting(calls) => Some(calls),
        Phase::Thinking | Phase::Ended(_) => None,
    });
    let open = calls.flatten().filter(|call| call.result.is_none()).filter_map(|call| match &call.call.action {
        Action::Skill(planned) if planned.effect != Effect::Read => Some(planned.skill.as_str()),
        Action::Skill(_)
        | Action::Answer { .. }
        | Action::Dispatch(_)
        | Action::Collect { .. }
        | Action::ControlAgent { .. }
        | Action::Alternatives(_)
        | Action::Caller => None,
    });
    let open: Vec<&str> = open.collect();
    let what = if open.is_empty() { String::new() } else { format!(" Not carried out here: {}.", open.join(", ")) };
    format!("[This message was at work when the conversation was copied. It is not answered here.{what}]")
}
