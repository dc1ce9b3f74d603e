//! The exporter of traces, if the configuration names a collector.

use std::sync::Arc;

use annie_actors::Kernel;
use annie_core::{
    ids::NodeId,
    ports::{Clock, Secrets, Store},
};
use annie_telemetry::{Collector, Exporter, TelemetryError, TelemetryParts};

use crate::config::Config;

/// How long a stop waits for the traces that have not been sent, in milliseconds.
pub(super) const SETTLE_MS_MAX: u64 = 2_000;

/// The exporter; `None` if no collector is configured.
pub(super) fn exporter(
    config: &Config,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    secrets: Arc<dyn Secrets>,
    node: NodeId,
) -> Result<Option<Arc<Exporter>>, TelemetryError> {
    let settings = &config.telemetry;
    let Some(endpoint) = &settings.otlp_endpoint else { return Ok(None) };
    let headers: Vec<(String, String)> = settings.otlp_headers.clone().into_iter().collect();
    let client = annie_llm::http_client();
    let collector = Collector::new(endpoint, &headers, client, secrets, settings.timeout_ms)?;
    Ok(Some(Exporter::new(TelemetryParts {
        store,
        clock,
        collector,
        rules: config.trace_rules(),
        limits: settings.limits(),
        service: settings.service_name.clone(),
        instance: node.to_string(),
    })))
}

/// Sends traces by a resource of the actor tree, which is restarted if it fails.
pub(super) fn run(kernel: &Kernel, exporter: &Arc<Exporter>) {
    let exporter = exporter.clone();
    kernel.run_resource("telemetry", Arc::new(move || Box::pin(exporter.clone().run())));
}
