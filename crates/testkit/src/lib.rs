//! Fakes of core's ports for tests.

pub mod model_server;
pub mod scripted_model;
