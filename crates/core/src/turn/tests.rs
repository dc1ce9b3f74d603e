//! Scenario tests of the turn state machine. A `World` simulates the Engine, its sub-agents, a scripted model and skills in
//! memory, driven by a log of events. After every step it checks that the log alone gives the same state.

mod active_skill;
mod agent_control;
mod agents;
mod answers;
mod approvals;
mod callers;
mod checks;
mod compaction;
mod cut;
mod deadlines;
mod dispatching;
mod faults;
mod growth;
mod guesses;
mod hooked;
mod interfaces;
mod job_commands;
mod lanes;
mod late;
mod limits;
mod loops;
mod names;
mod policies;
mod prompts;
mod properties;
mod provider_state;
mod refused;
mod rejected;
mod retries;
mod script;
mod steering;
mod steps;
mod strangers;
mod truth;
mod world;
