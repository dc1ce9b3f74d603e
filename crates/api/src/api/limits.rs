//! Limits of the front ends: every queue, wait and body is bounded here (invariant 10).

use serde::{Deserialize, Serialize};

/// The limits of the front ends, from the configuration's `[api]` table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApiLimits {
    /// The maximum body of an HTTP request, in bytes.
    pub body_bytes_max: usize,
    /// The maximum time until a body has arrived, in milliseconds.
    pub body_ms_max: u64,
    /// The maximum time until a connection has sent a request head, and the maximum idle time between two requests, in
    /// milliseconds.
    pub head_ms_max: u64,
    /// The maximum number of concurrent requests on one HTTP/2 connection.
    pub requests_per_connection_max: u32,
    /// The maximum size of a received gRPC message, in bytes.
    pub grpc_request_bytes_max: usize,
    /// The maximum size of a sent gRPC message, in bytes.
    pub grpc_response_bytes_max: usize,
    /// The maximum number of concurrent connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// The maximum number of concurrent connections from one IPv4 address or one IPv6 /64 network; further ones are closed at
    /// once.
    pub connections_per_address_max: usize,
    /// The maximum number of concurrent requests; further ones are refused.
    pub requests_max: usize,
    /// The maximum number of concurrent streams and waiting requests.
    pub streams_max: usize,
    /// The maximum number of concurrent streams and waiting requests of one user.
    pub streams_per_user_max: usize,
    /// The maximum duration of a stream, in milliseconds; the client resumes it.
    pub stream_ms_max: u64,
    /// The maximum wait for an answer, in seconds: for `?wait=` and for completions that are not streamed.
    pub wait_s_max: u64,
    /// How long a turn continues after its client disconnected, in milliseconds, if that client numbers its attempts: its next
    /// attempt waits for the same answer.
    pub attempt_ms_max: u64,
    /// Requests per minute with one key, as a long-term rate.
    pub requests_per_minute_max: u32,
    /// Requests with one key that may arrive in one burst.
    pub requests_burst_max: u32,
    /// Wrong keys per minute from one address, as a long-term rate; further ones are refused.
    pub wrong_keys_per_minute_max: u32,
    /// Wrong keys from one address that may arrive in one burst.
    pub wrong_keys_burst_max: u32,
    /// How long open requests may continue after the server starts to stop, in milliseconds.
    pub drain_ms_max: u64,
    /// Host names that callers without a key may use in addition to loopback names.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may make changes, in addition to the server's own origin.
    pub allowed_origins: Vec<String>,
}

impl Default for ApiLimits {
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
