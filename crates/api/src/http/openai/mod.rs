//! The OpenAI-compatible API, for OpenAI's libraries and for chat pages that use them. A client of the chat completions
//! posts all messages of the conversation with each request, while the kernel stores conversations. There are three
//! cases:
//!
//! - The request names a conversation. Only the user's messages at the end of the posted ones are used if the kernel
//!   knows the conversation. If not, the earlier ones become its history.
//! - The request names none. It gets a conversation of its own, with the earlier messages as its history. Lists omit
//!   this conversation.
//! - The client offers tools of its own. Whichever conversation the request names, its turn uses only the posted
//!   messages (`docs/decisions/0016-client-tools.md`).

mod attempt;
mod chat;
mod chunks;
mod embeddings;
mod params;
mod request;
mod responses;
mod thread;
mod turn;
mod writer;

use annie_core::event::Mode;
use axum::{
    Json, Router,
    extract::State,
    routing::{get, post},
};
use serde_json::{Value, json};

use super::extract::Name;
use crate::{api::AppState, error::ApiError};

/// The modes that a model name can select.
const MODES: [Mode; 3] = [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct];

/// The routes of this API, below the base URL that a client configures.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/models", get(list_models))
        .route("/v1/models/{*id}", get(get_model))
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/responses", post(responses::create))
        .route("/v1/embeddings", post(embeddings::embed))
}

/// The model names: `annie`, and `annie/<mode>`.
fn model_ids() -> Vec<String> {
    std::iter::once("annie".to_owned()).chain(MODES.iter().map(|m| format!("annie/{}", m.as_str()))).collect()
}

fn model(state: &AppState, id: &str) -> Value {
    // Users see here which models are behind the name.
    let about: Vec<String> =
        state.kernel.models().into_iter().map(|(_, model, about)| format!("{model}: {about}")).collect();
    json!({
        "id": id, "object": "model", "created": state.shared.started_at.0 / 1_000_000, "owned_by": "annie",
        "description": about.join("; "),
    })
}

async fn list_models(State(state): State<AppState>) -> Json<Value> {
    let data: Vec<Value> = model_ids().iter().map(|id| model(&state, id)).collect();
    Json(json!({ "object": "list", "data": data }))
}

async fn get_model(State(state): State<AppState>, Name(id): Name) -> Result<Json<Value>, ApiError> {
    if request::known_mode(&id).is_none() {
        return Err(ApiError::not_found("model").at("model"));
    }
    Ok(Json(model(&state, &id)))
}
