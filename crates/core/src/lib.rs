//! Data types, decision logic and ports of the kernel: no clock, no I/O, no async runtime.
//!
//! This crate holds only plain data and pure functions. Requests to the outside go through the traits in [`ports`]; facts
//! from the outside come in as an [`event::Event`].

mod agent_report;
pub mod aloud;
mod answer;
pub mod approval;
pub mod audit;
pub mod breaker;
pub mod calendar;
pub mod caller;
pub mod classify;
pub mod command;
pub mod context;
pub mod dead_letter;
mod dispatch;
pub mod erasure;
pub mod error_route;
pub mod event;
pub mod faults;
pub mod guard;
pub mod hidden;
pub mod hooks;
pub mod ids;
pub mod inbound;
pub mod jobs;
pub mod json_schema;
pub mod limits;
pub mod loop_guard;
pub mod message;
pub mod notice;
pub mod outcome;
pub mod people;
pub mod plan;
pub mod ports;
pub mod projection;
pub mod queue;
pub mod receipt;
pub mod redact;
pub mod reminder;
pub mod replay;
pub mod result_check;
pub mod route;
pub mod schedule;
pub mod secret;
pub mod skill;
pub mod spend;
pub mod state;
mod stem;
pub mod time;
pub mod titles;
pub mod trace_parent;
pub mod turn;
pub mod words;
pub mod workflow;
