//! What a seeded simulation is made of: chance without a state, a schedule of faults, a model and skills that are played.
//!
//! Everything here answers by the seed and by what it is asked, never by how often somebody else asked before: so a fault
//! that is left out of a run changes nothing else in it, and a failing run can be made smaller.

mod dice;
mod model;
mod schedule;
mod skills;

pub use dice::Dice;
pub use model::{ModelWorld, RoundBegins, SimModel};
pub use schedule::{Plan, Schedule, Strike};
pub use skills::{Deed, Moment, SimSkills, SkillWorld, catalog};
