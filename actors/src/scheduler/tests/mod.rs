//! Tests of the scheduler alone, rule by rule.

mod admission;
mod delays;
mod endpoints;
mod every_order;
mod incarnations;
mod pool;
mod voice;
mod world;
