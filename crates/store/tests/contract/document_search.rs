//! The searches among documents: parts of texts, and words with a rank.

use std::sync::Arc;

use annie_core::{
    ports::{
        Decide, Document, DocumentChange, DocumentHit, DocumentOrder, DocumentQuery, DocumentWrite, Documents, Find,
        NumberRange, Seen, Storage,
    },
    time::Micros,
};
use serde_json::{Value, json};

use crate::{
    documents::{MEMORY, TASKS, all, found, insert, replace, texts, write},
    make::*,
};

fn about(content: &str, importance: f64) -> Value {
    json!({"content": content, "tags": [], "category": "fact", "importance": importance})
}

async fn store_memories(store: &dyn Documents, memories: Vec<Value>) {
    for (memory, n) in memories.into_iter().zip(1..) {
        assert_eq!(insert(store, "ann", &MEMORY, n, memory).await, n as u64);
    }
}

fn words(text: &str) -> DocumentQuery {
    let find = Find::AnyWord(text.to_owned());
    DocumentQuery { find, order: DocumentOrder::Rank, limit: 20, ..DocumentQuery::default() }
}

fn listed() -> DocumentQuery {
    DocumentQuery { find: Find::All, ..words("") }
}

async fn hits(store: &dyn Documents, query: DocumentQuery) -> Vec<DocumentHit> {
    let hits = store.find_documents(user("ann"), &MEMORY, query).await.unwrap();
    assert!(hits.iter().all(|hit| hit.rank >= 0.0), "{hits:?}");
    assert!(hits.is_sorted_by(|a, b| a.rank >= b.rank), "{hits:?}");
    hits
}

async fn ranked(store: &dyn Documents, query: DocumentQuery) -> Vec<u64> {
    hits(store, query).await.into_iter().map(|hit| hit.document.number).collect()
}

/// Stores so many other memories that a word in a few of them is a rare one.
async fn crowd(store: &dyn Documents) {
    for n in 100..130 {
        let other = about(&format!("Entry {n} talks of something else entirely {}", n * 7), 0.5);
        insert(store, "bob", &MEMORY, n, other).await;
    }
}

pub async fn document_search_requires_all_parts_in_any_case_and_any_script(store: Arc<dyn Storage>) {
    let bodies = [
        json!({"title": "Call the plumber", "description": "with GRÜSSE from Bob"}),
        json!({"title": "Привет", "tags": ["Bob"]}),
        json!({"title": "買い物 list"}),
    ];
    for (n, body) in (1..).zip(bodies) {
        insert(&*store, "ann", &TASKS, n, body).await;
    }
    let search = async |text: &str| {
        found(&*store, &TASKS, DocumentQuery { find: Find::Containing(text.to_owned()), ..all() }).await
    };
    assert_eq!(search("CALL plumb grüsse").await, [1]);
    assert_eq!(search("bob").await, [1, 2]);
    assert_eq!(search("bob ПРИВ").await, [2]);
    assert_eq!(search("買い").await, [3]);
    assert_eq!(search("bob list").await, [0_u64; 0]);
    assert_eq!(search("  ").await.len(), 3);
    let counted = DocumentQuery { find: Find::Containing("bob".to_owned()), ..all() };
    assert_eq!(store.count_documents(user("ann"), &TASKS, counted, Vec::new()).await.unwrap(), [2]);
    replace(&*store, &TASKS, 1, 9, json!({"title": "Ring the painter"})).await;
    assert_eq!(search("plumber").await, [0_u64; 0]);
    assert_eq!(search("painter").await, [1]);
}

pub async fn document_search_treats_pattern_characters_as_text(store: Arc<dyn Storage>) {
    for (n, title) in [(1, "100% done_ish"), (2, "100 percent \"quoted\" 'x'")] {
        insert(&*store, "ann", &TASKS, n, json!({"title": title})).await;
    }
    let search = async |text: &str| {
        found(&*store, &TASKS, DocumentQuery { find: Find::Containing(text.to_owned()), ..all() }).await
    };
    assert_eq!(search("0%").await, [1]);
    assert_eq!(search("e_i").await, [1]);
    assert_eq!(search("\"quoted\" 'x'").await, [2]);
    assert_eq!(search("') OR 1=1 --").await, [0_u64; 0]);
}

pub async fn document_word_search_finds_any_word_in_any_form_and_ranks_by_number(store: Arc<dyn Storage>) {
    crowd(&*store).await;
    let hobby = json!({"content": "Dave plays chess on Fridays", "tags": ["hobby"], "importance": 0.5});
    let memories = vec![
        about("Bob prefers email over phone calls", 0.2),
        about("Carol preferred tea when we met", 0.9),
        about("The office is in Müllerstraße", 0.5),
        hobby,
    ];
    store_memories(&*store, memories).await;
    assert_eq!(ranked(&*store, words("what do they PREFER?")).await, [2, 1]);
    assert_eq!(ranked(&*store, words("email chess")).await.len(), 2);
    assert_eq!(ranked(&*store, words("mullerstraße")).await, [3]);
    assert_eq!(ranked(&*store, words("hobbies")).await, [4]);
    assert_eq!(ranked(&*store, words("nothing")).await, [0_u64; 0]);
    assert_eq!(ranked(&*store, DocumentQuery { limit: 1, ..words("prefer") }).await, [2]);
    assert_eq!(store.find_documents(user("carol"), &MEMORY, words("prefer")).await.unwrap(), []);
}

pub async fn document_word_search_ranks_rarer_words_higher(store: Arc<dyn Storage>) {
    crowd(&*store).await;
    let memories = vec![
        about("Alpha project meeting notes", 0.5),
        about("Beta project meeting notes and plans", 0.5),
        about("Gamma project kick off", 0.5),
        about("Zebra", 0.5),
    ];
    store_memories(&*store, memories).await;
    // Documents without words do not change the ranks.
    insert(&*store, "ann", &TASKS, 50, json!({"title": "Zebra project"})).await;
    assert_eq!(ranked(&*store, words("project zebra")).await[0], 4);
    assert_eq!(ranked(&*store, words("gamma meeting project")).await[0], 3);
    let ranks: Vec<f64> = hits(&*store, words("project")).await.iter().map(|hit| hit.rank).collect();
    assert!(ranks.len() == 3 && ranks.iter().all(|rank| *rank > 0.0), "{ranks:?}");
}

pub async fn document_word_search_is_narrowed_by_filters(store: Arc<dyn Storage>) {
    let tagged = |content: &str, tags: &[&str], category: &str, importance: f64| json!({"content": content, "tags": tags, "category": category, "importance": importance});
    let memories = vec![
        tagged("coffee in the morning", &["food", "habit"], "preference", 0.9),
        tagged("coffee machine is broken", &["office"], "fact", 0.4),
        tagged("coffee with Bob next week", &[], "goal", 0.6),
    ];
    store_memories(&*store, memories).await;
    let coffee = || words("coffee");
    let least = |min: f64| [NumberRange { min: Some(min), max: None }, NumberRange::default()];
    let category = |name: &str| [texts(&[name]), Vec::new(), Vec::new()];
    assert_eq!(ranked(&*store, coffee()).await.len(), 3);
    assert_eq!(ranked(&*store, DocumentQuery { texts: category("fact"), ..coffee() }).await, [2]);
    assert_eq!(ranked(&*store, DocumentQuery { tags: texts(&["office", "nope"]), ..coffee() }).await, [2]);
    assert_eq!(ranked(&*store, DocumentQuery { tags: texts(&["nope"]), ..coffee() }).await, [0_u64; 0]);
    assert_eq!(ranked(&*store, DocumentQuery { tags: texts(&["foo"]), ..coffee() }).await, [0_u64; 0]);
    assert_eq!(ranked(&*store, DocumentQuery { numbers: least(0.6), ..listed() }).await, [1, 3]);
    let some = DocumentQuery { numbers: least(0.5), ..words("bob morning machine") };
    assert_eq!(ranked(&*store, some).await.len(), 2);
}

pub async fn document_ranking_without_words_is_by_number(store: Arc<dyn Storage>) {
    let memories = vec![about("low", 0.1), about("high", 0.9), about("same as low", 0.1), about("nothing", 0.0)];
    store_memories(&*store, memories).await;
    assert_eq!(ranked(&*store, listed()).await, [2, 3, 1, 4]);
    assert_eq!(ranked(&*store, words("  \n")).await, [0_u64; 0]);
    assert_eq!(ranked(&*store, DocumentQuery { limit: 0, ..listed() }).await, [0_u64; 0]);
}

pub async fn document_word_search_treats_a_hostile_query_as_words(store: Arc<dyn Storage>) {
    let memories = vec![about("Bob's near OR not AND column content owner", 0.5), about("Hello world", 0.5)];
    store_memories(&*store, memories).await;
    for text in [
        "\"",
        "'",
        "*",
        "(",
        ")",
        "^hello",
        "hello*",
        "NEAR(hello world, 2)",
        "content:hello",
        "-world",
        "hello AND",
        "OR",
        "NOT hello",
        "\"hello",
        "hello\" OR owner : u",
        "{content} : hello",
        "a + b",
        "\u{0}",
        "%",
        "🎉",
        "🎉🎉 x",
        "'; DROP TABLE documents; --",
        "\\",
        "col : (",
        "\u{202e}hello",
        "é́́",
    ] {
        let hits = store.find_documents(user("ann"), &MEMORY, words(text)).await;
        assert!(hits.is_ok(), "{text:?}: {hits:?}");
    }
    assert_eq!(ranked(&*store, words("NEAR(hello world, 2)")).await.len(), 2);
    assert_eq!(ranked(&*store, words("content:hello")).await.len(), 2);
    assert_eq!(ranked(&*store, words("🎉")).await, [0_u64; 0]);
    assert_eq!(ranked(&*store, words(&"hello ".repeat(50_000))).await, [2]);
    let many: String = (0..5_000).map(|n| format!("w{n} ")).collect();
    assert_eq!(ranked(&*store, words(&many)).await, [0_u64; 0]);
    assert_eq!(insert(&*store, "ann", &MEMORY, 9, about("\"🎉\u{0} ' OR *", 0.5)).await, 3);
    let odd = store.document(user("ann"), &MEMORY, 3).await.unwrap().unwrap();
    assert_eq!(odd.body["content"], "\"🎉\u{0} ' OR *");
}

pub async fn document_word_search_finds_replaced_words_only(store: Arc<dyn Storage>) {
    let memories = vec![about("The weekly report goes out on Friday", 0.5), about("A zebra", 0.5)];
    store_memories(&*store, memories).await;
    assert_eq!(ranked(&*store, words("whole")).await, [0_u64; 0]);
    replace(&*store, &MEMORY, 1, 8, about("The weekly report for the whole board", 0.5)).await;
    assert_eq!(ranked(&*store, words("whole")).await, [1]);
    assert_eq!(ranked(&*store, words("report")).await, [1]);
    assert_eq!(ranked(&*store, words("friday")).await, [0_u64; 0]);
    replace(&*store, &MEMORY, 1, 9, json!({"importance": 0.5})).await;
    assert_eq!(ranked(&*store, words("report zebra")).await, [2]);
    replace(&*store, &MEMORY, 1, 10, about("Another report", 0.5)).await;
    assert_eq!(ranked(&*store, words("report")).await, [1]);
}

pub async fn document_word_search_by_similarity_ignores_numbers(store: Arc<dyn Storage>) {
    crowd(&*store).await;
    let memories = vec![
        about("Bob likes the train to Paris in the morning, and a seat at the window", 1.0),
        about("Bob likes the train to Paris", 0.0),
    ];
    store_memories(&*store, memories).await;
    assert_eq!(ranked(&*store, words("Bob likes the train to Paris")).await, [1, 2]);
    let similar = DocumentQuery { order: DocumentOrder::Similarity, ..words("Bob likes the train to Paris") };
    assert_eq!(ranked(&*store, similar).await, [2, 1]);
}

pub async fn write_sees_the_documents_that_its_query_finds(store: Arc<dyn Storage>) {
    crowd(&*store).await;
    store_memories(&*store, vec![about("A cat", 0.5), about("A dog", 0.5), about("Cats and dogs", 0.5)]).await;
    let archive = write("ann", &MEMORY, 7, Seen::Number(2), DocumentChange::Archive(2));
    store.write_document(archive).await.unwrap();
    let decide: Decide = Arc::new(|seen: &[Document]| {
        let numbers: Vec<u64> = seen.iter().map(|document| document.number).collect();
        Ok(DocumentChange::Insert(json!({"content": format!("{numbers:?}")})))
    });
    let query = DocumentQuery { order: DocumentOrder::Similarity, ..words("dog") };
    for (n, query, seen) in [(8, query, "[3]"), (9, words("🎉"), "[]")] {
        let decide = decide.clone();
        let (user, namespace, intent) = (user("ann"), &MEMORY, intent(n));
        let write = DocumentWrite { user, namespace, intent, seen: Seen::Query(query), decide, at: Micros(9) };
        let written = store.write_document(write).await.unwrap();
        assert_eq!(written.document.unwrap().body["content"], seen);
    }
}
