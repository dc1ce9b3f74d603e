//! The scheduler by itself.
