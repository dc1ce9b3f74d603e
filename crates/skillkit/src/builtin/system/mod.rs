//! What the assistant knows about itself: its skills and the time.

pub(crate) mod help;
pub(crate) mod time;
