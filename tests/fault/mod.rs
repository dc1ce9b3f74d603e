//! Kill anything, then say what must still be true.

mod blame;
mod chaos;
mod doctor;
mod doubt;
mod ends;
mod equal;
mod every_step;
mod frozen;
mod full_disk;
mod hiccups;
mod invariants;
mod keepers;
mod leases;
mod lives;
mod peers;
mod process;
mod quiet;
mod room;
mod scheduler;
mod sigkill;
mod snapshots;
mod two_processes;
