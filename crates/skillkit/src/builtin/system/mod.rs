//! Skills about the assistant itself: its skills and how to write one, the time, and external events.

pub(crate) mod r#await;
pub(crate) mod build_skill;
mod built_run;
pub(crate) mod help;
pub(crate) mod time;
mod trial;

#[cfg(test)]
mod tests;
