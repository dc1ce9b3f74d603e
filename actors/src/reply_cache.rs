//! Replies of models that are used again for an equal request of the same user within a short time. In memory and bounded; after a
//! restart each model is asked again. A reply that is used again is recorded like any other, so a replay needs no cache.

use std::collections::{HashMap, VecDeque};

use annie_core::{
    ids::UserId,
    message::{Finish, ModelReply, ModelRequest, Usage},
    time::Micros,
};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// The longest text of a reply that is kept, in bytes.
const TEXT_BYTES_MAX: usize = 32 * 1024;

/// `[cache]`: how long replies are kept, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// How long a reply is used again, in milliseconds. 0 means never.
    pub kept_ms: u64,
    /// The maximum number of replies. The oldest one is dropped first.
    pub entries_max: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { kept_ms: 0, entries_max: 256 }
    }
}

/// What makes two requests equal: the user, the backend, and everything that the model reads or is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey([u8; 32]);

impl CacheKey {
    /// The key of a request. `None` if the request cannot be written.
    fn of(user: &UserId, backend: &str, request: &ModelRequest) -> Option<Self> {
        // Neither the conversation, by which a provider finds its own cache, nor the class changes the reply.
        let asked = ModelRequest { session_id: String::new(), priority: 0, stable_messages: 0, ..request.clone() };
        let bytes = serde_json::to_vec(&(user, backend, asked)).ok()?;
        Some(Self(Sha256::digest(bytes).into()))
    }
}

/// The kept replies.
pub(crate) struct ReplyCache {
    limits: CacheLimits,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    replies: HashMap<CacheKey, (Micros, ModelReply)>,
    /// The keys in the order in which they were added.
    order: VecDeque<(Micros, CacheKey)>,
}

impl ReplyCache {
    pub fn new(limits: CacheLimits) -> Self {
        Self { limits, kept: Mutex::default() }
    }

    /// The key under which the reply to a request may be kept. `None` if replies are not used again.
    pub fn key(&self, user: &UserId, backend: &str, request: &ModelRequest) -> Option<CacheKey> {
        // Whether a reply has the form that was requested is known later, so such a reply is not kept.
        let may_keep = self.limits.kept_ms > 0 && request.options.format.is_none();
        if may_keep { CacheKey::of(user, backend, request) } else { None }
    }

    /// The kept reply, as one that cost nothing.
    pub fn reply(&self, key: CacheKey, now: Micros) -> Option<ModelReply> {
        let kept = self.kept.lock();
        let found = kept.replies.get(&key).filter(|(at, _)| *at <= now && now.since_ms(*at) < self.limits.kept_ms);
        let found = found.map(|(_, reply)| ModelReply { usage: Usage::default(), cached: true, ..reply.clone() });
        let result = if found.is_some() { "hit" } else { "miss" };
        metrics::counter!("annie_reply_cache_total", "result" => result).increment(1);
        found
    }

    /// Keeps a reply, if it is a whole answer in words.
    pub fn keep(&self, key: CacheKey, reply: &ModelReply, now: Micros) {
        let is_answer = reply.finish == Finish::Stop && reply.tool_calls.is_empty() && !reply.declined;
        let fits = (1..=TEXT_BYTES_MAX).contains(&reply.text.len()) && reply.provider_state.is_none();
        if !is_answer || !fits {
            return;
        }
        let mut kept = self.kept.lock();
        kept.replies.insert(key, (now, reply.clone()));
        kept.order.push_back((now, key));
        let is_old = |at: Micros| now.since_ms(at) >= self.limits.kept_ms;
        while let Some((at, key)) = kept.order.front().copied()
            && (is_old(at) || kept.order.len() > self.limits.entries_max)
        {
            kept.order.pop_front();
            // The same request may have been answered again since.
            if kept.replies.get(&key).is_some_and(|(since, _)| *since == at) {
                kept.replies.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str) -> ModelReply {
        let usage = Usage { input_tokens: 7, ..Usage::default() };
        ModelReply { text: text.to_owned(), usage, ..ModelReply::default() }
    }

    fn request(output_tokens_max: u32) -> ModelRequest {
        ModelRequest {
            model: None,
            system: Vec::new(),
            messages: Vec::new(),
            stable_messages: 0,
            tools: Vec::new(),
            skill_names: Vec::new(),
            output_tokens_max,
            session_id: String::new(),
            priority: 0,
            options: annie_core::caller::CallOptions::default(),
        }
    }

    fn cache() -> ReplyCache {
        ReplyCache::new(CacheLimits { kept_ms: 1_000, entries_max: 2 })
    }

    fn key(user: &str, backend: &str, tokens: u32) -> CacheKey {
        let request = request(tokens);
        CacheKey::of(&UserId::new(user).expect("an id"), backend, &request).expect("a key")
    }

    #[test]
    fn reply_cache_key_has_user_backend_and_request_but_not_the_conversation() {
        let ann = key("ann", "a", 1);
        assert_eq!(ann, key("ann", "a", 1));
        assert!(ann != key("bob", "a", 1) && ann != key("ann", "b", 1) && ann != key("ann", "a", 2));
        let user = UserId::new("ann").expect("an id");
        let other = ModelRequest { session_id: "c".to_owned(), ..request(1) };
        assert_eq!(CacheKey::of(&user, "a", &other), Some(ann));
        assert_eq!(ReplyCache::new(CacheLimits::default()).key(&user, "a", &other), None, "it is off by default");
        let format = Some(annie_core::caller::AnswerFormat::JsonObject);
        let options = annie_core::caller::CallOptions { format, ..Default::default() };
        let formatted = ModelRequest { options, ..request(1) };
        assert!(cache().key(&user, "a", &other).is_some());
        assert_eq!(cache().key(&user, "a", &formatted), None, "whether a reply has the form is known later");
    }

    #[test]
    fn reply_cache_drops_old_replies_and_the_oldest_beyond_its_limit() {
        let (cache, at) = (cache(), Micros(0));
        let keys = [1, 2, 3].map(|n| key("ann", "a", n));
        for key in keys {
            cache.keep(key, &reply("yes"), at);
        }
        assert_eq!(cache.reply(keys[0], at), None);
        let found = cache.reply(keys[2], at.plus_ms(999)).expect("it is kept");
        assert!(found.cached && found.usage == Usage::default() && found.text == "yes");
        assert_eq!(cache.reply(keys[2], at.plus_ms(1_000)), None);
        cache.keep(keys[0], &reply("again"), at.plus_ms(1_000));
        assert_eq!(cache.kept.lock().replies.len(), 1, "what is too old is dropped");
    }

    #[test]
    fn reply_cache_keeps_whole_answers_in_words_only() {
        let (cache, key) = (cache(), key("ann", "a", 1));
        for other in [
            reply(""),
            reply(&"x".repeat(TEXT_BYTES_MAX + 1)),
            ModelReply { finish: Finish::Length, ..reply("cut") },
            ModelReply { declined: true, ..reply("no") },
            ModelReply { provider_state: Some(serde_json::json!(1)), ..reply("state") },
        ] {
            cache.keep(key, &other, Micros(0));
            assert_eq!(cache.reply(key, Micros(0)), None, "{other:?}");
        }
    }
}
