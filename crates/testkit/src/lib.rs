//! Fakes of core's ports for tests.

pub mod env;
pub mod faults;
pub mod hooks;
pub mod mcp;
pub mod model_server;
pub mod openapi;
pub mod postgres;
pub mod scripted_model;
pub mod sim;
pub mod skills;
pub mod skip;
