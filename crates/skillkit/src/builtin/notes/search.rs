//! `notes.search`: notes by words and tags with a snippet of each; without words the newest ones.

use std::cmp::Reverse;

use annie_core::{outcome::Outcome, skill::Effect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{head_of, home::Home, name::title_of, tags_of, with_home};
use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
    text,
};

/// How much text one search reads at most, in bytes.
const SCANNED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Length limit for a snippet, in bytes.
const SNIPPET_BYTES_MAX: usize = 160;
/// How many occurrences of a word count in one note, so that a long note is not always first.
const WORD_HITS_MAX: usize = 5;
/// The weight of a word in the title, relative to one in the text.
const TITLE_WEIGHT: usize = 10;

pub(crate) struct Search;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// Words that the note must hold in title or text, all of them; without it the newest notes are listed.
    query: Option<String>,
    /// Only with this tag.
    tag: Option<String>,
    /// How many at most.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 50))]
    limit: usize,
}

const fn ten() -> usize {
    10
}

struct Hit {
    path: String,
    tags: Vec<String>,
    snippet: String,
    score: usize,
    modified: std::time::SystemTime,
}

#[derive(Default)]
struct Found {
    hits: Vec<Hit>,
    unread: usize,
}

impl Handler for Search {
    type Args = Args;
    const NAME: &'static str = "notes.search";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let query = args.query.unwrap_or_default().trim().to_owned();
        let words: Vec<String> = query.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let tag = args.tag.as_ref().map(|tag| text::tags(std::slice::from_ref(tag))).transpose()?;
        let tag = tag.and_then(|tags| tags.into_iter().next());
        let wanted = tag.clone();
        let mut found = with_home(&ctx, move |home| scan(home, &words, wanted.as_deref())).await?;
        found.hits.sort_by(|a, b| {
            (Reverse(a.score), Reverse(a.modified), &a.path).cmp(&(Reverse(b.score), Reverse(b.modified), &b.path))
        });
        let total = found.hits.len();
        found.hits.truncate(args.limit);
        let mut filters = String::new();
        if !query.is_empty() {
            filters.push_str(&format!(" matching '{query}'"));
        }
        if let Some(tag) = tag {
            filters.push_str(&format!(" tagged {tag}"));
        }
        let paths: Vec<&str> = found.hits.iter().map(|h| h.path.as_str()).collect();
        let evidence = json!({"count": found.hits.len(), "total": total, "paths": paths});
        let mut message = summary(&found.hits, total, &filters);
        let origins = text::origins_in(found.hits.iter().flat_map(|hit| &hit.tags));
        if found.unread == 0 {
            return Ok(Outcome::success(message).with_evidence(evidence).with_origins(origins));
        }
        message.push_str(&format!("\n\n{} could not be looked through.", text::count(found.unread, "note", "notes")));
        Ok(Outcome::partial(message).with_evidence(evidence).with_origins(origins))
    }
}

fn scan(home: &Home, words: &[String], tag: Option<&str>) -> Result<Found, SkillError> {
    let mut found = Found::default();
    let mut scanned = 0;
    for path in home.list()? {
        let text = if scanned < SCANNED_BYTES_MAX { home.read(&path).ok().flatten() } else { None };
        let Some(text) = text else {
            found.unread += 1;
            continue;
        };
        scanned += text.len();
        let tags = tags_of(&text);
        if tag.is_some_and(|tag| !tags.iter().any(|t| t == tag)) {
            continue;
        }
        let body = &text[head_of(&text).map_or(0, |(_, at)| at)..];
        let Some(score) = score(title_of(&path), body, words) else { continue };
        let modified = home
            .dir
            .metadata(&path)
            .and_then(|m| m.modified())
            .map_err(|e| SkillError::io("cannot read a note's age", e))?;
        found.hits.push(Hit { snippet: snippet(body, words), path, tags, score, modified: modified.into_std() });
    }
    Ok(found)
}

/// The relevance of a note; `None` if a word is missing.
fn score(title: &str, body: &str, words: &[String]) -> Option<usize> {
    let (title, body) = (title.to_lowercase(), body.to_lowercase());
    words.iter().try_fold(0, |sum, word| {
        let hits = usize::from(title.contains(word.as_str())) * TITLE_WEIGHT
            + body.matches(word.as_str()).take(WORD_HITS_MAX).count();
        (hits > 0).then_some(sum + hits)
    })
}

/// The first line with one of the words, or else the first line.
fn snippet(body: &str, words: &[String]) -> String {
    let lines = || body.lines().filter(|l| !l.trim().is_empty());
    let hit = lines().find(|line| {
        let line = line.to_lowercase();
        words.iter().any(|w| line.contains(w.as_str()))
    });
    text::brief(hit.or_else(|| lines().next()).unwrap_or_default(), SNIPPET_BYTES_MAX)
}

fn summary(hits: &[Hit], total: usize, filters: &str) -> String {
    if hits.is_empty() {
        return format!("No notes found{filters}.");
    }
    let lines = hits.iter().map(|hit| {
        let tags = if hit.tags.is_empty() { String::new() } else { format!(" [{}]", hit.tags.join(", ")) };
        format!("- {}{tags}: {}", title_of(&hit.path), hit.snippet)
    });
    let lines: Vec<String> = lines.collect();
    let shown = if hits.len() < total { format!(" (the first {})", hits.len()) } else { String::new() };
    format!("Found {}{filters}{shown}:\n\n{}", text::count(total, "note", "notes"), lines.join("\n"))
}
