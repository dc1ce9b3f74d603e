//! Messages all the way through.

mod bad_models;
mod bad_skills;
mod chat;
mod command_line;
mod deadlines;
mod described;
mod doors;
mod interfaces;
mod jobs;
pub mod kernel;
mod letters;
mod load;
mod messages;
mod metrics;
mod notifications;
mod openai;
mod operations;
mod postgres;
mod programs;
mod repairs;
mod resumed;
mod routing;
pub mod scheduling;
mod settings;
mod skill_files;
mod spoken;
pub mod voice;
