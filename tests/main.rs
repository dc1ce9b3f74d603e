//! The house's integration tests, in one binary: `flow` through the doors, `fault` kills things, `sim` seeds and virtual
//! time, `tidy` the house rules.

mod fault;
mod flow;
mod server;
mod world;
