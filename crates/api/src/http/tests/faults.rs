//! A failing store, seen through the front ends.

use annie_core::ports::StoreErrorKind;
use annie_store::{MemoryStore, StoreFault, StorePoint};
use reqwest::Method;
use serde_json::json;
use tonic_types::StatusExt;

use super::world::{Server, echo, read};
use crate::{
    api::ApiLimits,
    grpc::v1::{self, chat_client::ChatClient},
};

/// A server whose store has this fault at this point.
async fn injected(at: fn(StorePoint<'_>) -> bool, error: StoreFault) -> Server {
    let hook = move |point: StorePoint<'_>| if at(point) { error } else { StoreFault::Pass };
    let store = MemoryStore::new().with_hook(std::sync::Arc::new(hook));
    Server::on(store, echo(), ApiLimits::default()).await
}

#[tokio::test]
async fn unwritable_store_acknowledges_nothing_on_any_front_end() {
    for kind in [StoreErrorKind::Full, StoreErrorKind::Locked, StoreErrorKind::Unavailable] {
        let server = injected(|point| matches!(point, StorePoint::Commit(_)), StoreFault::Fail(kind)).await;
        let message = server.request(Method::POST, "/api/v1/messages").json(&json!({ "text": "x" })).send();
        let response = message.await.unwrap();
        assert!(response.headers().contains_key("retry-after"), "{kind:?}");
        let (status, problem) = read(response).await;
        assert_eq!((status, &problem["code"]), (503, &json!("unavailable")), "{kind:?}");
        assert!(!problem.to_string().contains("injected"), "{problem}");
        let body = json!({ "model": "annie", "messages": [{ "role": "user", "content": "x" }] });
        let (status, error) = server.post("/v1/chat/completions", body).await;
        assert_eq!((status, &error["error"]["code"]), (503, &json!("unavailable")));
        let mut chat = ChatClient::connect(format!("http://{}", server.at)).await.unwrap();
        let refused = chat.submit(v1::SubmitRequest { text: "x".into(), ..Default::default() }).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        assert!(refused.get_error_details().retry_info().is_some());
    }
}

#[tokio::test]
async fn unreadable_store_is_an_internal_error_without_detail() {
    let error = StoreFault::Fail(StoreErrorKind::Corrupt);
    let server = injected(|point| matches!(point, StorePoint::Read("conversations")), error).await;
    let (status, problem) = server.get("/api/v1/conversations").await;
    assert_eq!((status, &problem["code"]), (500, &json!("internal")));
    assert!(!problem.to_string().contains("injected"), "{problem}");
}

#[tokio::test]
async fn grpc_deadline_of_caller_is_kept() {
    let server = injected(|point| matches!(point, StorePoint::Read("tasks")), StoreFault::Hang).await;
    let client = annie_llm::http_client().no_proxy().http2_prior_knowledge().build().unwrap();
    let request = client
        .post(format!("http://{}/annie.v1.Jobs/List", server.at))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", "50m")
        .body(vec![0_u8; 5]);
    assert_eq!(request.send().await.unwrap().headers()["grpc-status"], "4");
}
