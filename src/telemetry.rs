//! Log lines on stderr and counters for `/metrics`. Set up once in a process; a second call changes nothing.

use std::{io::IsTerminal, sync::OnceLock};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;

use crate::config::{Environment, Log, LogFormat};

/// Bounds of the histograms of times, in seconds.
const SECONDS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];

/// Logs from here on. The level is known to be one: the configuration was checked.
pub fn log(settings: &Log, environment: &Environment) {
    let filter = EnvFilter::try_new(&settings.level).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Fails only if somebody has set up logging before: then that stays.
    let _ = match settings.format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal() && !environment.no_color()).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
}

/// Counts from here on; what was counted can be rendered. Nothing if another recorder is there already, or the bounds do
/// not fit.
pub fn metrics() -> Option<PrometheusHandle> {
    static HANDLE: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let make = || {
        let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS);
        let handle = builder.ok()?.install_recorder().ok()?;
        metrics::gauge!("annie_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Some(handle)
    };
    HANDLE.get_or_init(make).clone()
}
