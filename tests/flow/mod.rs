//! Messages all the way through.

pub mod kernel;
