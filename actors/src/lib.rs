//! The living tree: supervisors, engines, sub-agents, breakers, scheduler.
