//! `python.run`: computes with Python.

pub(crate) mod run;
