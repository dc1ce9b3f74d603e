//! Fault tests: each one kills or disturbs a part of the kernel and then checks what must still hold.

mod background_workers;
mod blame;
mod chaos;
mod deliveries;
mod doctor;
mod doubt;
mod ends;
mod equal;
mod every_step;
mod frozen;
mod full_disk;
mod hiccups;
mod hooks;
mod incarnations;
mod injected;
mod invariants;
mod leases;
mod ownership;
mod peers;
mod process;
mod quiet;
mod residency;
mod scheduler;
mod sigkill;
mod snapshots;
mod two_processes;
