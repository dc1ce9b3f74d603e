//! The users' memories.

use std::sync::Arc;

use annie_core::{
    ports::{Memory, MemoryCategory, MemoryHit, MemoryQuery, NewMemory, Store},
    time::Micros,
};

use crate::make::*;

fn about(content: &str, importance: f64) -> NewMemory {
    NewMemory { content: content.to_owned(), tags: Vec::new(), category: MemoryCategory::Fact, importance }
}

/// Stores memories of Ann's under the intents 1, 2, 3 ...
async fn store_memories(store: &dyn Store, memories: Vec<NewMemory>) {
    for (memory, n) in memories.into_iter().zip(1..) {
        let saved = store.save_memory(user("ann"), intent(n), memory, Micros(n as i64)).await.unwrap();
        assert!(!saved.merged, "{saved:?}");
    }
}

async fn hits(store: &dyn Store, query: MemoryQuery) -> Vec<MemoryHit> {
    let hits = store.find_memories(user("ann"), query).await.unwrap();
    assert!(hits.iter().all(|hit| hit.rank >= 0.0), "{hits:?}");
    assert!(hits.is_sorted_by(|a, b| a.rank >= b.rank), "{hits:?}");
    hits
}

async fn found(store: &dyn Store, query: MemoryQuery) -> Vec<u64> {
    hits(store, query).await.into_iter().map(|hit| hit.memory.number).collect()
}

fn words(text: &str) -> MemoryQuery {
    MemoryQuery { text: text.to_owned(), limit: 20, ..MemoryQuery::default() }
}

/// Stores so many other memories that a word in a few of them is a rare one.
async fn crowd(store: &dyn Store) {
    for n in 100..130 {
        let other = about(&format!("Entry {n} talks of something else entirely {}", n * 7), 0.5);
        store.save_memory(user("bob"), intent(n), other, Micros(1)).await.unwrap();
    }
}

pub async fn memory_search_finds_any_word_in_any_form_and_ranks_by_importance(store: Arc<dyn Store>) {
    crowd(&*store).await;
    let memories = vec![
        about("Bob prefers email over phone calls", 0.2),
        about("Carol preferred tea when we met", 0.9),
        about("The office is in Müllerstraße", 0.5),
        NewMemory { tags: vec!["hobby".into()], ..about("Dave plays chess on Fridays", 0.5) },
    ];
    store_memories(&*store, memories).await;
    assert_eq!(found(&*store, words("what do they PREFER?")).await, [2, 1]);
    assert_eq!(found(&*store, words("email chess")).await.len(), 2);
    assert_eq!(found(&*store, words("mullerstraße")).await, [3]);
    assert_eq!(found(&*store, words("hobbies")).await, [4]);
    assert_eq!(found(&*store, words("nobody")).await, [0_u64; 0]);
    assert_eq!(found(&*store, MemoryQuery { limit: 1, ..words("prefer") }).await, [2]);
    assert_eq!(store.find_memories(user("carol"), words("prefer")).await.unwrap(), []);
}

pub async fn memory_search_ranks_rarer_words_higher(store: Arc<dyn Store>) {
    crowd(&*store).await;
    let memories = vec![
        about("Alpha project meeting notes", 0.5),
        about("Beta project meeting notes and plans", 0.5),
        about("Gamma project kick off", 0.5),
        about("Zebra", 0.5),
    ];
    store_memories(&*store, memories).await;
    assert_eq!(found(&*store, words("project zebra")).await[0], 4);
    assert_eq!(found(&*store, words("gamma meeting project")).await[0], 3);
    let ranks: Vec<f64> = hits(&*store, words("project")).await.iter().map(|hit| hit.rank).collect();
    assert!(ranks.iter().all(|rank| *rank > 0.0), "{ranks:?}");
}

pub async fn memory_search_is_narrowed_by_filters(store: Arc<dyn Store>) {
    let tagged = |content, tags: &[&str], category, importance| NewMemory {
        tags: tags.iter().map(|t| (*t).to_owned()).collect(),
        category,
        ..about(content, importance)
    };
    let memories = vec![
        tagged("coffee in the morning", &["food", "habit"], MemoryCategory::Preference, 0.9),
        tagged("coffee machine is broken", &["office"], MemoryCategory::Fact, 0.4),
        tagged("coffee with Bob next week", &[], MemoryCategory::Goal, 0.6),
    ];
    store_memories(&*store, memories).await;
    let coffee = || words("coffee");
    let tags = |tags: &[&str]| tags.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
    assert_eq!(found(&*store, coffee()).await.len(), 3);
    assert_eq!(found(&*store, MemoryQuery { category: Some(MemoryCategory::Fact), ..coffee() }).await, [2]);
    assert_eq!(found(&*store, MemoryQuery { tags: tags(&["office", "nope"]), ..coffee() }).await, [2]);
    assert_eq!(found(&*store, MemoryQuery { tags: tags(&["nope"]), ..coffee() }).await, [0_u64; 0]);
    assert_eq!(found(&*store, MemoryQuery { tags: tags(&["foo"]), ..coffee() }).await, [0_u64; 0]);
    assert_eq!(found(&*store, MemoryQuery { min_importance: Some(0.6), ..words("") }).await, [1, 3]);
    assert_eq!(
        found(&*store, MemoryQuery { min_importance: Some(0.5), ..words("bob morning machine") }).await.len(),
        2
    );
}

pub async fn memory_search_without_words_lists_the_most_important(store: Arc<dyn Store>) {
    store_memories(
        &*store,
        vec![about("low", 0.1), about("high", 0.9), about("same as low", 0.1), about("nothing", 0.0)],
    )
    .await;
    for text in ["", "  \n"] {
        assert_eq!(found(&*store, words(text)).await, [2, 3, 1, 4]);
    }
    assert_eq!(found(&*store, MemoryQuery { limit: 0, ..words("") }).await, [0_u64; 0]);
}

pub async fn memory_search_treats_a_hostile_query_as_words(store: Arc<dyn Store>) {
    store_memories(&*store, vec![about("Bob's near OR not AND column content owner", 0.5), about("Hello world", 0.5)])
        .await;
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
        "'; DROP TABLE memories; --",
        "\\",
        "col : (",
        "\u{202e}hello",
        "é́́",
    ] {
        let hits = store.find_memories(user("ann"), words(text)).await;
        assert!(hits.is_ok(), "{text:?}: {hits:?}");
    }
    assert_eq!(found(&*store, words("NEAR(hello world, 2)")).await.len(), 2);
    assert_eq!(found(&*store, words("content:hello")).await.len(), 2);
    assert_eq!(found(&*store, words("🎉")).await, [0_u64; 0]);
    assert_eq!(found(&*store, words(&"hello ".repeat(50_000))).await, [2]);
    let many: String = (0..5_000).map(|n| format!("w{n} ")).collect();
    assert_eq!(found(&*store, words(&many)).await, [0_u64; 0]);
    let odd = store.save_memory(user("ann"), intent(9), about("\"🎉\u{0} ' OR *", 0.5), Micros(3)).await.unwrap();
    assert_eq!(odd.memory.content, "\"🎉\u{0} ' OR *");
}

pub async fn near_duplicate_memory_is_merged_into_the_existing_one(store: Arc<dyn Store>) {
    let first = NewMemory { tags: vec!["bob".into(), "mail".into()], ..about("Bob prefers email", 0.7) };
    let first = store.save_memory(user("ann"), intent(1), first, Micros(10)).await.unwrap();
    assert!(!first.merged);
    let longer = NewMemory { tags: vec!["mail".into(), "work".into()], ..about("Bob prefers emails.", 0.4) };
    let second = store.save_memory(user("ann"), intent(2), longer, Micros(20)).await.unwrap();
    let wanted = Memory {
        number: 1,
        content: "Bob prefers emails.".into(),
        tags: ["bob", "mail", "work"].map(str::to_owned).to_vec(),
        category: MemoryCategory::Fact,
        importance: 0.7,
        created_at: Micros(10),
        updated_at: Micros(20),
        accessed_at: None,
    };
    assert_eq!((second.merged, &second.memory), (true, &wanted));
    let shorter = store.save_memory(user("ann"), intent(3), about("bob PREFERS email", 0.9), Micros(30)).await.unwrap();
    assert!(shorter.merged);
    assert_eq!(shorter.memory.content, "Bob prefers emails.");
    assert!((shorter.memory.importance - 0.9).abs() < 1e-9);
    assert_eq!(found(&*store, words("")).await, [1]);
}

pub async fn memory_of_another_category_user_or_fact_is_not_merged(store: Arc<dyn Store>) {
    let same = || about("Standup is every day at 9 in the big room on the left", 0.5);
    store_memories(
        &*store,
        vec![
            same(),
            NewMemory { category: MemoryCategory::Preference, ..same() },
            about("Standup is every day at 10 in the big room on the left", 0.5),
            about("Standup is never", 0.5),
        ],
    )
    .await;
    let bobs = store.save_memory(user("bob"), intent(1), same(), Micros(1)).await.unwrap();
    assert_eq!((bobs.merged, bobs.memory.number), (false, 1));
}

pub async fn memory_is_saved_once_per_intent(store: Arc<dyn Store>) {
    let first = store.save_memory(user("ann"), intent(1), about("Bob prefers email", 0.5), Micros(1)).await.unwrap();
    let again = store.save_memory(user("ann"), intent(1), about("Other words", 0.9), Micros(2)).await.unwrap();
    assert_eq!(first, again);
    let merge = || about("Bob prefers emails!!", 0.6);
    let merged = store.save_memory(user("ann"), intent(2), merge(), Micros(3)).await.unwrap();
    let again = store.save_memory(user("ann"), intent(2), merge(), Micros(4)).await.unwrap();
    assert!(merged.merged);
    assert_eq!(merged, again);
    assert_eq!(found(&*store, words("")).await, [1]);
}

pub async fn merged_memory_is_found_by_its_new_words(store: Arc<dyn Store>) {
    let old = "The weekly report for the board goes out on Friday";
    let new = "The weekly report for the whole board goes out on Friday";
    store.save_memory(user("ann"), intent(1), about(old, 0.5), Micros(1)).await.unwrap();
    assert_eq!(found(&*store, words("whole")).await, [0_u64; 0]);
    assert!(store.save_memory(user("ann"), intent(2), about(new, 0.5), Micros(2)).await.unwrap().merged);
    assert_eq!(found(&*store, words("whole")).await, [1]);
    assert_eq!(found(&*store, words("report")).await, [1]);
}

pub async fn memories_that_were_found_are_touched(store: Arc<dyn Store>) {
    store_memories(&*store, vec![about("one", 0.5), about("two", 0.5), about("three", 0.5)]).await;
    store.save_memory(user("bob"), intent(1), about("one", 0.5), Micros(1)).await.unwrap();
    store.touch_memories(user("ann"), vec![1, 3, 99], Micros(50)).await.unwrap();
    store.touch_memories(user("ann"), vec![3], Micros(40)).await.unwrap();
    store.touch_memories(user("ann"), vec![], Micros(60)).await.unwrap();
    let mut touched: Vec<_> =
        hits(&*store, words("")).await.into_iter().map(|hit| (hit.memory.number, hit.memory.accessed_at)).collect();
    touched.sort();
    assert_eq!(touched, [(1, Some(Micros(50))), (2, None), (3, Some(Micros(50)))]);
    let bobs = store.find_memories(user("bob"), words("")).await.unwrap();
    assert_eq!(bobs[0].memory.accessed_at, None);
    assert_eq!(bobs[0].memory.updated_at, Micros(1));
}

pub async fn memory_importance_out_of_range_is_clamped(store: Arc<dyn Store>) {
    for (n, given, kept) in [(1, 7.0, 1.0), (2, -1.0, 0.0), (3, f64::NAN, 0.0)] {
        let saved = store.save_memory(user("ann"), intent(n), about(&format!("n{n}"), given), Micros(1)).await.unwrap();
        assert!((saved.memory.importance - kept).abs() < 1e-9, "{given}");
    }
    assert_eq!(found(&*store, words("")).await, [1, 3, 2]);
}
