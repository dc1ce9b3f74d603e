//! The settings with which this server runs, each with the origin of its value.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    api::Setting,
    auth::{KeyScope::OpsRead, Need::Scope},
    error::ApiError,
    grpc::v1,
};

/// The operations on settings.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/settings", Scope(OpsRead), list_settings, Settings::from)
            .about("list_settings", "operations", "List the settings with which this server runs.", "config running")
            .rpc("/annie.v1.Scheduler/ListSettings", |_: v1::ListSettingsRequest| Ok(()), listed),
    ]
}

/// A setting.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingLine {
    /// The path of the setting, such as `server.bind` or `backend.0.model`.
    key: String,
    /// The value. Secrets are masked.
    value: Value,
    /// Where the value was set: the default, a file with its line, a variable, or a flag.
    origin: String,
}

/// The settings, by key. A change of the files takes effect at the next start.
#[derive(Debug, Serialize, ToSchema)]
pub struct Settings {
    settings: Vec<SettingLine>,
}

impl From<Arc<[Setting]>> for Settings {
    fn from(all: Arc<[Setting]>) -> Self {
        let line =
            |one: &Setting| SettingLine { key: one.key.clone(), value: one.value.clone(), origin: one.origin.clone() };
        Self { settings: all.iter().map(line).collect() }
    }
}

fn listed(all: Arc<[Setting]>) -> v1::ListSettingsResponse {
    let line = |one: &Setting| v1::SettingLine {
        key: one.key.clone(),
        value_json: one.value.to_string(),
        origin: one.origin.clone(),
    };
    v1::ListSettingsResponse { settings: all.iter().map(line).collect() }
}

async fn list_settings(call: Call, (): ()) -> Result<Arc<[Setting]>, ApiError> {
    Ok(call.state.settings.clone())
}
