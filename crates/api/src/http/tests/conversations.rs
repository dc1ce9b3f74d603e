//! Conversations over HTTP and gRPC: titles, the search in their messages, bad input, and the borders between users.

use serde_json::{Value, json};

use super::world::{Server, echo};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, conversations_client::ConversationsClient},
};

async fn said(server: &Server, text: &str) -> String {
    let sent = server.say(json!({"text": text})).await;
    sent["conversation_id"].as_str().expect("a conversation").to_owned()
}

fn ids(found: &Value) -> Vec<&str> {
    let rows = found["conversations"].as_array().expect("a list");
    rows.iter().filter_map(|row| row["id"].as_str()).collect()
}

#[tokio::test]
async fn conversation_gets_a_title_and_is_found_by_it_and_by_its_messages() {
    let server = Server::start(echo()).await;
    let rome = said(&server, "Which train goes to Rome on Friday?").await;
    let paris = said(&server, "Which train goes to Paris?").await;
    let (status, renamed) =
        server.post(&format!("/api/v1/conversations/{rome}/rename"), json!({"title": " The\n trip "})).await;
    assert_eq!((status, &renamed["title"], &renamed["id"]), (200, &json!("The trip"), &json!(rome)), "{renamed}");
    let (_, one) = server.get(&format!("/api/v1/conversations/{rome}")).await;
    assert_eq!(one, renamed);
    let (_, list) = server.get("/api/v1/conversations").await;
    let titles: Vec<&Value> = list["conversations"].as_array().unwrap().iter().map(|row| &row["title"]).collect();
    assert_eq!(titles, [&json!("Which train goes to Paris?"), &json!("The trip")]);

    for (query, wanted) in [
        ("rome%20FRIDAY", vec![rome.as_str()]),
        ("trip", vec![rome.as_str()]),
        ("train", vec![paris.as_str(), rome.as_str()]),
        ("train&limit=1", vec![paris.as_str()]),
        ("Berlin", vec![]),
    ] {
        let (status, found) = server.get(&format!("/api/v1/conversations/search?query={query}")).await;
        assert_eq!((status, ids(&found)), (200, wanted), "{query}: {found}");
    }
    let (_, found) = server.get("/api/v1/conversations/search?query=rome").await;
    assert!(found["conversations"][0]["excerpt"].as_str().unwrap().contains("Rome on Friday"), "{found}");
    let (_, found) = server.get("/api/v1/conversations/search?query=trip").await;
    assert_eq!(found["conversations"][0]["excerpt"], "", "only the title has the word");
}

#[tokio::test]
async fn conversation_request_that_is_wrong_says_what_is_accepted() {
    let server = Server::start(echo()).await;
    let own = said(&server, "Hello").await;
    for title in [String::new(), "  ".to_owned(), "x".repeat(81)] {
        let (status, problem) =
            server.post(&format!("/api/v1/conversations/{own}/rename"), json!({"title": title})).await;
        assert_eq!(status, 400, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("1 to 80 characters"), "{problem}");
    }
    let many = vec!["x"; 17].join("%20");
    for query in ["", "%20", &many] {
        let (status, problem) = server.get(&format!("/api/v1/conversations/search?query={query}")).await;
        assert_eq!(status, 400, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("1 to 16 words"), "{problem}");
    }
}

#[tokio::test]
async fn conversation_of_another_user_is_not_found_and_grpc_has_the_same_titles() {
    let server = Server::start(echo()).await;
    let id = said(&server, "Which train goes to Rome?").await;
    let (me, bob) = (server.key("me", &[KeyScope::Chat]).await, server.key("bob", &[KeyScope::Chat]).await);
    let mut client = ConversationsClient::connect(format!("http://{}", server.at)).await.unwrap();
    fn with<T>(key: &str, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        request
    }
    let rename = v1::RenameConversationRequest { id: id.clone(), title: "The trip".to_owned() };
    let refused = client.rename(with(&bob, rename.clone())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    let one = v1::ConversationRequest { id: id.clone() };
    assert_eq!(client.get(with(&bob, one.clone())).await.unwrap_err().code(), tonic::Code::NotFound);
    let search = v1::SearchConversationsRequest { query: "rome".to_owned(), limit: 0 };
    assert!(client.search(with(&bob, search.clone())).await.unwrap().into_inner().conversations.is_empty());
    assert_eq!(client.rename(with(&me, rename)).await.unwrap().into_inner().title, "The trip");
    assert_eq!(client.get(with(&me, one)).await.unwrap().into_inner().title, "The trip");
    let found = client.search(with(&me, search)).await.unwrap().into_inner().conversations;
    assert_eq!(
        found.iter().map(|row| (row.id.as_str(), row.title.as_str())).collect::<Vec<_>>(),
        [(id.as_str(), "The trip")]
    );
}
