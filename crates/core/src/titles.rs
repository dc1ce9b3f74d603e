//! Titles that users give to their conversations. Without one a conversation has the beginning of its first message as title.
//!
//! A title is a document, because the row of a conversation is folded from its log, and a new title is no event of its turns.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use crate::{
    ids::{ConversationId, IntentId, UserId},
    ports::{
        Decide, Document, DocumentChange, DocumentQuery, DocumentWrite, Namespace, Seen, StoreError, StoreErrorKind,
    },
    time::Micros,
};

/// The titles of all users. Stored documents have these fields: an old one must stay readable.
pub static TITLES: Namespace = Namespace { texts: &["conversation"], ..Namespace::named("titles") };
/// Length limit for a title, in characters: that of the titles that conversations have at first.
pub const TITLE_CHARS_MAX: usize = 80;

#[derive(Deserialize)]
struct Body {
    conversation: ConversationId,
    title: String,
}

fn corrupt(error: impl ToString) -> StoreError {
    StoreError { kind: StoreErrorKind::Corrupt, what: "reading a title", detail: error.to_string() }
}

/// A title on one line; `None` if it is empty or too long.
#[must_use]
pub fn title(text: &str) -> Option<String> {
    let title = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!title.is_empty() && title.chars().count() <= TITLE_CHARS_MAX).then_some(title)
}

/// The query for the titles of these conversations.
#[must_use]
pub fn of(conversations: &[ConversationId]) -> DocumentQuery {
    let texts = [conversations.iter().map(ToString::to_string).collect(), Vec::new(), Vec::new()];
    let limit = u32::try_from(conversations.len()).unwrap_or(u32::MAX);
    DocumentQuery { texts, limit, ..DocumentQuery::default() }
}

/// The conversation and the title of a document.
///
/// # Errors
/// `Corrupt` if the document is none.
pub fn read(document: &Document) -> Result<(ConversationId, String), StoreError> {
    let Body { conversation, title } = Body::deserialize(&document.body).map_err(corrupt)?;
    Ok((conversation, title))
}

/// The write that gives a conversation a title.
#[must_use]
pub fn rename(
    user: UserId,
    conversation: ConversationId,
    title: String,
    intent: IntentId,
    at: Micros,
) -> DocumentWrite {
    let body = json!({"conversation": conversation, "title": title});
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        Ok(match seen.first() {
            Some(old) => DocumentChange::Replace { number: old.number, body: body.clone() },
            None => DocumentChange::Insert(body.clone()),
        })
    });
    DocumentWrite { user, namespace: &TITLES, intent, seen: Seen::Query(of(&[conversation])), decide, at }
}

/// Whether a text has all of these words, ignoring case. `words` are in lower case.
#[must_use]
pub fn has_all(text: &str, words: &[String]) -> bool {
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_one_line_of_at_most_80_characters() {
        assert_eq!(title("  the\n trip  to Rome "), Some("the trip to Rome".to_owned()));
        assert_eq!((title(" \n"), title(&"é".repeat(81))), (None, None));
        assert_eq!(title(&"é".repeat(80)).map(|text| text.chars().count()), Some(80));
        let words = ["rome".to_owned(), "trip".to_owned()];
        assert!(has_all("The trip to ROME", &words) && !has_all("The trip to Paris", &words));
    }
}
