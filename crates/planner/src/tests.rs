//! Tests of the whole planner: phrases, whole rounds against a small world, and hostile text.

mod everyday;
mod fuzz;
mod phrases;
mod planted;
mod rounds;
mod world;
