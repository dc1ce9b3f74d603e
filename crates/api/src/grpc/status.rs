//! An [`ApiError`] as a gRPC status with the details of the richer error model (ErrorInfo, BadRequest, RetryInfo).

use std::{collections::HashMap, time::Duration};

use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use crate::error::ApiError;

/// The domain of the error reasons.
const DOMAIN: &str = "annie";

/// The status of an error.
pub(crate) fn status(error: &ApiError, request_id: Option<&str>) -> Status {
    let mut details = ErrorDetails::new();
    let mut facts = HashMap::new();
    if let Some(more) = error.facts.as_deref().and_then(|f| f.as_object()) {
        let text = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        facts.extend(more.iter().map(|(key, value)| (key.clone(), text(value))));
    }
    details.set_error_info(error.code.as_str(), DOMAIN, facts);
    if let Some(field) = &error.field {
        details.add_bad_request_violation(field, &error.detail);
    }
    if let Some(ms) = error.retry_after_ms {
        details.set_retry_info(Some(Duration::from_millis(ms)));
    }
    if let Some(id) = request_id {
        details.set_request_info(id, "");
    }
    Status::with_error_details(error.code.grpc(), error.detail.clone(), details)
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        status(&error, None)
    }
}

#[cfg(test)]
mod tests {
    use crate::error::Code;

    use super::*;

    #[test]
    fn grpc_status_keeps_code_name_and_details() {
        for code in Code::ALL {
            let error =
                ApiError::new(code, "why").at("text").retry_in_ms(1_500).with_facts(serde_json::json!({"limit": 3}));
            let status = status(&error, Some("req_1"));
            assert_eq!((status.code(), status.message()), (code.grpc(), "why"));
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((info.reason.as_str(), info.metadata["limit"].as_str()), (code.as_str(), "3"));
            assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_millis(1_500)));
            assert_eq!(details.bad_request().unwrap().field_violations[0].field, "text");
            assert_eq!(details.request_info().unwrap().request_id, "req_1");
        }
    }
}
