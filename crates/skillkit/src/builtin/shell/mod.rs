//! `shell.run`: programs that the operator has listed.

pub(crate) mod run;
