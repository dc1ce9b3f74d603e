//! Planner.
pub struct OfflinePlanner;
