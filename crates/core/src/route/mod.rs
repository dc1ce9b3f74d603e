//! Routing: the backend that runs a request. Rules are data and never a model. This module also handles the names by which
//! users call a backend, fallbacks, rate limits of providers, and the health of backends. It is pure: time and facts are
//! passed in.
//!
//! [`RouteTable`] checks and compiles the rules once, and [`choose`] applies them to one request. [`Window`] and [`Health`]
//! decide which candidates are ready, [`stand_ins`] lists the fallbacks after a failure, and [`hand_over`] builds the task
//! for an agentic backend.

mod agent_models;
mod called;
mod choose;
mod defaults;
mod facts;
mod fail_over;
mod hand_over;
mod health;
mod output;
mod rules;
mod table;
mod window;

pub use agent_models::AgentModels;
pub use choose::{Asked, NoRoute, Route, RouteMode, Unfit, choose};
pub use defaults::default_rules;
pub use facts::{BackendFacts, Cost, Privacy, RateWindow};
pub use fail_over::{is_without_effect, stand_ins};
pub use hand_over::hand_over;
pub use health::{BackendState, Health, HealthState};
pub use output::output_tokens;
pub use rules::{Fallback, Preference, RouteRule, Target, When};
pub use table::{RouteTable, RouteTableError};
pub use window::{Shut, ShutBy, Window};

#[cfg(test)]
mod tests;
