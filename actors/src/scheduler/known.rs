//! Window and slots of a backend, and the source of each: the configuration, else its server, else unknown.

use annie_core::{
    limits::MainInterface,
    ports::{Origin, ServerFacts},
    route::BackendFacts,
};
use serde_json::{Value, json};

/// Settings of one backend with their sources.
#[derive(Debug)]
pub(super) struct Known {
    window: Option<u32>,
    /// The configured number, or the default.
    slots: usize,
    learns_slots: bool,
    may_use_commands: bool,
    reported: Option<ServerFacts>,
    is_warned: bool,
    /// The server has been asked once more after a round loaded its model.
    is_asked_again: bool,
}

/// Consequences of a server's report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Learned {
    /// The configured window and the server's, if that is smaller: reported once.
    pub too_large: Option<(u32, u32)>,
    /// The server reports that its model does not support tools, and the configuration does not insist on them.
    pub knows_no_tools: bool,
}

impl Known {
    pub fn new(facts: &BackendFacts, slots: u32) -> Self {
        Self {
            window: facts.context_tokens_max,
            slots: slots as usize,
            learns_slots: facts.learns_slots,
            may_use_commands: facts.interface.is_none_or(|interface| interface == MainInterface::Auto),
            reported: None,
            is_warned: false,
            is_asked_again: false,
        }
    }

    /// Stores the server's report. Values that are missing this time keep their last reported value, if it is the same kind of
    /// server.
    pub fn learn(&mut self, facts: ServerFacts) -> Learned {
        self.is_asked_again &= facts.assumed_tokens_max.is_some();
        let before = self.reported.take().filter(|before| facts.server.is_none() || before.server == facts.server);
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
        self.reported = Some(now);
        Learned { too_large, knows_no_tools: self.knows_no_tools() }
    }

    /// The server gave no answer: it counts as not asked.
    pub const fn learn_nothing(&mut self) {
        self.is_asked_again = false;
    }

    /// Whether the server reports that its model does not support tools, and the configuration does not say otherwise.
    pub fn knows_no_tools(&self) -> bool {
        self.may_use_commands && self.reported.as_ref().is_some_and(|facts| facts.tools == Some(false))
    }

    /// Whether to ask the server again now that a round succeeded: its model was not loaded, so its window was only assumed.
    /// True once for each report with an assumed window.
    pub fn is_to_be_asked_again(&mut self) -> bool {
        let is_assumed = self.reported(|facts| facts.assumed_tokens_max).is_some();
        is_assumed && !std::mem::replace(&mut self.is_asked_again, true)
    }

    fn reported(&self, what: impl FnOnce(&ServerFacts) -> Option<u32>) -> Option<u32> {
        self.reported.as_ref().and_then(what)
    }

    /// Size of prompt and answer together, in tokens.
    pub fn window(&self) -> Option<u32> {
        self.window.or(self.reported(ServerFacts::window_tokens))
    }

    /// Number of rounds at a time.
    pub fn slots(&self) -> usize {
        self.reported_slots().unwrap_or(self.slots)
    }

    fn reported_slots(&self) -> Option<usize> {
        self.reported(|facts| facts.slots).filter(|_| self.learns_slots).map(|slots| slots.max(1) as usize)
    }

    /// The settings as shown to operators.
    pub fn view(&self) -> Value {
        let window_from = match (self.window, self.reported(|facts| facts.context_tokens_max)) {
            (Some(_), _) => Origin::Configured,
            (None, Some(_)) => Origin::Server,
            (None, None) => Origin::Default,
        };
        let slots_from = match (self.learns_slots, self.reported_slots()) {
            (false, _) => Origin::Configured,
            (true, Some(_)) => Origin::Server,
            (true, None) => Origin::Default,
        };
        let profile = self.reported.as_ref().map(|facts| (&facts.profile, facts.profile_from));
        json!({
            "context_tokens_max": self.window(), "context_tokens_from": window_from, "slots": self.slots(),
            "slots_from": slots_from, "profile": profile.map(|p| p.0), "profile_from": profile.map(|p| p.1),
            "server": self.reported,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(window: Option<u32>, slots: Option<u32>) -> ServerFacts {
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
        assert_eq!(known.learn(reported(Some(8_192), Some(1))), Learned::default());
        assert_eq!((known.window(), known.slots()), (Some(8_192), 1));
        assert_eq!(
            (&known.view()["context_tokens_from"], &known.view()["slots_from"]),
            (&json!("server"), &json!("server"))
        );
        known.learn(reported(None, Some(2)));
        assert_eq!((known.window(), known.slots()), (Some(8_192), 2), "the window was not reported again and stays");
        known.learn(ServerFacts { server: Some("vLLM".into()), ..ServerFacts::default() });
        assert_eq!((known.window(), known.slots()), (None, 4), "the report of another server is discarded");
    }

    #[test]
    fn assumed_window_never_replaces_a_reported_one_and_is_asked_about_once() {
        let assumed = || ServerFacts { assumed_tokens_max: Some(4_096), ..reported(None, None) };
        let mut known = Known::new(&BackendFacts::default(), 1);
        known.learn(assumed());
        assert_eq!((known.window(), &known.view()["context_tokens_from"]), (Some(4_096), &json!("default")));
        assert!(known.is_to_be_asked_again() && !known.is_to_be_asked_again());
        known.learn_nothing();
        assert!(known.is_to_be_asked_again(), "a question without an answer is asked again");
        known.learn(assumed());
        assert!(!known.is_to_be_asked_again(), "the answer was the same");
        known.learn(reported(Some(32_768), None));
        assert_eq!((known.window(), &known.view()["context_tokens_from"]), (Some(32_768), &json!("server")));
        assert!(!known.is_to_be_asked_again());
        known.learn(assumed());
        assert_eq!(known.window(), Some(32_768), "reported before");
        assert!(known.is_to_be_asked_again(), "the model may be loaded with another window now");
        let facts = BackendFacts { context_tokens_max: Some(32_000), ..BackendFacts::default() };
        assert_eq!(Known::new(&facts, 1).learn(assumed()).too_large, None, "an assumed window is not a report");
    }

    #[test]
    fn configured_values_win_and_too_large_a_window_is_reported_once() {
        let facts = BackendFacts { context_tokens_max: Some(32_000), ..BackendFacts::default() };
        let mut known = Known::new(&facts, 3);
        assert_eq!(known.learn(reported(Some(8_192), Some(1))).too_large, Some((32_000, 8_192)));
        assert_eq!(known.learn(reported(Some(4_096), Some(1))).too_large, None);
        assert_eq!((known.window(), known.slots()), (Some(32_000), 3));
        let view = known.view();
        assert_eq!((&view["context_tokens_from"], &view["slots_from"]), (&json!("configured"), &json!("configured")));
        assert_eq!(view["server"]["context_tokens_max"], 4_096);
    }

    #[test]
    fn model_without_tools_is_run_by_commands_unless_tools_are_configured() {
        let no_tools = || ServerFacts { tools: Some(false), ..reported(None, None) };
        let with = |interface| Known::new(&BackendFacts { interface, ..BackendFacts::default() }, 1).learn(no_tools());
        assert!(with(None).knows_no_tools && with(Some(MainInterface::Auto)).knows_no_tools);
        assert!(!with(Some(MainInterface::Tools)).knows_no_tools);
        let unreported = Known::new(&BackendFacts::default(), 1).learn(reported(None, None));
        assert!(!unreported.knows_no_tools);
    }
}
