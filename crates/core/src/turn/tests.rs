//! The turn machine as stories: a `World` plays the Engine, its sub-agents, a scripted model and skills in memory,
//! from a log of events, and checks after every step that the log alone tells the same.

mod agents;
mod answers;
mod callers;
mod checks;
mod deadlines;
mod dispatching;
mod faults;
mod growth;
mod guesses;
mod interfaces;
mod lanes;
mod late;
mod limits;
mod loops;
mod names;
mod orders;
mod prompts;
mod properties;
mod provider_state;
mod retries;
mod script;
mod steering;
mod steps;
mod strangers;
mod truth;
mod world;
