//! The OpenAI-compatible surface, so that their libraries and the chat pages made for them work unchanged. A stateless
//! protocol over a kernel that remembers: with a conversation's name only what is new is taken from the posted messages;
//! without one each request is a conversation of its own, which lists leave out. A client that brings tools of its own
//! keeps the conversation itself: its turn runs on the posted messages alone (`docs/decisions/0016-client-tools.md`).

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
use crate::{door::AppState, error::Fault};

/// The modes that a model's name can choose.
const MODES: [Mode; 3] = [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct];

/// The routes.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/models", get(list_models))
        .route("/v1/models/{*id}", get(get_model))
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/responses", post(responses::create))
        .route("/v1/embeddings", post(embeddings::embed))
}

/// `annie`, and `annie/<mode>`.
fn model_ids() -> Vec<String> {
    std::iter::once("annie".to_owned()).chain(MODES.iter().map(|m| format!("annie/{}", m.as_str()))).collect()
}

fn model(state: &AppState, id: &str) -> Value {
    // Said plainly where users look: what answers behind the name.
    let about: Vec<String> =
        state.kernel.models().into_iter().map(|(_, model, about)| format!("{model}: {about}")).collect();
    json!({
        "id": id, "object": "model", "created": state.doors.started_at.0 / 1_000_000, "owned_by": "annie",
        "description": about.join("; "),
    })
}

async fn list_models(State(state): State<AppState>) -> Json<Value> {
    let data: Vec<Value> = model_ids().iter().map(|id| model(&state, id)).collect();
    Json(json!({ "object": "list", "data": data }))
}

async fn get_model(State(state): State<AppState>, Name(id): Name) -> Result<Json<Value>, Fault> {
    if request::known_mode(&id).is_none() {
        return Err(Fault::not_found("model").at("model"));
    }
    Ok(Json(model(&state, &id)))
}
