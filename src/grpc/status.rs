//! How a [`Fault`] looks over gRPC: a status with the details of the richer error model (ErrorInfo, BadRequest, RetryInfo).

use std::{collections::HashMap, time::Duration};

use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use crate::error::Fault;

/// The domain of our reasons.
const DOMAIN: &str = "annie";

/// The status of a fault.
pub(crate) fn status(fault: &Fault, request_id: Option<&str>) -> Status {
    let mut details = ErrorDetails::new();
    let mut facts = HashMap::new();
    if let Some(more) = fault.facts.as_deref().and_then(|f| f.as_object()) {
        let text = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        facts.extend(more.iter().map(|(key, value)| (key.clone(), text(value))));
    }
    details.set_error_info(fault.code.as_str(), DOMAIN, facts);
    if let Some(field) = &fault.field {
        details.add_bad_request_violation(field, &fault.detail);
    }
    if let Some(ms) = fault.retry_after_ms {
        details.set_retry_info(Some(Duration::from_millis(ms)));
    }
    if let Some(id) = request_id {
        details.set_request_info(id, "");
    }
    Status::with_error_details(fault.code.grpc(), fault.detail.clone(), details)
}

#[cfg(test)]
mod tests {
    use crate::error::Code;

    use super::*;

    #[test]
    fn every_code_keeps_its_word_and_its_details() {
        for code in Code::ALL {
            let fault =
                Fault::new(code, "why").at("text").retry_in_ms(1_500).with_facts(serde_json::json!({"limit": 3}));
            let status = status(&fault, Some("req_1"));
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
