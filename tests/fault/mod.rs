//! Kill anything, then say what must still be true.

mod every_step;
mod process;
mod sigkill;
