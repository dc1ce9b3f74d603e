//! The generated code of the gRPC contract (`proto/annie/v1`), in a package of its own: it needs none of the other packages, so
//! that it compiles beside them.

/// The generated protobuf types, clients and services.
#[expect(
    missing_docs,
    clippy::too_many_lines,
    clippy::all,
    reason = "generated; the proto files contain the documentation"
)]
pub mod v1 {
    tonic::include_proto!("annie.v1");
}

/// The descriptor of the protobuf files, for reflection.
pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/annie_v1.bin"));
