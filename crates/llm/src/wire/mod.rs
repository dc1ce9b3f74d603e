//! The protocol: what a request looks like for each profile, how replies are put together from whatever servers send,
//! and what their failures mean. No I/O here.

pub(crate) mod assemble;
pub(crate) mod failure;
pub(crate) mod quirks;
pub(crate) mod refused;
pub(crate) mod request;
pub(crate) mod response;
mod state;
pub(crate) mod usage;
