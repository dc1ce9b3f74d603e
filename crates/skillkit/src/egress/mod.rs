//! The client of all requests that skills send to other machines (invariant 18, ADR 0028).
//!
//! Every request and every redirect is checked against the rules before a connection is made: scheme, port, host, and address.
//! Names are resolved by a resolver of our own, so that the checked addresses are those that are dialled. Time, size and
//! redirects have limits. No proxy of the environment is used, because it would resolve names elsewhere.

mod addresses;
mod client;
mod resolve;
mod rules;

pub use client::{EgressParts, HttpEgress};
pub(crate) use reqwest::Url;
pub use resolve::{Lookup, SystemLookup};
pub use rules::{EgressLimits, EgressRules, HostPort};
