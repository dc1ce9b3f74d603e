//! Annie's words, decisions and ports: no clock, no I/O, no async runtime.
//!
//! Everything here is plain data and plain functions. What is asked of the world goes through [`ports`]; what happened
//! comes in as an [`event::Event`].

mod agent_report;
mod answer;
pub mod breaker;
pub mod calendar;
pub mod caller;
pub mod classify;
pub mod command;
pub mod context;
pub mod event;
pub mod ids;
pub mod inbound;
pub mod jobs;
pub mod json_schema;
pub mod letter;
pub mod limits;
pub mod loop_guard;
pub mod message;
pub mod notice;
pub mod outcome;
pub mod plan;
pub mod ports;
pub mod projection;
pub mod queue;
pub mod receipt;
pub mod route;
pub mod skill;
pub mod time;
pub mod turn;
