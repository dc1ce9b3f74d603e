//! Stores behind core's Store port: SQLite, and an in-memory one for simulation.
