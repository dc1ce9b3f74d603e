//! Turns the gRPC contract into code without `protoc`, and keeps its descriptor for reflection.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let files = [
        "common",
        "chat",
        "jobs",
        "dead_letters",
        "operations",
        "approvals",
        "agents",
        "notifications",
        "scheduler",
        "schedules",
        "usage",
        "conversations",
        "reminders",
        "actors",
        "skills",
        "state",
        "workflows",
        "events",
        "replay",
        "audit",
        "keys",
        "actions",
        "chaos",
    ]
    .map(|name| format!("annie/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=../../proto");
    let descriptor = protox::compile(&files, ["../../proto"])?;
    #[expect(clippy::disallowed_methods, reason = "a build script is told its folder this way")]
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("annie_v1.bin"), descriptor.encode_to_vec())?;
    // A service in `crates/api/src/grpc` implements only the methods that are not in the table of operations.
    tonic_prost_build::configure().generate_default_stubs(true).compile_fds(descriptor)?;
    Ok(())
}
