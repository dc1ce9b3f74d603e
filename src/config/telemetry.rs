//! `[telemetry]`: where the traces of ended tasks are sent, and what they contain.

use std::collections::BTreeMap;

use annie_llm::Profile;
use annie_telemetry::{BackendNames, TelemetryLimits, TraceRules, check_endpoint};
use serde::{Deserialize, Serialize};

use super::{
    backend::{ClientConfig, host_of, is_private},
    settings::Config,
    typed::KeyError,
};
use crate::secrets::valid_secret_name;

/// `[telemetry]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySettings {
    /// The address of a collector that receives OTLP over HTTP; absent means that no traces are sent.
    pub otlp_endpoint: Option<String>,
    /// Headers of the requests, each with the name of the stored secret that is its value.
    pub otlp_headers: BTreeMap<String, String>,
    /// The name of this installation in traces.
    pub service_name: String,
    /// Whether traces contain the texts of users, models and skills.
    pub content: bool,
    /// The maximum number of traces that wait to be sent.
    pub queue_max: usize,
    /// The number of spans after which a request is full.
    pub batch_spans_max: usize,
    /// How long a trace waits for others in the same request, in milliseconds.
    pub delay_ms: u64,
    /// The maximum duration of a request, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        let TelemetryLimits { queue_max, batch_spans_max, delay_ms, timeout_ms } = TelemetryLimits::default();
        Self {
            otlp_endpoint: None,
            otlp_headers: BTreeMap::new(),
            service_name: "annie".to_owned(),
            content: false,
            queue_max,
            batch_spans_max,
            delay_ms,
            timeout_ms,
        }
    }
}

impl TelemetrySettings {
    /// The most traces that may wait: each takes some dozen bytes.
    const QUEUE_MAX: usize = 1_000_000;
    /// The most spans of a request. A collector accepts bodies of 20 MiB.
    const BATCH_SPANS_MAX: usize = 10_000;
    /// The longest wait for other traces, in milliseconds.
    const DELAY_MS_MAX: u64 = 60_000;

    /// The limits of the exporter.
    #[must_use]
    pub const fn limits(&self) -> TelemetryLimits {
        let Self { queue_max, batch_spans_max, delay_ms, timeout_ms, .. } = *self;
        TelemetryLimits { queue_max, batch_spans_max, delay_ms, timeout_ms }
    }
}

impl Config {
    /// What traces contain.
    #[must_use]
    pub fn trace_rules(&self) -> TraceRules {
        let names = |backend: &super::BackendConfig| {
            let names = match &backend.client {
                ClientConfig::Model(model) => {
                    BackendNames { provider: provider(model.profile).to_owned(), model: model.model.clone() }
                }
                ClientConfig::Command(_) => BackendNames { provider: "program".to_owned(), model: String::new() },
            };
            (backend.name().to_owned(), names)
        };
        TraceRules { backends: self.backend.iter().map(names).collect(), content: self.telemetry.content }
    }

    /// The errors in `[telemetry]`.
    pub(super) fn telemetry_problems(&self) -> Vec<KeyError> {
        let mut found = Vec::new();
        let mut add = |key: &str, what: &str, fix: &str| found.push(KeyError::value(&["telemetry", key], what, fix));
        let settings = &self.telemetry;
        let host = settings.otlp_endpoint.as_deref().and_then(host_of);
        if let Some(endpoint) = &settings.otlp_endpoint {
            if let Err(what) = check_endpoint(endpoint) {
                add("otlp_endpoint", &what, "write it as http://127.0.0.1:4318");
            }
            let is_plain = endpoint.starts_with("http://") && !host.is_some_and(|host| is_private(&host));
            if is_plain && !settings.otlp_headers.is_empty() {
                let what = "the secrets of otlp_headers would be sent without encryption";
                add("otlp_endpoint", what, "begin it with https://, or name a host in a private network");
            }
        }
        let is_header = |name: &String| axum::http::HeaderName::from_bytes(name.as_bytes()).is_ok();
        if let Some(name) = settings.otlp_headers.keys().find(|name| !is_header(name)) {
            add(
                "otlp_headers",
                &format!("{name:?} cannot be the name of a header"),
                "write { authorization = \"otlp\" }",
            );
        }
        if let Some(name) = settings.otlp_headers.values().find(|name| !valid_secret_name(name)) {
            let what = format!("{name:?} cannot be the name of a secret");
            add("otlp_headers", &what, "name one of `annie secret list`, and not the value itself");
        }
        if settings.service_name.trim().is_empty() || settings.service_name.contains(char::is_control) {
            add("service_name", "it is no name", "annie is the default");
        }
        for (key, value, max) in [
            ("queue_max", settings.queue_max as u64, TelemetrySettings::QUEUE_MAX as u64),
            ("batch_spans_max", settings.batch_spans_max as u64, TelemetrySettings::BATCH_SPANS_MAX as u64),
            ("timeout_ms", settings.timeout_ms, TelemetrySettings::DELAY_MS_MAX),
        ] {
            if !(1..=max).contains(&value) {
                add(key, &format!("{value} is not between 1 and {max}"), "leave it out for the default");
            }
        }
        if settings.delay_ms > TelemetrySettings::DELAY_MS_MAX {
            let what = format!("{} is more than {}", settings.delay_ms, TelemetrySettings::DELAY_MS_MAX);
            add("delay_ms", &what, "1000 is the default");
        }
        found
    }
}

/// The provider in the words of the semantic conventions, or the name of a profile for which they have none.
const fn provider(profile: Profile) -> &'static str {
    match profile {
        Profile::Azure => "azure.ai.openai",
        Profile::OpenAi
        | Profile::Anthropic
        | Profile::OpenRouter
        | Profile::Vllm
        | Profile::LlamaCpp
        | Profile::Ollama
        | Profile::Generic => profile.as_str(),
    }
}
