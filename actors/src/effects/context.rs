//! Asks the context sources for what the prompts of a turn show of the data of skills and extensions. No source can fail or
//! hold up a turn: an answer without memories is better than none.

use std::{sync::Arc, time::Duration};

use annie_core::{
    context::clip,
    event::{PromptFacts, Recalled, SourceText},
    ports::{ContextPart, ContextQuery, ContextSource},
};
use futures_util::future::join_all;

use crate::tasks::caught;

/// Time limit of each source, in milliseconds. A person waits for it before the first round.
const SOURCE_MS_MAX: u64 = 2_000;
/// Parts of one source in a prompt, at most.
const PARTS_MAX: usize = 16;
/// The longest text of a part, in bytes. A prompt has room for several sources beside the conversation.
const TEXT_BYTES_MAX: usize = 2_000;

/// The longest category or origin of a memory, in bytes.
const LABEL_BYTES_MAX: usize = 200;
/// The sources of the built-in skills, which limit their data where they store it.
const BUILT_IN: [&str; 2] = ["memory", "tasks"];

/// The length of all texts together, in bytes.
const TEXTS_BYTES_MAX: usize = 16_000;

/// The facts that the sources give, in the order of the sources; all other facts are empty. The sources are asked at the same
/// time. One that fails, panics or takes too long adds nothing.
pub(super) async fn read_context(sources: &[Arc<dyn ContextSource>], query: &ContextQuery) -> PromptFacts {
    let asked: Vec<_> = sources.iter().map(|source| read(source.as_ref(), query)).collect();
    let answers = join_all(asked).await;
    let mut facts = PromptFacts::default();
    for (source, parts) in sources.iter().zip(answers) {
        let name = source.name();
        let is_built_in = BUILT_IN.contains(&name);
        let shown = parts.into_iter().map(|part| if is_built_in { part } else { limited(name, part) });
        shown.for_each(|part| add(&mut facts, name, part));
    }
    facts
}

async fn read(source: &dyn ContextSource, query: &ContextQuery) -> Vec<ContextPart> {
    let answer = caught(async { source.read(query).await });
    let error = match tokio::time::timeout(Duration::from_millis(SOURCE_MS_MAX), answer).await {
        Ok(Ok(Ok(mut parts))) => {
            if parts.len() > PARTS_MAX {
                let (given, parts_max) = (parts.len(), PARTS_MAX);
                tracing::warn!(source = source.name(), given, parts_max, "parts of a context source were left out");
                parts.truncate(PARTS_MAX);
            }
            return parts;
        }
        Ok(Ok(Err(error))) => error,
        Ok(Err(panic)) => format!("it panicked: {panic}"),
        Err(_) => format!("it took longer than {SOURCE_MS_MAX} ms"),
    };
    tracing::warn!(source = source.name(), error, "a context source adds nothing to this turn");
    Vec::new()
}

/// A part of a source of an extension, with limits of length. A memory that names no origin gets the source's name.
fn limited(source: &str, part: ContextPart) -> ContextPart {
    let clipped = |text: &str, bytes_max: usize| clip(text.trim(), bytes_max).into_owned();
    match part {
        ContextPart::TodoSummary(line) => ContextPart::TodoSummary(clipped(&line, TEXT_BYTES_MAX)),
        ContextPart::Memory(Recalled { number, text, category, origin }) => ContextPart::Memory(Recalled {
            number,
            text: clipped(&text, TEXT_BYTES_MAX),
            category: clipped(&category, LABEL_BYTES_MAX),
            origin: clipped(if origin.trim().is_empty() { source } else { &origin }, LABEL_BYTES_MAX),
        }),
        // The limit of a text depends on the texts before it.
        ContextPart::Text(text) => ContextPart::Text(text),
    }
}

fn add(facts: &mut PromptFacts, source: &str, part: ContextPart) {
    match part {
        ContextPart::TodoSummary(line) => {
            if !facts.todo_summary.is_empty() {
                facts.todo_summary.push('\n');
            }
            facts.todo_summary.push_str(&line);
        }
        ContextPart::Memory(memory) => facts.recalled.push(memory),
        ContextPart::Text(text) => {
            let bytes_left = TEXTS_BYTES_MAX.saturating_sub(facts.texts.iter().map(|shown| shown.text.len()).sum());
            if bytes_left < TEXT_BYTES_MAX {
                tracing::warn!(
                    source,
                    "a text of a context source was left out: the texts of all sources are too long"
                );
                return;
            }
            let text = clip(text.trim(), TEXT_BYTES_MAX).into_owned();
            if !text.is_empty() {
                facts.texts.push(SourceText { source: source.to_owned(), text });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use annie_core::{ids::UserId, ports::Fut, time::Micros};

    use super::*;

    enum Does {
        Give(Vec<ContextPart>),
        Fail,
        Panic,
        Hang,
    }

    struct Fake(&'static str, Does);

    impl ContextSource for Fake {
        fn name(&self) -> &'static str {
            self.0
        }

        fn read<'a>(&'a self, _query: &'a ContextQuery) -> Fut<'a, Result<Vec<ContextPart>, String>> {
            Box::pin(async move {
                match &self.1 {
                    Does::Give(parts) => Ok(parts.clone()),
                    Does::Fail => Err("it fails".to_owned()),
                    Does::Panic => panic!("it panics"),
                    Does::Hang => std::future::pending().await,
                }
            })
        }
    }

    async fn facts_of(fakes: Vec<Fake>) -> PromptFacts {
        let sources: Vec<Arc<dyn ContextSource>> =
            fakes.into_iter().map(|fake| -> Arc<dyn ContextSource> { Arc::new(fake) }).collect();
        let user = UserId::new("ann").unwrap();
        let query = ContextQuery {
            user,
            text: "Hello".to_owned(),
            is_private: false,
            now: Micros(0),
            timezone: "UTC".to_owned(),
        };
        read_context(&sources, &query).await
    }

    fn text(text: &str) -> ContextPart {
        ContextPart::Text(text.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn context_sources_are_asked_together_and_a_broken_one_adds_nothing() {
        let memory = Recalled { number: 7, text: "Tea".to_owned(), category: "fact".to_owned(), origin: String::new() };
        let from = tokio::time::Instant::now();
        let facts = facts_of(vec![
            Fake("first", Does::Give(vec![text("one"), ContextPart::Memory(memory.clone())])),
            Fake("slow", Does::Hang),
            Fake("stuck", Does::Hang),
            Fake("failed", Does::Fail),
            Fake("broken", Does::Panic),
            Fake("last", Does::Give(vec![ContextPart::TodoSummary("2 open".to_owned()), text(" two\n"), text(" ")])),
        ])
        .await;
        let waited_ms = from.elapsed().as_millis();
        assert!((1_900..2_500).contains(&waited_ms), "{waited_ms} ms for all sources, {SOURCE_MS_MAX} ms for each");
        let shown = |source: &str, text: &str| SourceText { source: source.to_owned(), text: text.to_owned() };
        assert_eq!(
            facts,
            PromptFacts {
                todo_summary: "2 open".to_owned(),
                recalled: vec![Recalled { origin: "first".to_owned(), ..memory }],
                texts: vec![shown("first", "one"), shown("last", "two")],
                ..PromptFacts::default()
            }
        );
    }

    #[tokio::test]
    async fn parts_of_a_context_source_are_limited_in_number_and_length() {
        let parts = (0..=PARTS_MAX).map(|_| text(&"x".repeat(TEXT_BYTES_MAX + 1))).collect();
        let facts = facts_of(vec![Fake("verbose", Does::Give(parts))]).await;
        assert!(facts.texts.iter().all(|shown| shown.text.len() <= TEXT_BYTES_MAX && shown.text.contains("[cut: ")));
        let bytes: usize = facts.texts.iter().map(|shown| shown.text.len()).sum();
        assert!(
            (TEXTS_BYTES_MAX - 2 * TEXT_BYTES_MAX..=TEXTS_BYTES_MAX).contains(&bytes),
            "{bytes} bytes of all texts"
        );
        let parts = (0..=PARTS_MAX).map(|_| text("x")).collect();
        assert_eq!(facts_of(vec![Fake("verbose", Does::Give(parts))]).await.texts.len(), PARTS_MAX);
    }

    #[tokio::test]
    async fn texts_of_context_sources_are_left_out_once_less_than_a_full_text_is_left() {
        let long = || text(&"x".repeat(TEXT_BYTES_MAX - 100));
        for (count, is_shown) in [(7, true), (8, false)] {
            let parts = (0..count).map(|_| long()).chain([text("y")]).collect();
            let facts = facts_of(vec![Fake("verbose", Does::Give(parts))]).await;
            assert_eq!(facts.texts.iter().any(|shown| shown.text == "y"), is_shown, "behind {count} long texts");
        }
    }

    #[tokio::test]
    async fn memory_and_todos_of_an_extension_are_limited_and_name_their_source_unlike_those_of_built_in_skills() {
        let long = "x".repeat(2 * TEXT_BYTES_MAX);
        let memory = |origin: &str| {
            let (text, category, origin) = (long.clone(), long.clone(), origin.to_owned());
            ContextPart::Memory(Recalled { number: 7, text, category, origin })
        };
        let given = || vec![memory(""), memory("mail"), ContextPart::TodoSummary(long.clone())];
        let facts = facts_of(vec![Fake("station", Does::Give(given()))]).await;
        assert_eq!(facts.recalled.iter().map(|memory| &*memory.origin).collect::<Vec<_>>(), ["station", "mail"]);
        let is_short =
            |memory: &Recalled| memory.text.len() <= TEXT_BYTES_MAX && memory.category.len() <= LABEL_BYTES_MAX;
        assert!(facts.recalled.iter().all(is_short) && facts.todo_summary.len() <= TEXT_BYTES_MAX, "{facts:?}");
        let facts = facts_of(vec![Fake("memory", Does::Give(given()))]).await;
        assert_eq!((facts.recalled[0].text.as_str(), facts.recalled[0].origin.as_str()), (long.as_str(), ""));
    }
}
