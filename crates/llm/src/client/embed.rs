//! Embeddings: one request, one reply, both in OpenAI's format. The provider's vectors are passed through unchanged.

use std::time::Duration;

use annie_core::message::{ModelError, ModelErrorKind};
use reqwest::header::CONTENT_TYPE;
use serde_json::{Map, Value};

use super::{OpenAiModel, read};
use crate::wire::failure::Failure;

impl OpenAiModel {
    /// Requests embeddings from the configured embedding model.
    pub(super) async fn vectors(&self, mut request: Map<String, Value>) -> Result<Value, ModelError> {
        let Some(model) = &self.config.embeddings else {
            return Err(ModelError::new(ModelErrorKind::InvalidRequest, "this backend has no embedding model"));
        };
        request.insert("model".to_owned(), model.as_str().into());
        let body = Value::Object(request).to_string();
        let limit = Duration::from_millis(self.config.call_ms_max);
        match tokio::time::timeout(limit, self.exchange_vectors(body)).await {
            Ok(outcome) => outcome.map_err(|failure| failure.error),
            Err(_) => {
                let detail = format!("no whole reply within {} ms", self.config.call_ms_max);
                Err(ModelError::new(ModelErrorKind::Timeout, detail))
            }
        }
    }

    async fn exchange_vectors(&self, body: String) -> Result<Value, Failure> {
        let url = self.config.url("embeddings");
        let request = self.http.post(url).headers(self.headers.clone()).header(CONTENT_TYPE, "application/json");
        let response = request.body(body).send().await.map_err(|error| self.transport(&error))?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let bytes_max = self.config.reply_bytes_max.saturating_mul(8).max(64 * 1024);
        let whole = read::whole(self, Vec::new(), response, bytes_max).await?;
        let protocol = |detail: String| Failure::new(ModelErrorKind::Protocol, detail, false);
        let reply: Value = serde_json::from_slice(&whole).map_err(|error| protocol(format!("no JSON: {error}")))?;
        if reply["data"].is_array() { Ok(reply) } else { Err(protocol("there is no `data` in the reply".to_owned())) }
    }
}
