//! Memories over a store in memory.

use annie_store::MemoryStore;

use super::*;
use crate::runner::tests::call;

fn about(content: &str, importance: f64) -> Statement {
    Statement { content: content.to_owned(), tags: Vec::new(), category: Category::Fact, importance }
}

fn tagged(content: &str, tags: &[&str], importance: f64) -> Statement {
    Statement { tags: tags.iter().map(|tag| (*tag).to_owned()).collect(), ..about(content, importance) }
}

/// Saves a memory of this user under an intent of its own.
async fn save_of(store: &MemoryStore, user: &str, intent: &str, new: Statement) -> Saved {
    let user = UserId::new(user).unwrap();
    save(store, &SkillCall { user, ..call(intent, "memory.save", json!({})) }, new).await.unwrap()
}

async fn found(store: &MemoryStore, text: &str) -> Vec<u64> {
    let query = MemoryQuery { text: text.to_owned(), limit: 20, ..MemoryQuery::default() };
    let memories = find(store, &UserId::new("ann").unwrap(), query).await.unwrap();
    memories.into_iter().map(|memory| memory.number).collect()
}

#[tokio::test]
async fn near_duplicate_memory_is_merged_into_the_existing_one() {
    let store = MemoryStore::new();
    let first = save_of(&store, "ann", "1", tagged("Bob prefers email", &["bob", "mail"], 0.7)).await;
    assert!(!first.is_merged);
    let second = save_of(&store, "ann", "2", tagged("Bob prefers emails.", &["mail", "work"], 0.4)).await;
    let wanted = Memory { number: 1, statement: tagged("Bob prefers emails.", &["bob", "mail", "work"], 0.7) };
    assert_eq!((second.is_merged, second.memory), (true, wanted));
    let shorter = save_of(&store, "ann", "3", about("bob PREFERS email", 0.9)).await;
    assert!(shorter.is_merged);
    assert_eq!(shorter.memory.statement.content, "Bob prefers emails.");
    assert!((shorter.memory.statement.importance - 0.9).abs() < 1e-9);
    assert_eq!(found(&store, "").await, [1]);
}

#[tokio::test]
async fn memory_of_another_category_user_or_fact_is_not_merged() {
    let store = MemoryStore::new();
    let same = || about("Standup is every day at 9 in the big room on the left", 0.5);
    let others = [
        same(),
        Statement { category: Category::Preference, ..same() },
        about("Standup is every day at 10 in the big room on the left", 0.5),
        about("Standup is never", 0.5),
    ];
    for (n, other) in (1..).zip(others) {
        let saved = save_of(&store, "ann", &n.to_string(), other).await;
        assert_eq!((saved.is_merged, saved.memory.number), (false, n));
    }
    let bobs = save_of(&store, "bob", "5", same()).await;
    assert_eq!((bobs.is_merged, bobs.memory.number), (false, 1));
}

#[tokio::test]
async fn memory_is_saved_once_per_intent() {
    let store = MemoryStore::new();
    let first = save_of(&store, "ann", "1", about("Bob prefers email", 0.5)).await;
    assert_eq!(save_of(&store, "ann", "1", about("Other words", 0.9)).await, first);
    let merge = || about("Bob prefers emails!!", 0.6);
    let merged = save_of(&store, "ann", "2", merge()).await;
    assert!(merged.is_merged);
    assert_eq!(save_of(&store, "ann", "2", merge()).await, merged);
    assert_eq!(found(&store, "").await, [1]);
}

#[tokio::test]
async fn merged_memory_is_found_by_its_new_words() {
    let store = MemoryStore::new();
    save_of(&store, "ann", "1", about("The weekly report for the board goes out on Friday", 0.5)).await;
    assert_eq!(found(&store, "whole").await, [0_u64; 0]);
    let new = about("The weekly report for the whole board goes out on Friday", 0.5);
    assert!(save_of(&store, "ann", "2", new).await.is_merged);
    assert_eq!(found(&store, "whole").await, [1]);
    assert_eq!(found(&store, "report").await, [1]);
}

#[tokio::test]
async fn memory_importance_out_of_range_is_clamped() {
    let store = MemoryStore::new();
    for (n, given, kept) in [(1, 7.0, 1.0), (2, -1.0, 0.0), (3, f64::NAN, 0.0)] {
        let saved = save_of(&store, "ann", &n.to_string(), about(&format!("n{n}"), given)).await;
        assert!((saved.memory.statement.importance - kept).abs() < 1e-9, "{given}");
    }
    assert_eq!(found(&store, "  \n").await, [1, 3, 2]);
}

#[test]
fn memory_moved_from_the_table_of_an_earlier_version_is_read() {
    let body =
        json!({"content": "Bob prefers email", "tags": ["work", "a\\b"], "category": "preference", "importance": 0.7});
    let (created_at, updated_at) = (Micros(30), Micros(40));
    let document = Document { number: 1, body: body.clone(), created_at, updated_at, accessed_at: None };
    let statement = Statement::of(&document).unwrap();
    assert_eq!((statement.category, statement.importance.to_string()), (Category::Preference, "0.7".to_owned()));
    assert_eq!(statement.body(), body, "a merge writes the same fields");
}

#[tokio::test]
async fn unused_memory_falls_behind_and_rises_when_it_is_used() {
    let store = MemoryStore::new();
    let ann = UserId::new("ann").unwrap();
    for (intent, content) in [("1", "Tom likes tea in the morning"), ("2", "Ann likes tea at night")] {
        save_of(&store, "ann", intent, about(content, 0.5)).await;
    }
    let saved_at = call("1", "memory.save", json!({})).now;
    let day_ms = 24 * 3_600_000;
    let search = async |decay: MemoryDecay, days: u64| {
        let decay = Some((decay, saved_at.plus_ms(i64::try_from(days * day_ms).unwrap())));
        let query = MemoryQuery { text: "tea".to_owned(), limit: 1, decay, ..MemoryQuery::default() };
        find(&store, &ann, query).await.unwrap().into_iter().map(|memory| memory.number).collect::<Vec<_>>()
    };
    let before = search(MemoryDecay::of_days(30), 0).await;
    let (first, other) = if before == [1] { (1, 2) } else { (2, 1) };
    touch(&store, ann.clone(), vec![other], saved_at.plus_ms(i64::try_from(100 * day_ms).unwrap())).await.unwrap();
    assert_eq!(search(MemoryDecay::of_days(30), 100).await, [other], "it was used, the other one was not");
    assert_eq!(search(MemoryDecay::OFF, 100).await, [first], "0 switches it off");
    assert_eq!(found(&store, "").await.len(), 2, "nothing is deleted");
}
