//! What the assistant knows about itself: its skills, the time, and what it waits for.

pub(crate) mod r#await;
pub(crate) mod help;
pub(crate) mod time;
