//! The name of a backend before a request: "Claude, check the repository" [S3 10.7]. Such a name takes effect in every mode,
//! so an ordinary sentence must not match: the name comes first, directly followed by a comma or a colon.

use super::facts::BackendFacts;

/// The backend that the text calls by name, and the text without the name.
pub(super) fn called<'f, 't>(text: &'t str, facts: &'f [BackendFacts]) -> Option<(&'f BackendFacts, &'t str)> {
    let names = facts.iter().flat_map(|f| f.called.iter().map(move |name| (f, name)));
    // "claude" and "claude code" can both match only if each is followed by the comma, so the order of the names does not
    // matter.
    names.into_iter().find_map(|(f, name)| without(text, name).map(|rest| (f, rest)))
}

/// The text after this name and its comma or colon, if the text begins with it and is not empty afterwards.
fn without<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let text = text.trim_start();
    let mut rest = text.strip_prefix('@').unwrap_or(text).chars();
    for wanted in name.chars() {
        let actual = rest.next()?;
        if actual != wanted && !actual.to_lowercase().eq(wanted.to_lowercase()) {
            return None;
        }
    }
    let rest = rest.as_str().trim_start_matches(' ');
    let after = match rest.strip_prefix([',', '，', '、', '：']) {
        Some(after) => after,
        // "name://…" and "name:8080" are addresses.
        None => rest.strip_prefix(':').filter(|r| !r.starts_with(|c: char| "/:".contains(c) || c.is_ascii_digit()))?,
    };
    Some(after.trim()).filter(|after| !after.is_empty())
}
