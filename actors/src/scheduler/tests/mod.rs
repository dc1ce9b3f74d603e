//! The scheduler by itself, rule by rule.

mod admission;
mod delays;
mod endpoints;
mod every_order;
mod lives;
mod pool;
mod voice;
mod world;
