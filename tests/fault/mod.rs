//! Kill anything, then say what must still be true.

mod every_step;
mod lives;
mod invariants;
mod process;
mod sigkill;
