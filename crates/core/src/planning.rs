//! Plan first, then act [S3 8.2]: the model writes a numbered plan in its text, and marks what it does, what it concludes and its
//! answer. The marks are for the kernel: the plan is an event, and the user gets only the answer.

use serde::{Deserialize, Serialize};

use crate::event::EventBody;

/// The component of the event that records a plan.
pub const COMPONENT: &str = "plan";
/// The most steps of a recorded plan, and the longest step in characters.
const STEPS_MAX: usize = 20;
const STEP_CHARS_MAX: usize = 200;
/// The longest mark, in bytes, with the spaces that models add.
const MARK_BYTES_MAX: usize = 32;

/// What the model is told [S3 8.2].
pub(crate) const PLAN_PREFIX: &str = "Before taking any action, write a numbered plan.
Format:
/*PLANNING*/
1. step one
2. step two

Then carry out each step: write /*ACTION*/ before a call, which you make as usual, and /*REASONING*/ before what you conclude from its result. \
If the plan must change, write /*REPLANNING*/ and the new steps. When done, write /*FINAL_ANSWER*/ and then nothing but the answer to the user. \
A message that needs no call needs no plan: write /*FINAL_ANSWER*/ and the answer.
";

/// Whether agents plan before they act.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Planning {
    /// They act at once.
    #[default]
    Off,
    /// The agent that answers the user writes a plan first.
    PlanReact,
}

impl Planning {
    /// Whether agents act at once.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }
}

/// A part of a reply, by the mark before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Before the first mark.
    Before,
    Plan,
    NewPlan,
    Action,
    Reasoning,
    Answer,
}

const MARKS: [(&str, Part); 5] = [
    ("PLANNING", Part::Plan),
    ("REPLANNING", Part::NewPlan),
    ("ACTION", Part::Action),
    ("REASONING", Part::Reasoning),
    ("FINALANSWER", Part::Answer),
];

/// What stands at a `/`.
enum Found {
    /// A mark, with its length in bytes.
    Mark(Part, usize),
    /// The text may become a mark.
    Undecided,
    Nothing,
}

/// What stands at the beginning of a text. A mark may have spaces inside, any case, and an end that is missing before a line end.
fn mark_at(text: &str) -> Found {
    let Some(rest) = text.strip_prefix("/*") else {
        return if text == "/" { Found::Undecided } else { Found::Nothing };
    };
    let mut word = String::new();
    for (at, c) in rest.char_indices() {
        match c {
            _ if at > MARK_BYTES_MAX => return Found::Nothing,
            'a'..='z' | 'A'..='Z' => word.push(c.to_ascii_uppercase()),
            ' ' | '_' | '-' => {}
            '*' | '\n' | '\r' => {
                let tail = &rest[at..];
                if tail == "*" {
                    return Found::Undecided;
                }
                let part = MARKS.iter().find(|(name, _)| *name == word).map(|(_, part)| *part);
                let end = if c == '*' { tail.starts_with("*/").then_some(2) } else { Some(0) };
                return match (part, end) {
                    (Some(part), Some(end)) => Found::Mark(part, 2 + at + end),
                    _ => Found::Nothing,
                };
            }
            _ => return Found::Nothing,
        }
    }
    if MARKS.iter().any(|(name, _)| name.starts_with(&word)) { Found::Undecided } else { Found::Nothing }
}

/// The parts of a reply in their order.
fn parts(text: &str) -> Vec<(Part, &str)> {
    let (mut found, mut part, mut from, mut at) = (Vec::new(), Part::Before, 0, 0);
    while let Some(next) = text[at..].find('/').map(|n| at + n) {
        // A mark at the very end may lack its own end.
        let (found_here, len) = match mark_at(&text[next..]) {
            Found::Mark(part, len) => (Some(part), len),
            Found::Undecided => match mark_at(&format!("{}\n", &text[next..])) {
                Found::Mark(part, _) => (Some(part), text.len() - next),
                Found::Undecided | Found::Nothing => (None, 1),
            },
            Found::Nothing => (None, 1),
        };
        if let Some(new) = found_here {
            found.push((part, &text[from..next]));
            (part, from) = (new, next + len);
        }
        at = next + len;
    }
    found.push((part, &text[from..]));
    found
}

/// The answer in the text of a model that plans. A text without a mark is the answer. If the mark of the answer is missing or nothing
/// stands behind it, the answer is what remains without plans, and at last the text without marks: an answer is never lost.
#[must_use]
pub(crate) fn answer(text: &str) -> String {
    let parts = parts(text);
    if parts.len() == 1 {
        return text.to_owned();
    }
    let of = |wanted: &[Part]| {
        let texts: Vec<&str> =
            parts.iter().filter(|(part, _)| wanted.contains(part)).map(|(_, text)| text.trim()).collect();
        let text = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        Some(text).filter(|text| !text.is_empty())
    };
    let choices: [&[Part]; 3] =
        [&[Part::Answer], &[Part::Before, Part::Reasoning], &[Part::Before, Part::Action, Part::Reasoning]];
    choices.into_iter().find_map(of).unwrap_or_else(|| {
        let texts: Vec<&str> = parts.iter().map(|(_, text)| text.trim()).filter(|text| !text.is_empty()).collect();
        texts.join("\n\n")
    })
}

/// Whether a text has a plan, and neither an answer nor a conclusion.
#[must_use]
pub(crate) fn stops_at_plan(text: &str) -> bool {
    let parts = parts(text);
    let has = |wanted: &[Part]| parts.iter().any(|(part, text)| wanted.contains(part) && !text.trim().is_empty());
    has(&[Part::Plan, Part::NewPlan]) && !has(&[Part::Answer, Part::Reasoning])
}

/// The steps of a plan: its numbered lines, or all of its lines if none has a number.
fn steps(plan: &str) -> Vec<String> {
    let lines = || plan.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("```"));
    let numbered = |line: &&str| {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && line[digits..].starts_with(['.', ')'])
    };
    let all: Vec<&str> =
        if lines().any(|line| numbered(&line)) { lines().filter(numbered).collect() } else { lines().collect() };
    let without_number = |line: &str| {
        line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['.', ')', '-', '*']).trim().to_owned()
    };
    let cut = |line: String| line.chars().take(STEP_CHARS_MAX).collect::<String>();
    all.into_iter().map(without_number).filter(|step| !step.is_empty()).take(STEPS_MAX).map(cut).collect()
}

impl EventBody {
    /// The records of the plans in a reply, for readers of the log.
    #[must_use]
    pub fn plans_decided(&self) -> Vec<Self> {
        let Self::ModelReplied { text, .. } = self else { return Vec::new() };
        let plans = parts(text).into_iter().filter_map(|(part, text)| {
            let is_new = match part {
                Part::Plan => false,
                Part::NewPlan => true,
                Part::Before | Part::Action | Part::Reasoning | Part::Answer => return None,
            };
            let steps = steps(text);
            let what = if is_new { "replan" } else { "plan" };
            (!steps.is_empty()).then(|| Self::Decided {
                component: COMPONENT.to_owned(),
                decision: format!("{what}: {} steps", steps.len()),
                reasoning: if is_new { "the model changed its plan" } else { "the model planned before it acts" }
                    .to_owned(),
                alternatives: steps,
                hook: None,
            })
        });
        plans.collect()
    }
}

/// Removes all but the answer from a draft, piece by piece. What a text without the mark of an answer means is known only at its
/// end, and the stored reply decides.
#[derive(Debug)]
pub struct PlanFilter {
    part: Part,
    /// Text that may become a mark.
    pending: String,
}

impl Default for PlanFilter {
    fn default() -> Self {
        Self { part: Part::Before, pending: String::new() }
    }
}

impl PlanFilter {
    /// Adds a piece of text. Returns what of it, and of undecided earlier text, may be shown.
    pub fn push(&mut self, piece: &str) -> String {
        let mut shown = String::new();
        for c in piece.chars() {
            // What is undecided never begins anew within itself.
            if c == '/' && !self.pending.ends_with('*') {
                self.release(&mut shown);
            }
            if self.pending.is_empty() && c != '/' {
                self.show(c, &mut shown);
                continue;
            }
            self.pending.push(c);
            match mark_at(&self.pending) {
                Found::Undecided => {}
                Found::Nothing => self.release(&mut shown),
                Found::Mark(part, len) => {
                    self.part = part;
                    let rest = self.pending.split_off(len);
                    self.pending.clear();
                    rest.chars().for_each(|c| self.show(c, &mut shown));
                }
            }
        }
        shown
    }

    fn release(&mut self, shown: &mut String) {
        for c in std::mem::take(&mut self.pending).chars() {
            self.show(c, shown);
        }
    }

    fn show(&self, c: char, shown: &mut String) {
        if matches!(self.part, Part::Before | Part::Answer) {
            shown.push(c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "/*PLANNING*/\n1. look it up\n2) book / it\n/*ACTION*/ search\n/*REASONING*/ Three / found.\n/*REPLANNING*/\n1. ask\n/*FINAL_ANSWER*/ Booked, 1/2 price.";

    fn plans(text: &str) -> Vec<(String, Vec<String>)> {
        let body = EventBody::ModelReplied {
            round: 1,
            text: text.to_owned(),
            calls: Vec::new(),
            finish: crate::message::Finish::Stop,
            usage: crate::message::Usage::default(),
            model: String::new(),
            backend: String::new(),
            declined: false,
            provider_state: None,
            repairs: Vec::new(),
            cached: false,
            waited_ms: 0,
            prefill_ms: 0,
            judged: None,
        };
        let shown = |plan| {
            let EventBody::Decided { decision, alternatives, .. } = plan else { return None };
            Some((decision, alternatives))
        };
        body.plans_decided().into_iter().filter_map(shown).collect()
    }

    #[test]
    fn answer_is_what_follows_its_mark_and_is_never_lost() {
        for (text, want) in [
            (WHOLE, "Booked, 1/2 price."),
            ("Just the answer, 1/2.", "Just the answer, 1/2."),
            ("/*PLANNING*/\n1. a\n/* final answer */\nYes.", "Yes."),
            ("/*planning\n1. a\n/*FINAL-ANSWER\nYes.", "Yes."),
            ("/*PLANNING*/\n1. a\n/*REASONING*/ It is 4.", "It is 4."),
            ("It is 4.\n/*PLANNING*/\n1. a", "It is 4."),
            ("/*PLANNING*/ 1. only a plan", "1. only a plan"),
            ("/*PLANNING*/ 1. a /*FINAL_ANSWER*/", "1. a"),
            ("/*PLANNING*/ x /*FINAL_ANSWER*/ a /*FINAL_ANSWER*/ b", "a\n\nb"),
            ("/* a comment */ and /*PLAN", "/* a comment */ and /*PLAN"),
            ("Tom's /*ACTION", "Tom's"),
        ] {
            assert_eq!(answer(text), want, "{text:?}");
        }
    }

    #[test]
    fn plans_are_recorded_with_their_steps() {
        let strings = |steps: &[&str]| steps.iter().map(|&step| step.to_owned()).collect::<Vec<_>>();
        let wanted = [
            ("plan: 2 steps".to_owned(), strings(&["look it up", "book / it"])),
            ("replan: 1 steps".to_owned(), strings(&["ask"])),
        ];
        assert_eq!(plans(WHOLE), wanted);
        assert_eq!(plans("/*PLANNING*/\nfirst\nthen"), [("plan: 2 steps".to_owned(), strings(&["first", "then"]))]);
        assert_eq!(plans("/*PLANNING*/ /*FINAL_ANSWER*/ Yes."), []);
        assert_eq!(plans("No plan."), []);
    }

    #[test]
    fn draft_shows_only_the_answer_for_every_split() {
        for (text, want) in [
            (WHOLE, " Booked, 1/2 price."),
            ("A // b /* c */ d.", "A // b /* c */ d."),
            ("/*PLANNING\n1. a\n//*FINAL_ANSWER*/Yes/*", "Yes"),
        ] {
            let chars: Vec<char> = text.chars().collect();
            for size in 1..12 {
                let mut filter = PlanFilter::default();
                let shown: String =
                    chars.chunks(size).map(|piece| filter.push(&piece.iter().collect::<String>())).collect();
                assert_eq!(shown, want, "{text:?} in pieces of {size}");
            }
        }
    }
}
