//! Skills about the assistant itself: its skills, the time, and external events.

pub(crate) mod r#await;
pub(crate) mod help;
pub(crate) mod time;
