//! `annie state`: values under keys of a conversation, of a user and of the application.

use serde_json::{Value, json};

use super::{
    args::State,
    client::Client,
    failure::{Exit, Failure},
    listing::{Listing, print_object},
    site::Site,
};

pub(super) const LIST: Listing = Listing {
    command: "state list",
    rows: "state",
    columns: &[("key", "key"), ("value", "value"), ("changed", "updated_at")],
};

/// The fields of a change that are shown.
const KEYS: [&str; 3] = ["key", "before", "after"];

/// `annie state`
///
/// # Errors
/// If no server runs, the key is refused, or it is not set.
pub async fn run(site: &Site, command: State) -> Result<(), Failure> {
    let client = site.running().await?;
    match command {
        State::List { conversation } => {
            let answer = client.get(&format!("{}{}", LIST.path(), query(conversation.as_deref()))).await?;
            LIST.print(site, &answer, "nothing is set: annie state set user:nickname Ann")
        }
        State::Get { key, conversation } => {
            let route = format!("{}/{key}{}", LIST.path(), query(conversation.as_deref()));
            let found = client.get(&route).await.map_err(known)?;
            print_object(site, &found, &["key", "value", "updated_at"])
        }
        State::Set { key, value, conversation, parse } => {
            let text = value.join(" ");
            let value = if parse {
                serde_json::from_str(&text)
                    .map_err(|e| Failure::new(Exit::Usage, format!("the value is no JSON: {e}")))?
            } else {
                Value::from(text)
            };
            let body = with_conversation(json!({ "value": value }), conversation);
            print_object(site, &post(&client, &format!("{}/{key}", LIST.path()), body).await?, &KEYS)
        }
        State::Delete { key, conversation } => {
            let body = with_conversation(json!({}), conversation);
            print_object(site, &post(&client, &format!("{}/{key}/delete", LIST.path()), body).await?, &KEYS)
        }
    }
}

fn query(conversation: Option<&str>) -> String {
    conversation.map_or_else(String::new, |id| format!("?conversation_id={id}"))
}

fn with_conversation(mut body: Value, conversation: Option<String>) -> Value {
    if let Some(conversation) = conversation {
        body["conversation_id"] = conversation.into();
    }
    body
}

async fn post(client: &Client, route: &str, body: Value) -> Result<Value, Failure> {
    client.post(route, &body).await.map_err(known)
}

fn known(failure: Failure) -> Failure {
    match failure.exit {
        Exit::NotFound => failure.fix("`annie state list` shows the keys; a key without a prefix needs --conversation"),
        _ => failure,
    }
}
