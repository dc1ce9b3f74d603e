//! Fakes of core's ports for tests.
