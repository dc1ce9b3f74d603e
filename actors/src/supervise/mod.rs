//! Supervision after OTP, written for ractor as it behaves (ADR 0004): child specs, a sliding-window budget with back-off,
//! ordered stop with deadlines. A kill counts as a death.

mod budget;
mod supervisor;

pub use budget::{Budget, BudgetLimits};
pub use supervisor::{ChildSpec, Supervisor, SupervisorArgs, SupervisorMsg, SupervisorState, stop_child};
