//! What is known of a backend's window and slots, and who said it: the configuration, else its server, else nobody.

use annie_core::{
    limits::MainInterface,
    ports::{Origin, ServerFacts},
    route::BackendFacts,
};
use serde_json::{Value, json};

/// Settings of one backend with where they come from.
#[derive(Debug)]
pub(super) struct Known {
    window: Option<u32>,
    /// What is configured, or usual.
    slots: usize,
    learns_slots: bool,
    may_use_commands: bool,
    said: Option<ServerFacts>,
    is_warned: bool,
    /// The server is asked once more when a round has loaded its model.
    is_asked_again: bool,
}

/// What follows from what a server said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Learned {
    /// The configured window and the server's, which is smaller: to be told once.
    pub too_large: Option<(u32, u32)>,
    /// Its model knows no tools, and nobody insists on them.
    pub knows_no_tools: bool,
}

impl Known {
    pub fn new(facts: &BackendFacts, slots: u32) -> Self {
        Self {
            window: facts.context_tokens_max,
            slots: slots as usize,
            learns_slots: facts.learns_slots,
            may_use_commands: facts.interface.is_none_or(|interface| interface == MainInterface::Auto),
            said: None,
            is_warned: false,
            is_asked_again: false,
        }
    }

    /// The server was asked. What it does not say this time stays as it was said before, if it is the same kind of server.
    pub fn learn(&mut self, facts: ServerFacts) -> Learned {
        self.is_asked_again &= facts.assumed_tokens_max.is_some();
        let before = self.said.take().filter(|before| facts.server.is_none() || before.server == facts.server);
        let before = before.unwrap_or_default();
        let now = ServerFacts {
            server: facts.server.or(before.server),
            version: facts.version.or(before.version),
            context_tokens_max: facts.context_tokens_max.or(before.context_tokens_max),
            assumed_tokens_max: facts.assumed_tokens_max,
            trained_tokens_max: facts.trained_tokens_max.or(before.trained_tokens_max),
            slots: facts.slots.or(before.slots),
            tools: facts.tools.or(before.tools),
            parameters: facts.parameters.or(before.parameters),
            profile: facts.profile,
            profile_from: facts.profile_from,
        };
        let too_large = self.window.zip(now.context_tokens_max).filter(|(ours, theirs)| ours > theirs);
        let too_large = too_large.filter(|_| !std::mem::replace(&mut self.is_warned, true));
        self.said = Some(now);
        Learned { too_large, knows_no_tools: self.knows_no_tools() }
    }

    /// The server gave no answer: the question counts as not asked.
    pub const fn learn_nothing(&mut self) {
        self.is_asked_again = false;
    }

    /// The server says that its model knows no tools, and the configuration does not say otherwise.
    pub fn knows_no_tools(&self) -> bool {
        self.may_use_commands && self.said.as_ref().is_some_and(|facts| facts.tools == Some(false))
    }

    /// Whether to ask the server again now that a round went well: it had not loaded its model and did not say its window.
    /// True once for each such word that it then answers.
    pub fn is_to_be_asked_again(&mut self) -> bool {
        let is_assumed = self.said(|facts| facts.assumed_tokens_max).is_some();
        is_assumed && !std::mem::replace(&mut self.is_asked_again, true)
    }

    fn said(&self, what: impl FnOnce(&ServerFacts) -> Option<u32>) -> Option<u32> {
        self.said.as_ref().and_then(what)
    }

    /// Prompt and answer together, in tokens.
    pub fn window(&self) -> Option<u32> {
        self.window.or(self.said(ServerFacts::window_tokens))
    }

    /// Rounds at a time.
    pub fn slots(&self) -> usize {
        self.said_slots().unwrap_or(self.slots)
    }

    fn said_slots(&self) -> Option<usize> {
        self.said(|facts| facts.slots).filter(|_| self.learns_slots).map(|slots| slots.max(1) as usize)
    }

    /// What operators see.
    pub fn view(&self) -> Value {
        let window_from = match (self.window, self.said(|facts| facts.context_tokens_max)) {
            (Some(_), _) => Origin::Configured,
            (None, Some(_)) => Origin::Server,
            (None, None) => Origin::Default,
        };
        let slots_from = match (self.learns_slots, self.said_slots()) {
            (false, _) => Origin::Configured,
            (true, Some(_)) => Origin::Server,
            (true, None) => Origin::Default,
        };
        let profile = self.said.as_ref().map(|facts| (&facts.profile, facts.profile_from));
        json!({
            "context_tokens_max": self.window(), "context_tokens_from": window_from, "slots": self.slots(),
            "slots_from": slots_from, "profile": profile.map(|p| p.0), "profile_from": profile.map(|p| p.1),
            "server": self.said,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(window: Option<u32>, slots: Option<u32>) -> ServerFacts {
        ServerFacts { server: Some("llama.cpp".into()), context_tokens_max: window, slots, ..ServerFacts::default() }
    }

    #[test]
    fn server_fills_in_what_the_configuration_leaves_out() {
        let mut known = Known::new(&BackendFacts { learns_slots: true, ..BackendFacts::default() }, 4);
        assert_eq!((known.window(), known.slots()), (None, 4));
        assert_eq!(
            (&known.view()["context_tokens_from"], &known.view()["slots_from"]),
            (&json!("default"), &json!("default"))
        );
        assert_eq!(known.learn(said(Some(8_192), Some(1))), Learned::default());
        assert_eq!((known.window(), known.slots()), (Some(8_192), 1));
        assert_eq!(
            (&known.view()["context_tokens_from"], &known.view()["slots_from"]),
            (&json!("server"), &json!("server"))
        );
        known.learn(said(None, Some(2)));
        assert_eq!((known.window(), known.slots()), (Some(8_192), 2), "it did not say it again");
        known.learn(ServerFacts { server: Some("vLLM".into()), ..ServerFacts::default() });
        assert_eq!((known.window(), known.slots()), (None, 4), "another server's words are gone");
    }

    #[test]
    fn assumed_window_replaces_no_word_of_the_server_and_is_asked_about_once() {
        let assumed = || ServerFacts { assumed_tokens_max: Some(4_096), ..said(None, None) };
        let mut known = Known::new(&BackendFacts::default(), 1);
        known.learn(assumed());
        assert_eq!((known.window(), &known.view()["context_tokens_from"]), (Some(4_096), &json!("default")));
        assert!(known.is_to_be_asked_again() && !known.is_to_be_asked_again());
        known.learn_nothing();
        assert!(known.is_to_be_asked_again(), "a question without an answer is asked again");
        known.learn(assumed());
        assert!(!known.is_to_be_asked_again(), "the answer was the same");
        known.learn(said(Some(32_768), None));
        assert_eq!((known.window(), &known.view()["context_tokens_from"]), (Some(32_768), &json!("server")));
        assert!(!known.is_to_be_asked_again());
        known.learn(assumed());
        assert_eq!(known.window(), Some(32_768), "it said so before");
        assert!(known.is_to_be_asked_again(), "it may be loaded otherwise now");
        let facts = BackendFacts { context_tokens_max: Some(32_000), ..BackendFacts::default() };
        assert_eq!(Known::new(&facts, 1).learn(assumed()).too_large, None, "nobody said so");
    }

    #[test]
    fn configured_values_win_and_a_window_that_is_too_large_is_told_once() {
        let facts = BackendFacts { context_tokens_max: Some(32_000), ..BackendFacts::default() };
        let mut known = Known::new(&facts, 3);
        assert_eq!(known.learn(said(Some(8_192), Some(1))).too_large, Some((32_000, 8_192)));
        assert_eq!(known.learn(said(Some(4_096), Some(1))).too_large, None);
        assert_eq!((known.window(), known.slots()), (Some(32_000), 3));
        let view = known.view();
        assert_eq!((&view["context_tokens_from"], &view["slots_from"]), (&json!("configured"), &json!("configured")));
        assert_eq!(view["server"]["context_tokens_max"], 4_096);
    }

    #[test]
    fn model_without_tools_is_run_by_commands_unless_tools_are_configured() {
        let no_tools = || ServerFacts { tools: Some(false), ..said(None, None) };
        let with = |interface| Known::new(&BackendFacts { interface, ..BackendFacts::default() }, 1).learn(no_tools());
        assert!(with(None).knows_no_tools && with(Some(MainInterface::Auto)).knows_no_tools);
        assert!(!with(Some(MainInterface::Tools)).knows_no_tools);
        let unsaid = Known::new(&BackendFacts::default(), 1).learn(said(None, None));
        assert!(!unsaid.knows_no_tools);
    }
}
