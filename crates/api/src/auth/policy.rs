//! The requirements of the routes of HTTP and gRPC that are not in the table of operations: streams, messages, OpenAI's API and
//! what needs no key. `crate::ops` joins them with those of the operations. A route that is not listed is refused.

use super::scope::KeyScope;

/// What a route requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// No authentication.
    Nothing,
    /// Any valid key.
    AnyKey,
    /// A key with this scope.
    Scope(KeyScope),
    /// A caller on this machine, or a key with this scope.
    LocalOr(KeyScope),
    /// The key of the operation in the path, which the handler checks.
    OperationKey,
}

/// One row: the method (`RPC` for gRPC), the path pattern, and the requirement.
pub type Rule = (&'static str, &'static str, Need);

use KeyScope::{Admin, Chat, OpsRead};
use Need::{AnyKey, LocalOr, Nothing, OperationKey, Scope};

/// The routes outside of the table of operations.
pub(crate) const OTHER_RULES: &[Rule] = &[
    ("GET", "/", Nothing),
    ("GET", "/page/{hash}/{*path}", Nothing),
    ("GET", "/healthz", Nothing),
    ("GET", "/readyz", Nothing),
    ("GET", "/metrics", LocalOr(OpsRead)),
    ("GET", "/api/openapi.json", Nothing),
    ("POST", "/api/v1/messages", Scope(Chat)),
    ("GET", "/api/v1/conversations/{id}/stream", Scope(Chat)),
    ("POST", "/api/v1/resume/{id}", OperationKey),
    ("GET", "/api/v1/notifications/stream", Scope(Chat)),
    ("GET", "/api/v1/live", AnyKey),
    ("GET", "/api/v1/status", Scope(OpsRead)),
    ("GET", "/api/v1/keys", Scope(Admin)),
    ("POST", "/api/v1/keys", Scope(Admin)),
    ("POST", "/api/v1/keys/{id}/revoke", Scope(Admin)),
    // The tools that it lists depend on the scopes.
    ("POST", "/mcp", AnyKey),
    ("GET", "/v1/models", Scope(Chat)),
    ("GET", "/v1/models/{*id}", Scope(Chat)),
    ("POST", "/v1/chat/completions", Scope(Chat)),
    ("POST", "/v1/responses", Scope(Chat)),
    ("POST", "/v1/embeddings", Scope(Chat)),
    ("RPC", "/annie.v1.Chat/Submit", Scope(Chat)),
    ("RPC", "/annie.v1.Chat/Stream", Scope(Chat)),
    ("RPC", "/annie.v1.Operations/Finish", OperationKey),
    ("RPC", "/annie.v1.Notifications/Follow", Scope(Chat)),
    ("RPC", "/annie.v1.Actors/Watch", Scope(OpsRead)),
    ("RPC", "/annie.v1.Events/Follow", Scope(Chat)),
    ("RPC", "/annie.v1.Chaos/Inject", Scope(Admin)),
    ("RPC", "/annie.v1.Chaos/ListFaults", Scope(Admin)),
    ("RPC", "/annie.v1.Chaos/ClearFaults", Scope(Admin)),
    ("RPC", "/annie.v1.Chaos/Points", Scope(Admin)),
    ("RPC", "/annie.v1.Chaos/Effects", Scope(Admin)),
    ("RPC", "/grpc.health.v1.Health/Check", Nothing),
    ("RPC", "/grpc.health.v1.Health/Watch", Nothing),
    ("RPC", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", AnyKey),
    ("RPC", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", AnyKey),
];
