//! Repairs the text of a reply while it streams: separates thinking, removes the tokens of chat templates, and converts
//! calls that were written as text into calls. Undecided text is withheld; an ordinary answer streams without delay.

mod calls;
mod json;
mod markup;
mod names;
mod text_call_filter;

use annie_core::{
    message::Repair,
    ports::{Draft, DraftSink},
};

pub(crate) use calls::mended_arguments;
pub(crate) use names::Names;

use markup::{Markup, Piece};
use text_call_filter::TextCallFilter;

/// The text of a reply that is still arriving.
pub(crate) struct ReplyText<'a> {
    markup: Markup,
    filter: TextCallFilter<'a>,
    names: &'a Names,
    drafts: &'a DraftSink,
    has_shown: bool,
}

/// The text of a complete reply.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Whole {
    pub text: String,
    /// Calls that were written as text: name and arguments.
    pub calls: Vec<(String, String)>,
    pub repairs: Vec<Repair>,
    /// See [`Markup::ended_without_begin`].
    pub ended_without_begin: bool,
    /// See [`Markup::withheld_needlessly`].
    pub withheld_needlessly: bool,
}

impl<'a> ReplyText<'a> {
    /// `begins_thinking` if the text is known to begin inside thinking.
    pub const fn new(names: &'a Names, begins_thinking: bool, drafts: &'a DraftSink) -> Self {
        Self {
            markup: Markup::new(begins_thinking),
            filter: TextCallFilter::new(names),
            names,
            drafts,
            has_shown: false,
        }
    }

    /// Whether any text was shown.
    pub const fn has_shown(&self) -> bool {
        self.has_shown
    }

    /// The server separates thinking from text: the text does not begin inside thinking, whatever the template does.
    pub fn thinking_is_separate(&mut self) {
        self.markup.thinking_is_separate();
    }

    /// Adds text.
    pub fn push(&mut self, text: &str) {
        let mut pieces = Vec::new();
        self.markup.push(text, &mut pieces);
        self.take(pieces);
    }

    fn take(&mut self, pieces: Vec<Piece>) {
        for piece in pieces {
            match piece {
                Piece::Thought(thought) => (self.drafts)(Draft::Reasoning(thought)),
                Piece::AllWasThinking => self.filter.forget(),
                Piece::Text(text) => {
                    let shown = self.filter.push(&text);
                    if !shown.is_empty() {
                        self.has_shown = true;
                        (self.drafts)(Draft::Text(shown.to_owned()));
                    }
                }
            }
        }
    }

    /// Completes the text. With `is_cut` the reply did not end by itself. Calls are parsed from the text only if it did,
    /// `has_calls` is false (the reply has no native calls), and all thinking in it has its end marker.
    pub fn finish(mut self, has_calls: bool, is_cut: bool) -> Whole {
        let mut pieces = Vec::new();
        self.markup.finish(is_cut, &mut pieces);
        // A call after unended thinking may be part of the thinking.
        let may_parse = !has_calls && !is_cut && !self.markup.has_open_thinking;
        self.take(pieces);
        let Markup { ended_without_begin, withheld_needlessly, .. } = self.markup;
        let mut whole = Whole { ended_without_begin, withheld_needlessly, ..Whole::default() };
        let mut repair = |is_made: bool, kind: Repair| {
            if is_made {
                whole.repairs.push(kind);
            }
        };
        repair(self.markup.took_thinking, Repair::Thinking);
        repair(self.markup.took_tokens, Repair::StopToken);
        let parsed = if may_parse { self.filter.parse_calls() } else { None };
        if let Some(parsed) = parsed {
            repair(true, Repair::TextCall);
            repair(parsed.is_mended, Repair::Arguments);
            whole.text = self.filter.shown_text().trim_end().to_owned();
            whole.calls = parsed.calls;
            return whole;
        }
        let (text, shown) = self.filter.finish();
        if may_parse && calls::may_stand_before_calls(text.trim()) {
            let own = self.markup.calls().iter().filter_map(|(name, body)| calls::named(name, body, self.names));
            whole.calls = own.collect();
            if !whole.calls.is_empty() {
                whole.repairs.push(Repair::TextCall);
            }
        }
        if shown < text.len() {
            (self.drafts)(Draft::Text(text[shown..].to_owned()));
        }
        whole.text = text;
        whole
    }
}

#[cfg(test)]
mod tests;
