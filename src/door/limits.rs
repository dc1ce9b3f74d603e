//! What the doors allow: every queue, wait and body has its bound here (invariant 10).

use serde::{Deserialize, Serialize};

/// The doors' numbers, as the configuration's `[doors]` table sets them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DoorLimits {
    /// The longest body of an HTTP request, in bytes.
    pub body_bytes_max: usize,
    /// How long a body may take to arrive, in milliseconds.
    pub body_ms_max: u64,
    /// How long a connection may take to say what it wants, and lie idle between two requests, in milliseconds.
    pub head_ms_max: u64,
    /// Requests at a time on one HTTP/2 connection.
    pub requests_per_connection_max: u32,
    /// The longest gRPC message that is taken, in bytes.
    pub grpc_request_bytes_max: usize,
    /// The longest gRPC message that is sent, in bytes.
    pub grpc_response_bytes_max: usize,
    /// Connections at a time; more wait to be accepted.
    pub connections_max: usize,
    /// Of those, from one IPv4 address or one IPv6 /64 network; more are closed at once.
    pub connections_per_address_max: usize,
    /// Requests at a time; more are refused.
    pub requests_max: usize,
    /// Streams and waiting requests at a time.
    pub streams_max: usize,
    /// Of those, one user's.
    pub streams_per_user_max: usize,
    /// How long a stream may last, in milliseconds; its client resumes it.
    pub stream_ms_max: u64,
    /// How long `?wait=` and a completion that is not streamed may wait for an answer, in seconds.
    pub wait_s_max: u64,
    /// How long a turn goes on when the client that waits for it leaves, in milliseconds, if that client numbers its attempts:
    /// its next one waits for the same answer.
    pub attempt_ms_max: u64,
    /// Requests a minute with one key, in the long run.
    pub requests_per_minute_max: u32,
    /// Requests with one key that may come at once.
    pub requests_burst_max: u32,
    /// Wrong keys a minute from one address, in the long run; more are refused as too many.
    pub wrong_keys_per_minute_max: u32,
    /// Wrong keys from one address that may come at once.
    pub wrong_keys_burst_max: u32,
    /// How long open requests have to end when the server stops, in milliseconds.
    pub drain_ms_max: u64,
    /// Host names that callers without a key may use besides loopback ones.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may change things besides the server's own.
    pub allowed_origins: Vec<String>,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            body_ms_max: 30_000,
            head_ms_max: 30_000,
            requests_per_connection_max: 256,
            grpc_request_bytes_max: 1024 * 1024,
            grpc_response_bytes_max: 16 * 1024 * 1024,
            connections_max: 4_096,
            connections_per_address_max: 1_024,
            requests_max: 2_048,
            streams_max: 2_048,
            streams_per_user_max: 64,
            stream_ms_max: 3_600_000,
            wait_s_max: 600,
            attempt_ms_max: 30_000,
            requests_per_minute_max: 6_000,
            requests_burst_max: 200,
            wrong_keys_per_minute_max: 30,
            wrong_keys_burst_max: 20,
            drain_ms_max: 10_000,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
        }
    }
}
