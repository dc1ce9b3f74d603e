//! Paging of lists: query parameters, and the line below a list with the number of rows and the cursor of the next page.

use annie_core::ports::Before;
use serde_json::Value;

use super::{args::PageArgs, client::encoded, failure::Failure, site::Site};
use crate::api::page;

/// The query parameters of a page.
pub fn query(page: &PageArgs) -> String {
    parameters(page.limit, page.next.as_deref())
}

/// The query parameters of a page with a limit and the cursor of an earlier page.
pub fn parameters(limit: u32, next: Option<&str>) -> String {
    let next = next.map(|next| format!("&next={}", encoded(next))).unwrap_or_default();
    format!("limit={limit}{next}")
}

/// The start of a page whose rows are read in this process.
///
/// # Errors
/// If the cursor is not valid.
pub fn before(page: &PageArgs) -> Result<Before, Failure> {
    Ok(page::before(page.next.as_deref())?)
}

/// Prints a line below a page if the list has more rows.
pub fn say_more(site: &Site, shown: usize, answer: &Value) {
    if let Some(more) = more(shown, answer) {
        site.console.say(&more);
    }
}

/// The line below a page; nothing if the page is the whole list.
fn more(shown: usize, answer: &Value) -> Option<String> {
    let next = answer["next"].as_str()?;
    let total = answer["total"].as_u64();
    let of =
        total.map_or_else(|| format!("{shown} shown, and there may be more"), |total| format!("{shown} of {total}"));
    Some(format!("{of}: the rest with --next {next}, or more at once with --limit"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn partial_page_shows_how_to_get_the_rest() {
        let line = more(20, &json!({"total": 30, "next": "17"})).expect("more");
        assert_eq!(line, "20 of 30: the rest with --next 17, or more at once with --limit");
        assert!(
            more(20, &json!({"next": "17"})).is_some_and(|line| line.starts_with("20 shown, and there may be more"))
        );
        assert_eq!(more(3, &json!({"total": 3})), None);
    }
}
