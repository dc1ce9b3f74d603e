//! Finds a skill's arguments in the words of a clause. Only flags in the synopsis are ever used; the meaning of a flag
//! follows from its name.

mod change;
mod generic;
mod memory;
mod note;
mod task;
mod vet;
mod words;

use std::ops::Range;

use annie_core::{
    command,
    skill::{ArgKind, ArgSpec},
};
use serde_json::{Number, Value};

pub(super) use vet::CONDITIONS;

use super::{
    answer,
    catalog::Skill,
    choose::{Choice, How},
    pattern::number,
    rules::Shape,
    text::Text,
};

/// A call of a skill.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub skill: String,
    /// The arguments, each flag at most once.
    pub args: Vec<(String, Value)>,
}

/// The result for one clause.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Filled {
    /// Calls to run; several if the clause names several things.
    Ready(Vec<Call>),
    /// The number of the thing must first be found by its words.
    Find {
        /// The search query.
        query: String,
        /// The flag that takes the number.
        id_flag: String,
        /// The call without the number.
        call: Call,
    },
    /// A call to run, and a text below its result about the part of the request that the skill cannot do.
    Noted(Call, String),
    /// A call that looks the task up; then the user is asked whether to delete it.
    Confirm(Call),
    /// Required information is missing, which only the user can give.
    Missing(String),
    /// An answer in place of a call: a refusal, or a question.
    Answer(String),
    /// An answer in place of the whole message, because the rest of the message depends on this clause.
    Whole(String),
}

/// A clause and the skill that it asks for.
pub(super) struct Filler<'a> {
    pub skill: &'a Skill,
    pub text: &'a Text<'a>,
    /// Results of earlier agents, for clauses that refer to `it`.
    pub results: &'a str,
}

impl<'a> Filler<'a> {
    /// The arguments for a chosen skill.
    pub fn fill(&self, choice: &Choice) -> Filled {
        if !self.skill.name.contains('.') {
            return Filled::Answer(answer::prompt_skill(self.skill));
        }
        if self.skill.args.is_none() {
            return Filled::Missing(format!("I do not know the arguments of {}", self.skill.name));
        }
        match &choice.how {
            How::Named => self.named(choice.start),
            How::Likeness { rest } => self.generic(choice.start, *rest),
            How::Phrase { shape, fit } => {
                let rest = fit.end..self.text.words.len();
                let gap = fit.gaps.first().cloned().unwrap_or(rest.start..rest.start);
                let start = choice.start;
                if let Some(answer) = self.refusal_for_clause(*shape, start, fit.end) {
                    return answer;
                }
                match shape {
                    Shape::Plain => self.time(start),
                    Shape::Snooze => self.snooze(start, rest),
                    Shape::Bare => self.ready(self.call()),
                    Shape::Deleted => self.deleted(if rest.is_empty() { gap } else { rest }),
                    Shape::Topic => self.topic(),
                    Shape::Await => self.awaited(rest),
                    Shape::Title => self.title(start, rest),
                    Shape::GapTitle => self.gap_title(start, gap, rest),
                    Shape::List => self.list(start),
                    Shape::Status(status) => self.status(start, gap, rest, status),
                    Shape::Change => self.change(start, gap, rest),
                    Shape::One => self.one(start, gap, rest),
                    Shape::AskDelete => self.ask_delete(start, gap, rest),
                    Shape::Clear => self.clear(start, rest),
                    Shape::AddTo => self.add_to(start, rest),
                    Shape::Move => self.moved(gap, rest),
                    Shape::Statement => self.statement(rest),
                    Shape::GapStatement => self.statement(if gap.is_empty() { rest } else { gap }),
                    Shape::Question => self.search(start..rest.end),
                    Shape::Search => self.search(if rest.is_empty() { gap } else { rest }),
                    Shape::Note => self.note(rest),
                    Shape::Jot => self.jot(rest),
                    Shape::NoteTitle => self.note_title(if rest.is_empty() { gap } else { rest }),
                    Shape::NoteAppend => self.note_append(gap, &fit.gaps, rest),
                    Shape::NoteMore => self.note_more(rest),
                }
            }
        }
    }

    fn call(&self) -> Call {
        Call { skill: self.skill.name.clone(), args: Vec::new() }
    }

    /// The first of these flags that the skill has.
    fn flag(&self, names: &[&str]) -> Option<&'a ArgSpec> {
        names.iter().find_map(|name| self.skill.arg(name))
    }

    /// Sets the first of these flags that the skill has, if the flag accepts the value.
    fn put(&self, call: &mut Call, names: &[&str], value: &str) -> bool {
        let Some(arg) = self.flag(names) else { return false };
        let Some(value) = typed(arg, value) else { return false };
        call.args.retain(|(name, _)| *name != arg.name);
        call.args.push((arg.name.clone(), value));
        true
    }

    /// The call, if every required flag has its value.
    fn ready(&self, call: Call) -> Filled {
        match self.lacking(&call) {
            None => Filled::Ready(vec![call]),
            Some(arg) => {
                let what = arg.name.replace('_', " ");
                Filled::Missing(format!("{} needs the {what}, and I did not find it in your words", call.skill))
            }
        }
    }

    fn lacking(&self, call: &Call) -> Option<&'a ArgSpec> {
        let mut required = self.skill.args.as_ref()?.iter().filter(|a| a.required);
        required.find(|a| !call.args.iter().any(|(name, _)| *name == a.name))
    }

    /// A command in the syntax of the manual.
    fn named(&self, start: usize) -> Filled {
        let line = self.text.slice(start..self.text.words.len());
        let mut call = self.call();
        match command::parse(line) {
            Ok(parsed) if !parsed.flags.is_empty() => {
                for (flag, value) in parsed.flags {
                    if value.is_none() && self.flag(&[&flag]).is_some_and(|arg| arg.kind != ArgKind::Bool) {
                        return Filled::Missing(format!("{} needs a value after --{flag}", self.skill.name));
                    }
                    let value = value.unwrap_or_else(|| "true".to_owned());
                    if !self.put(&mut call, &[&flag], &value) {
                        let what = format!("{} takes no “{flag}”, or not “{value}” for it", self.skill.name);
                        return Filled::Missing(what);
                    }
                }
                self.ready(call)
            }
            _ => self.generic(start, start + 1),
        }
    }

    /// The words of the request itself, without its payload.
    fn head(&self, start: usize) -> Range<usize> {
        start..self.text.payload_at().max(start)
    }

    fn slice(&self, range: Range<usize>) -> &'a str {
        self.text.slice(range)
    }
}

/// Converts a value to the type of an argument, if possible.
fn typed(arg: &ArgSpec, value: &str) -> Option<Value> {
    let value = value.trim();
    match &arg.kind {
        ArgKind::Text | ArgKind::Date => (!value.is_empty()).then(|| value.into()),
        ArgKind::Choice(words) => {
            let wanted = value.to_lowercase().replace([' ', '-'], "_");
            words.iter().find(|w| w.to_lowercase() == wanted).map(|w| w.as_str().into())
        }
        ArgKind::Integer | ArgKind::Id => number(value).map(Value::from),
        ArgKind::Number => {
            number(value).map(Value::from).or_else(|| value.parse().ok().and_then(Number::from_f64).map(Value::Number))
        }
        ArgKind::Bool => match value {
            "true" | "yes" | "on" => Some(true.into()),
            "false" | "no" | "off" => Some(false.into()),
            _ => None,
        },
        ArgKind::List => {
            let items: Vec<Value> =
                value.split(',').map(str::trim).filter(|i| !i.is_empty()).map(Value::from).collect();
            (!items.is_empty()).then_some(items.into())
        }
    }
}
