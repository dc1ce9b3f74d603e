//! Which backend a request goes to: rules as data, never a model; the name that a user calls a backend by; who may
//! stand in for whom; how much a provider lets through, and whether it is well. Pure: time and facts come in.
//!
//! [`RouteTable`] checks and compiles the rules once, [`choose`] applies them to one request, [`Window`] and
//! [`Health`] say which of its candidates are ready, [`stand_ins`] who may follow one that failed, and [`hand_over`] is what a
//! backend is told that works by itself.

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

pub use choose::{Asked, NoRoute, Route, RouteMode, Unfit, choose};
pub use defaults::default_rules;
pub use facts::{BackendFacts, Cost, Privacy, RateWindow};
pub use fail_over::{is_without_effect, stand_ins};
pub use hand_over::hand_over;
pub use health::{Health, HealthState};
pub use output::output_tokens;
pub use rules::{Fallback, Preference, RouteRule, Target, When};
pub use table::{RouteTable, RouteTableError};
pub use window::{Shut, ShutBy, Window};

#[cfg(test)]
mod tests;
