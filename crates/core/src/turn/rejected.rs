//! Final texts that are no answers: the model repeats what the kernel said about a call, describes the call that it should have
//! made, or makes up a result. It is notified once, and neither the user nor later turns see the text.

use super::{
    interface::UNUSABLE_ROUNDS_MAX,
    markup,
    messages::Repeated,
    run::{AgentRun, Ending},
    truth,
};
use crate::{
    classify::user_requests,
    message::{Finish, Message},
};

const NO_RESULT: &str = "[You wrote a result yourself: nothing ran. Use your tools, or answer in your own words.]";
/// The reason of a failure after it.
const ONLY_A_RESULT: &str = "The model only made up a result. Nothing ran.";
/// The same for an agent that has only read.
const ONLY_A_CHANGE: &str = "The model only made up a result. Nothing was changed.";
const ONLY_FOR_YOU: &str = "[That text is about your call, and the user does not see it. Make the right call now, or answer in your own words.]";
/// The same for an agent that has acted: a call in other words could be a second effect.
const ONLY_IN_WORDS: &str = "[That text is about your call, and the user does not see it. Answer in your own words: what was done, and what was not.]";
/// The reason of a failure after it.
const ONLY_AN_ERROR: &str = "The model only repeated what it was told about a call.";
const ONLY_DESCRIBED: &str = "[You described a call, so nothing ran. Make the call.]";
/// The reason of a failure after it.
const ONLY_A_DESCRIPTION: &str = "The model only described the call that it should have made.";

impl AgentRun {
    /// Whether the agent has done something, or may have done something. Then it is not asked to make a call, because that
    /// could repeat the effect in other words.
    pub(super) const fn may_have_acted(&self) -> bool {
        self.has_agents
            || !self.receipts.is_empty()
            || !self.known.is_empty()
            || !self.in_doubt.is_empty()
            || self.programs_ran
            || self.found_done
    }

    /// Takes a final text without an answer; returns false for any other.
    pub(super) fn take_rejected(&mut self, text: &str) -> bool {
        if let Some(repeated) = self.repeated_text(text) {
            self.take_repeated_text(repeated);
            return true;
        }
        let may_describe = !self.is_cmd() && self.is_requested;
        if may_describe && markup::describes_call(text) {
            self.take_described_call();
            return true;
        }
        false
    }

    /// Takes a final text that begins with a result that the model made up, if nothing was done. Returns the text without the
    /// tags of results if it may be an answer, and `None` if it was taken.
    pub(super) fn take_invented_result(&mut self, inside: String) -> Option<String> {
        if self.may_have_acted() {
            return Some(inside);
        }
        let has_rounds = self.round < self.rounds_max;
        if has_rounds && !std::mem::replace(&mut self.notified_of_call, true) {
            // A model that cannot use tools writes what it expects from them. The turn goes on with commands, if it may.
            if !self.is_cmd() && self.is_requested {
                self.messages.pop();
                self.unusable_rounds = UNUSABLE_ROUNDS_MAX;
            }
            self.note(NO_RESULT);
            self.next_round();
            return None;
        }
        let has_read = !self.ran.is_empty();
        let is_untrue = || truth::untrue_claim(&inside, true, &self.of_earlier_turns()).is_some();
        if self.is_requested && (!has_read || is_untrue()) {
            self.messages.pop();
            self.end(Ending::Silent(if has_read { ONLY_A_CHANGE } else { ONLY_A_RESULT }.to_owned()));
            return None;
        }
        Some(inside)
    }

    /// Takes a final text that only repeats another text. The model is notified once, and the text is not shown to the user or
    /// to later turns.
    fn take_repeated_text(&mut self, repeated: Repeated) {
        self.messages.pop();
        let has_receipts = !self.receipts.is_empty() || !self.known.is_empty();
        let may_notify = self.round < self.rounds_max && !self.notified_of_call;
        match repeated {
            // An answer from the receipts alone would hide that a part is missing.
            Repeated::Request if may_notify && self.is_more_requested() => {
                self.notified_of_call = true;
                self.note(ONLY_IN_WORDS);
                self.next_round();
            }
            // The answer is made from the receipts.
            Repeated::DoneAlready(_) | Repeated::Request if has_receipts => {
                self.finish = Finish::Stop;
                self.end(Ending::Output(String::new()));
            }
            // Another agent of the turn had the effect.
            Repeated::DoneAlready(done) => {
                self.finish = Finish::Stop;
                self.end(Ending::Output(done));
            }
            Repeated::Error | Repeated::Request => {
                if self.round < self.rounds_max && !std::mem::replace(&mut self.notified_of_call, true) {
                    self.note(if self.may_have_acted() { ONLY_IN_WORDS } else { ONLY_FOR_YOU });
                    self.next_round();
                } else {
                    self.end(Ending::Silent(ONLY_AN_ERROR.to_owned()));
                }
            }
        }
    }

    /// Whether the message that opened the turn requests more changes than there are receipts.
    fn is_more_requested(&self) -> bool {
        let Some(Message::User { text, .. }) = self.messages.get(self.stable) else { return false };
        user_requests(text) > self.receipts.len() + self.known.len()
    }

    /// Takes a final text that describes a call in place of making it. If nothing was done, the model cannot use tools, and the
    /// turn goes on with commands if its interface may change. In any case the model is notified once.
    fn take_described_call(&mut self) {
        self.messages.pop();
        let has_acted = self.may_have_acted();
        if !has_acted {
            self.unusable_rounds = UNUSABLE_ROUNDS_MAX;
        }
        if self.round < self.rounds_max && !std::mem::replace(&mut self.notified_of_call, true) {
            self.note(if has_acted { ONLY_IN_WORDS } else { ONLY_DESCRIBED });
            self.next_round();
        } else {
            self.end(Ending::Silent(ONLY_A_DESCRIPTION.to_owned()));
        }
    }
}
