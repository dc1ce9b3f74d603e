//! Final texts that are no answers: the model repeats what the kernel said about a call, or describes the call that it should
//! have made. It is notified once, and neither the user nor later turns see the text.

use super::{
    interface::UNUSABLE_ROUNDS_MAX,
    run::{AgentRun, Ending},
};
use crate::message::Finish;

const ONLY_FOR_YOU: &str = "[That text is about your call, and the user does not see it. Make the right call now, or answer in your own words.]";
/// The reason of a failure after it.
const ONLY_AN_ERROR: &str = "The model only repeated what it was told about a call.";
const ONLY_DESCRIBED: &str = "[You described a call, so nothing ran. Make the call.]";
/// The reason of a failure after it.
const ONLY_A_DESCRIPTION: &str = "The model only described the call that it should have made.";

impl AgentRun {
    /// Whether the agent has done something, or may have done something. Then it is not asked to make a call, because that
    /// could repeat the effect in other words.
    pub(super) const fn may_have_acted(&self) -> bool {
        !self.receipts.is_empty()
            || !self.known.is_empty()
            || !self.in_doubt.is_empty()
            || self.programs_ran
            || self.found_done
    }

    /// Takes a final text that only repeats an error of a call. The model is notified once, and the error is not shown to the
    /// user or to later turns.
    pub(super) fn take_repeated_error(&mut self) {
        self.messages.pop();
        let may_ask = self.round < self.rounds_max && !self.may_have_acted();
        if may_ask && !std::mem::replace(&mut self.notified_of_call, true) {
            self.note(ONLY_FOR_YOU);
            self.next_round();
        } else if !self.receipts.is_empty() || !self.known.is_empty() {
            // The answer is made from the receipts.
            self.finish = Finish::Stop;
            self.end(Ending::Output(String::new()));
        } else {
            self.end(Ending::Silent(ONLY_AN_ERROR.to_owned()));
        }
    }

    /// Takes a final text that describes a call in place of making it: the model cannot use tools, and nothing was done. The
    /// turn goes on with commands, if its interface may change; otherwise the model is notified once.
    pub(super) fn take_described_call(&mut self) {
        self.messages.pop();
        self.unusable_rounds = UNUSABLE_ROUNDS_MAX;
        if self.round < self.rounds_max && !std::mem::replace(&mut self.notified_of_call, true) {
            self.note(ONLY_DESCRIBED);
            self.next_round();
        } else {
            self.end(Ending::Silent(ONLY_A_DESCRIPTION.to_owned()));
        }
    }
}
