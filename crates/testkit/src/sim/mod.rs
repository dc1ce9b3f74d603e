//! Parts of a seeded simulation: stateless randomness, a schedule of faults, a simulated model and simulated skills.
//!
//! Every answer depends on the seed and on the question, never on the number of questions from other components. So leaving one
//! fault out of a run changes nothing else in it, and a failing run can be minimised.

mod dice;
mod model;
mod schedule;
mod skills;

pub use dice::Dice;
pub use model::{ModelWorld, RoundBegins, SimModel};
pub use schedule::{Fault, Injection, Plan, Schedule};
pub use skills::{Moment, SimSkills, SkillEffect, SkillWorld, catalog};
