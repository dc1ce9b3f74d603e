//! Messages all the way through.

mod bad_models;
mod bad_skills;
mod doors;
pub mod kernel;
mod letters;
mod notifications;
mod operations;
mod programs;
mod routing;
pub mod scheduling;
