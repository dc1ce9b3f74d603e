//! Faults through the real door.
