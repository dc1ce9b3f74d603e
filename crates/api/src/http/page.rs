//! The page at `/`: what this server is, and links. Unauthenticated callers see neither the version nor the backends.

use axum::{
    extract::{Request, State},
    response::Html,
};

use super::guard::is_local;
use crate::api::{AppState, VERSION};

/// The handler.
pub async fn page(State(state): State<AppState>, request: Request) -> Html<String> {
    // Only callers that are admitted without a key see the details, because a browser sends no key.
    if state.auth.needs_keys() || !is_local(&request) {
        return Html(html("Annie", "<p>Callers need a key.</p>"));
    }
    let models: String = state
        .kernel
        .models()
        .into_iter()
        .map(|(name, model, about)| {
            format!("<li><b>{}</b>: {} ({})</li>", escape(&name), escape(&model), escape(&about))
        })
        .collect();
    Html(html(
        &format!("Annie {VERSION}"),
        &format!(
            "<p>A kernel for AI agents is running here.</p><ul>{models}</ul>\
         <p>Say something: <code>POST /api/v1/messages</code> with <code>{{\"text\": \"…\"}}</code>, or point any OpenAI \
         client at <code>/v1</code>, or use gRPC (<code>annie.v1</code>, with reflection) on this same port.</p>\
         <p><a href=\"/api/openapi.json\">OpenAPI</a> · <a href=\"/readyz\">readiness</a> · \
         <a href=\"/metrics\">metrics</a></p>"
        ),
    ))
}

fn html(heading: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Annie</title><style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui;max-width:42rem;\
         margin:3rem auto;padding:0 1rem}}code{{font-size:.95em}}</style><h1>{heading}</h1>{body}</html>"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
