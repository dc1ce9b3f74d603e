//! Arguments for skills without special rules: values follow the names of their flags, quoted values fill the text flags,
//! and the remaining words fill the first required text flag that has no value.

use std::ops::Range;

use annie_core::skill::{ArgKind, ArgSpec};

use super::{Call, Filled, Filler, words::as_title};
use crate::{pattern::number, text::unquoted};

impl<'a> Filler<'a> {
    /// The arguments of a skill of which only the synopsis is known.
    pub(super) fn generic(&self, start: usize, rest: usize) -> Filled {
        let args: &'a [ArgSpec] = self.skill.args.as_deref().unwrap_or_default();
        let end = self.words().len();
        let mut call = self.call();
        let mut left_out: Vec<Range<usize>> = Vec::new();
        for arg in args {
            self.by_name(&mut call, arg, args, rest..end, &mut left_out);
        }
        for arg in args.iter().filter(|a| !has(&call, a)).collect::<Vec<_>>() {
            self.by_kind(&mut call, arg, start..end, &mut left_out);
        }
        let mut quotes = self.text.quotes.iter().map(|q| self.text.source[q.clone()].trim());
        let texts = |call: &Call| args.iter().find(|a| a.required && a.kind == ArgKind::Text && !has(call, a));
        while let Some(arg) = texts(&call) {
            let Some(quote) = quotes.find(|q| !call.args.iter().any(|(_, v)| v == q)) else { break };
            self.put(&mut call, &[&arg.name], quote);
        }
        if let Some(arg) = texts(&call) {
            let parts: Vec<&str> = self.skill.name.split(['.', '-', '_']).collect();
            left_out.extend((rest..end).filter(|at| self.is(*at, &parts)).map(|at| at..at + 1));
            let left = self.without(rest..end, &left_out);
            let remaining = as_title(left.trim_end_matches(['?', '.', '!']));
            let remaining = ["In ", "At ", "On ", "The ", "With "]
                .into_iter()
                .find_map(|l| remaining.strip_prefix(l))
                .unwrap_or(&remaining);
            self.put(&mut call, &[&arg.name], unquoted(remaining));
        }
        call.args.sort_by_key(|(name, _)| args.iter().position(|a| a.name == *name));
        self.ready(call)
    }

    /// A value after the flag's own name: `subject "Hi"`, `to bob@example.org`, `city Prague`.
    fn by_name(
        &self,
        call: &mut Call,
        arg: &ArgSpec,
        args: &[ArgSpec],
        range: Range<usize>,
        left_out: &mut Vec<Range<usize>>,
    ) {
        let spoken = arg.name.replace('_', " ");
        let names: Vec<&str> = spoken.split(' ').collect();
        let is_name = |at: usize, name: &str| self.is(at, &[name]);
        let found = range.clone().find(|at| names.iter().enumerate().all(|(n, name)| is_name(at + n, name)));
        let Some(at) = found else { return };
        if arg.kind == ArgKind::Bool {
            self.put(call, &[&arg.name], "true");
            left_out.push(at..at + names.len());
            return;
        }
        let mut from = at + names.len();
        from += usize::from(self.is(from, &["is", "of", "as", "=", "saying", "to"]) && from + 1 < range.end);
        let value = if self.words().get(from).is_some_and(|w| w.quoted) {
            self.text.quote_from(from).map(|q| (q.trim(), self.end_of_quote(from)))
        } else {
            let next = |n: &usize| args.iter().any(|a| a.name != arg.name && self.is(*n, &[a.name.as_str()]));
            let short = !matches!(arg.kind, ArgKind::Text);
            let end = (from..range.end).find(|n| *n > from && (short || next(n) || self.is(*n, &["with", "and"])));
            let end = end.unwrap_or(range.end);
            Some((self.slice(from..end), end))
        };
        if let Some((value, end)) = value
            && self.put(call, &[&arg.name], value)
        {
            let lead = usize::from(at > range.start && self.is(at - 1, &["with", "and", "the"]));
            left_out.push(at - lead..end);
        }
    }

    fn end_of_quote(&self, from: usize) -> usize {
        (from..self.words().len()).find(|n| !self.words()[*n].quoted).unwrap_or(self.words().len())
    }

    /// A value whose format identifies its flag.
    fn by_kind(&self, call: &mut Call, arg: &ArgSpec, range: Range<usize>, left_out: &mut Vec<Range<usize>>) {
        match &arg.kind {
            ArgKind::Date => {
                if let Some(date) = self.date(range) {
                    self.put(call, &[&arg.name], &date.value);
                    left_out.extend(date.words);
                }
            }
            ArgKind::Choice(words) => {
                let at = range.clone().find(|at| words.iter().any(|w| self.is(*at, &[w.as_str()])));
                if let Some(at) = at {
                    self.put(call, &[&arg.name], &self.words()[at].lower);
                    let lead = usize::from(at > range.start && self.is(at - 1, &["in", "with", "as", "at"]));
                    left_out.push(at - lead..at + 1 + usize::from(self.is(at + 1, &[arg.name.as_str()])));
                }
            }
            ArgKind::Integer | ArgKind::Id | ArgKind::Number if arg.required => {
                let at =
                    range.clone().find(|at| !self.words()[*at].quoted && number(&self.words()[*at].lower).is_some());
                if let Some(at) = at {
                    self.put(call, &[&arg.name], &self.words()[at].lower);
                    left_out.push(at..at + 1);
                }
            }
            ArgKind::List if matches!(arg.name.as_str(), "tags" | "tag") => {
                if let Some(tags) = self.tags(range) {
                    self.put(call, &[&arg.name], &tags.value);
                    left_out.extend(tags.words);
                }
            }
            _ => {}
        }
    }
}

fn has(call: &Call, arg: &ArgSpec) -> bool {
    call.args.iter().any(|(name, _)| *name == arg.name)
}
