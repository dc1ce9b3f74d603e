//! The end of a run with a text in place of calls: what of it is the answer, and when the model is asked to go on.

use super::{AgentRun, Ending};
use crate::{
    message::Finish,
    turn::{markup, truth},
};

const GO_ON: &str = "[Your answer was cut off at the length limit. Go on exactly where it stopped; repeat nothing.]";
/// The note to a model that only wrote a plan.
const CARRY_OUT: &str =
    "[That is only the plan. Carry it out now: make the calls, or write /*FINAL_ANSWER*/ and the answer.]";
const NO_SUCH_CALL: &str = "[Your reply was a call of something that does not exist, so nothing ran. Use only what you were given, or answer in words.]";
/// See `NO_SUCH_CALL`.
const ONLY_A_CALL: &str = "The model only wrote calls of things that do not exist.";
const LONG_CALL: &str = "The model's call was cut off at its length limit, so it was not run.";
const CUT_CALL: &str = "[Your reply was cut off at the length limit in the middle of a call: nothing ran. Send the whole call again, and nothing else.]";

impl AgentRun {
    /// Takes a reply without calls as the final text. A cut text is continued once, and an agent that ran nothing is reminded
    /// once to act.
    pub(super) fn take_final_text(&mut self, text: &str) {
        let before = self.cut.take();
        if text.trim().is_empty() {
            match before {
                // The continuation is empty.
                Some(before) => self.end_with_cut_text(before),
                None => self.take_empty_reply(),
            }
            return;
        }
        self.messages.push(self.as_message(text, &[], None));
        let prose = if self.is_cmd() { crate::command::prose_in_blocks(text) } else { None };
        let text = prose.as_deref().unwrap_or(text);
        let invented = if self.shows_calls || before.is_some() { None } else { markup::invented_result(text) };
        let invented = match invented.map(|inside| self.take_invented_result(inside)) {
            Some(None) => return,
            Some(inside) => inside,
            None => None,
        };
        let text = invented.as_deref().unwrap_or(text);
        if !self.shows_calls && before.is_none() && self.take_rejected(text) {
            return;
        }
        let whole = before.map_or_else(|| text.trim().to_owned(), |before| truth::joined(&before, text));
        let has_rounds = self.round < self.rounds_max;
        let may_continue = self.finish == Finish::Length && has_rounds && !self.takes_cuts;
        if may_continue && !self.shows_calls && !self.notified_of_call && markup::is_cut_call(text) {
            self.notified_of_call = true;
            self.note(CUT_CALL);
            self.next_round();
        } else if self.finish == Finish::Length && !self.takes_cuts && !self.shows_calls && markup::is_cut_call(&whole)
        {
            // A cut call is neither an answer nor a text to continue.
            self.end(Ending::Silent(LONG_CALL.to_owned()));
        } else if may_continue && !std::mem::replace(&mut self.has_continued, true) {
            self.cut = Some(whole);
            self.note(GO_ON);
            self.next_round();
        } else if has_rounds && self.stops_at_plan(&whole) {
            self.reminded_of_plan = true;
            self.note(CARRY_OUT);
            self.next_round();
        } else {
            self.take_whole_text(self.without_plan(whole), has_rounds);
        }
    }

    /// Takes a final text that is complete.
    fn take_whole_text(&mut self, whole: String, has_rounds: bool) {
        if let Some(rest) = markup::without_calls(&whole).filter(|_| !self.shows_calls) {
            self.take_final_text_with_call(&whole, rest, has_rounds);
        } else if let Some(nudge) = self.nudge_to_act(&whole).filter(|_| has_rounds) {
            self.reminded_to_act = true;
            // A model that sees its own untrue claim repeats it.
            if self.claims_without_acting(&whole) && !self.has_continued {
                self.messages.pop();
            }
            self.note(nudge);
            self.next_round();
        } else {
            self.finish_with(whole, has_rounds);
        }
    }

    /// Takes a final text that contains a call of something that does not exist. The model is notified once, and the call is
    /// not shown to the user.
    fn take_final_text_with_call(&mut self, whole: &str, rest: String, has_rounds: bool) {
        if has_rounds && !std::mem::replace(&mut self.notified_of_call, true) {
            self.note(NO_SUCH_CALL);
            self.next_round();
        } else if markup::is_shown_code(whole) {
            // The user may have asked for exactly this code.
            self.end(Ending::Output(whole.to_owned()));
        } else if rest.is_empty() {
            self.end(Ending::Silent(ONLY_A_CALL.to_owned()));
        } else {
            self.end(Ending::Output(rest));
        }
    }
}
