//! A store that cannot, at the doors.

use annie_core::ports::StoreErrorKind;
use annie_store::{MemoryStore, StoreFault, StorePoint};
use reqwest::Method;
use serde_json::json;
use tonic_types::StatusExt;

use super::world::{Server, echo, read};
use crate::{
    door::DoorLimits,
    grpc::v1::{self, chat_client::ChatClient},
};

/// A server whose store meets this fault at this point.
async fn struck(at: fn(StorePoint<'_>) -> bool, fault: StoreFault) -> Server {
    let hook = move |point: StorePoint<'_>| if at(point) { fault } else { StoreFault::Pass };
    let store = MemoryStore::new().with_hook(std::sync::Arc::new(hook));
    Server::on(store, echo(), DoorLimits::default()).await
}

#[tokio::test]
async fn a_store_that_cannot_write_acknowledges_nothing_in_any_door() {
    for kind in [StoreErrorKind::Full, StoreErrorKind::Locked, StoreErrorKind::Unavailable] {
        let server = struck(|point| matches!(point, StorePoint::Commit(_)), StoreFault::Fail(kind)).await;
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
async fn a_store_that_cannot_be_read_is_our_fault_and_says_no_more() {
    let fault = StoreFault::Fail(StoreErrorKind::Corrupt);
    let server = struck(|point| matches!(point, StorePoint::Read("conversations")), fault).await;
    let (status, problem) = server.get("/api/v1/conversations").await;
    assert_eq!((status, &problem["code"]), (500, &json!("internal")));
    assert!(!problem.to_string().contains("injected"), "{problem}");
}

#[tokio::test]
async fn a_grpc_callers_deadline_is_kept() {
    let server = struck(|point| matches!(point, StorePoint::Read("tasks")), StoreFault::Hang).await;
    let client = annie_llm::http_client().no_proxy().http2_prior_knowledge().build().unwrap();
    let request = client
        .post(format!("http://{}/annie.v1.Jobs/List", server.at))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", "50m")
        .body(vec![0_u8; 5]);
    assert_eq!(request.send().await.unwrap().headers()["grpc-status"], "4");
}
