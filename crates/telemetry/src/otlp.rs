//! The JSON form of an OTLP request (`ExportTraceServiceRequest`): ids are hexadecimal, 64-bit numbers are texts.

use annie_core::time::Micros;
use serde_json::{Value as Json, json};

use crate::{
    names,
    span::{Attribute, Link, Mark, Span, SpanKind, Value},
};

/// The status code of a failed span.
const ERROR: u8 = 2;
/// The flags of a span: its trace is recorded.
const SAMPLED: u32 = 1;

/// The service whose spans are sent.
#[derive(Debug, Clone)]
pub struct Service {
    /// The name of the service.
    pub name: String,
    /// The process among those of the same name.
    pub instance: String,
}

/// A request with these spans.
pub fn request(service: &Service, spans: &[Span]) -> Json {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        (names::SERVICE_NAME, Value::from(service.name.as_str())),
        (names::SERVICE_VERSION, version.into()),
        (names::SERVICE_INSTANCE, service.instance.as_str().into()),
    ];
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(&resource)},
        "scopeSpans": [{
            "scope": {"name": "annie", "version": version},
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }]})
}

fn span(span: &Span) -> Json {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    let mut json = json!({
        "traceId": span.trace.to_string(),
        "spanId": span.id.to_string(),
        "flags": SAMPLED,
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end),
        "attributes": attributes(&span.attributes),
    });
    if let Some(parent) = span.parent {
        json["parentSpanId"] = parent.to_string().into();
    }
    if !span.marks.is_empty() {
        json["events"] = span.marks.iter().map(event).collect();
    }
    if !span.links.is_empty() {
        json["links"] = span.links.iter().map(link).collect();
    }
    if let Some(code) = &span.error {
        json["status"] = json!({"code": ERROR, "message": code});
    }
    json
}

fn event(mark: &Mark) -> Json {
    json!({"timeUnixNano": nanos(mark.at), "name": mark.name, "attributes": attributes(&mark.attributes)})
}

fn link(link: &Link) -> Json {
    json!({"traceId": link.trace.to_string(), "spanId": link.span.to_string()})
}

fn attributes(all: &[Attribute]) -> Json {
    all.iter().map(|(key, value)| json!({"key": key, "value": any(value)})).collect()
}

fn any(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Whole(number) => json!({"intValue": number.to_string()}),
        Value::Number(number) => json!({"doubleValue": number}),
        Value::Flag(flag) => json!({"boolValue": flag}),
        Value::Texts(texts) => {
            let values: Vec<Json> = texts.iter().map(|text| json!({"stringValue": text})).collect();
            json!({"arrayValue": {"values": values}})
        }
    }
}

/// Nanoseconds since 1970.
fn nanos(at: Micros) -> String {
    (i128::from(at.0.max(0)) * 1_000).to_string()
}
