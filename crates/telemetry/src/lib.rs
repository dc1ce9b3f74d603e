//! OpenTelemetry traces of ended tasks (ADR 0055). The log holds every round, call and agent with its times, so a trace is folded from
//! the log and not measured in the process: a task whose actor or process was killed has one whole trace.

mod export;
mod missed;
mod names;
mod otlp;
mod post;
mod queue;
mod span;
mod trace;

pub use export::{Exporter, TelemetryParts};
pub use post::{Collector, TelemetryError, check_endpoint};
pub use queue::TelemetryLimits;
pub use span::{Link, Mark, Span, SpanId, SpanKind, TraceId, Value};
pub use trace::{BackendNames, TraceRules, spans_of};
