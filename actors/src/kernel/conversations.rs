//! Conversations as front ends see them: lists, titles, and the search in their messages.

use std::collections::BTreeMap;

use annie_core::{
    event::{EventBody, Scope},
    ids::{ConversationId, IntentId, Seq, UserId},
    ports::{Before, ConversationRow, Documents, StoreError},
    titles::{self, TITLE_CHARS_MAX, TITLES},
};

use super::{Kernel, KernelError, PAGE_MAX};

/// The conversations that a search reads, the newest ones.
const SEARCHED_MAX: usize = 500;
/// The events of one conversation that a search reads, the last ones.
const EVENTS_MAX: u64 = 2_000;
/// The most words of a search.
const WORDS_MAX: usize = 16;
/// The text around a found word, in characters.
const EXCERPT_CHARS_MAX: usize = 160;

/// A conversation that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundConversation {
    /// The conversation.
    pub row: ConversationRow,
    /// The newest message or answer that has all the words; empty if only the title has them.
    pub excerpt: String,
}

/// Sets the titles that the user gave to these conversations.
///
/// # Errors
/// If the store fails.
pub async fn with_titles(
    documents: &dyn Documents,
    user: &UserId,
    mut rows: Vec<ConversationRow>,
) -> Result<Vec<ConversationRow>, StoreError> {
    if rows.is_empty() {
        return Ok(rows);
    }
    let ids: Vec<ConversationId> = rows.iter().map(|row| row.id).collect();
    let hits = documents.find_documents(user.clone(), &TITLES, titles::of(&ids)).await?;
    let given: BTreeMap<ConversationId, String> =
        hits.iter().map(|hit| titles::read(&hit.document)).collect::<Result<_, _>>()?;
    for row in &mut rows {
        if let Some(title) = given.get(&row.id) {
            row.title.clone_from(title);
        }
    }
    Ok(rows)
}

impl Kernel {
    /// A conversation.
    ///
    /// # Errors
    /// If there is none that the scope sees, or it was deleted.
    pub async fn conversation(&self, scope: Scope, id: ConversationId) -> Result<ConversationRow, KernelError> {
        let found = self.wiring.store.conversation(scope, id).await?.ok_or(KernelError::NotFound("conversation"))?;
        if found.deleted_at.is_some() { Err(KernelError::Deleted) } else { Ok(found) }
    }

    /// A conversation of a user, with the title that the user gave to it.
    ///
    /// # Errors
    /// If the user has no such conversation.
    pub async fn titled_conversation(&self, user: &UserId, id: ConversationId) -> Result<ConversationRow, KernelError> {
        let row = self.conversation(Scope::User(user.clone()), id).await?;
        let titled = with_titles(self.wiring.documents.as_ref(), user, vec![row]).await?;
        titled.into_iter().next().ok_or(KernelError::NotFound("conversation"))
    }

    /// Conversations by the time of their last change, newest first; those of stateless calls only with `with_stateless`.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn conversations(
        &self,
        scope: Scope,
        before: Before,
        limit: u32,
        with_stateless: bool,
    ) -> Result<Vec<ConversationRow>, KernelError> {
        let (store, limit) = (&self.wiring.store, limit.clamp(1, PAGE_MAX));
        let rows = match with_stateless {
            true => store.conversations(scope.clone(), before, limit).await?,
            false => store.listed_conversations(scope.clone(), before, limit).await?,
        };
        match scope {
            Scope::User(user) => Ok(with_titles(self.wiring.documents.as_ref(), &user, rows).await?),
            Scope::Operator => Ok(rows),
        }
    }

    /// Gives a conversation a title.
    ///
    /// # Errors
    /// `Invalid` if the title is empty or too long; `NotFound` if the user has no such conversation.
    pub async fn rename_conversation(
        &self,
        user: &UserId,
        id: ConversationId,
        title: &str,
    ) -> Result<ConversationRow, KernelError> {
        let why = || KernelError::Invalid(format!("a title has 1 to {TITLE_CHARS_MAX} characters"));
        let title = titles::title(title).ok_or_else(why)?;
        self.conversation(Scope::User(user.clone()), id).await?;
        let intent = IntentId::from_uuid(self.wiring.env.uuid());
        let write = titles::rename(user.clone(), id, title, intent, self.now());
        self.wiring.documents.write_document(write).await?;
        self.titled_conversation(user, id).await
    }

    /// The conversations of a user whose title, or one of whose messages or answers, has all of these words, newest first. The search
    /// reads the newest 500 conversations, and the last 2,000 events of each.
    ///
    /// # Errors
    /// `Invalid` without words or with too many; otherwise if the store fails.
    pub async fn search_conversations(
        &self,
        user: &UserId,
        query: &str,
        limit: usize,
    ) -> Result<Vec<FoundConversation>, KernelError> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() || words.len() > WORDS_MAX {
            return Err(KernelError::Invalid(format!("a search has 1 to {WORDS_MAX} words")));
        }
        let (mut found, mut read, mut before) = (Vec::new(), 0, Before::NEWEST);
        while read < SEARCHED_MAX && found.len() < limit {
            let rows = self.conversations(Scope::User(user.clone()), before, PAGE_MAX, false).await?;
            let Some(last) = rows.last() else { break };
            before = last.page_start();
            read += rows.len();
            for row in rows {
                let excerpt = self.excerpt(&row, &words).await?;
                if excerpt.is_some() || titles::has_all(&row.title, &words) {
                    found.push(FoundConversation { row, excerpt: excerpt.unwrap_or_default() });
                }
                if found.len() == limit {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// The newest text of a conversation that has all of the words.
    async fn excerpt(&self, row: &ConversationRow, words: &[String]) -> Result<Option<String>, KernelError> {
        let (store, mut end) = (&self.wiring.store, row.last_seq.0);
        let first = end.saturating_sub(EVENTS_MAX);
        while end > first {
            let start = end.saturating_sub(u64::from(PAGE_MAX)).max(first);
            let count = u32::try_from(end - start).unwrap_or(PAGE_MAX);
            let events = store.events(Scope::User(row.user.clone()), row.id, Seq(start), count).await?;
            let mut texts = events.iter().rev().filter_map(|event| {
                let received = if let EventBody::Received(inbound) = &event.body { Some(&*inbound.text) } else { None };
                received.or_else(|| event.body.as_final().map(|end| end.text()))
            });
            if let Some(text) = texts.find(|text| titles::has_all(text, words)) {
                return Ok(Some(around(text, words)));
            }
            end = start;
        }
        Ok(None)
    }
}

/// The part of a text around the first of the words.
fn around(text: &str, words: &[String]) -> String {
    let chars: Vec<char> = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    let lower: String = chars.iter().flat_map(|c| c.to_lowercase().next()).collect();
    let found = words.first().and_then(|word| lower.find(word.as_str())).unwrap_or_default();
    let at = lower[..found].chars().count();
    let start = at.saturating_sub(EXCERPT_CHARS_MAX / 4);
    let end = (start + EXCERPT_CHARS_MAX).min(chars.len());
    let (before, after) = (if start > 0 { "… " } else { "" }, if end < chars.len() { " …" } else { "" });
    format!("{before}{}{after}", chars[start..end].iter().collect::<String>().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_of_a_long_text_shows_the_word_that_was_found() {
        let text = format!("{}THE ROME trip {}", "x ".repeat(200), "y ".repeat(200));
        let excerpt = around(&text, &["rome".to_owned()]);
        assert!(excerpt.contains("ROME trip") && excerpt.starts_with("… ") && excerpt.ends_with(" …"), "{excerpt}");
        assert_eq!(around("İ rome", &["rome".to_owned()]), "İ rome");
    }
}
