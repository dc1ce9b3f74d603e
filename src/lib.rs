//! Annie: the doors and the wiring.
