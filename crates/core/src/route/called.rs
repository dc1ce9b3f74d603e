//! The name before a request: "Claude, check the repository" [S3 10.7]. It is an order in every mode, so an ordinary
//! sentence must not look like one: the name comes first, and a comma or a colon right after it.

use super::facts::BackendFacts;

/// The backend that the text calls by name, and the text without that.
pub(super) fn called<'f, 't>(text: &'t str, facts: &'f [BackendFacts]) -> Option<(&'f BackendFacts, &'t str)> {
    let names = facts.iter().flat_map(|f| f.called.iter().map(move |name| (f, name)));
    // Of "claude" and "claude code" both may stand there only if one of them is followed by the comma, so the order of
    // the names does not matter.
    names.into_iter().find_map(|(f, name)| without(text, name).map(|rest| (f, rest)))
}

/// The text after this name and its comma or colon, if it begins so and says something.
fn without<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let text = text.trim_start();
    let mut rest = text.strip_prefix('@').unwrap_or(text).chars();
    for wanted in name.chars() {
        let said = rest.next()?;
        if said != wanted && !said.to_lowercase().eq(wanted.to_lowercase()) {
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
