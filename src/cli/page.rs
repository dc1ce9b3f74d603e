//! What a list says below its rows: how many there are, and how to get the rest.

use annie_core::ports::Before;
use serde_json::Value;

use super::{args::PageArgs, client::encoded, failure::Failure, site::Site};
use crate::door::page;

/// The parameters of a page.
pub fn query(page: &PageArgs) -> String {
    parameters(page.limit, page.next.as_deref())
}

/// The parameters of a page that begins where an earlier one ended.
pub fn parameters(limit: u32, next: Option<&str>) -> String {
    let next = next.map(|next| format!("&next={}", encoded(next))).unwrap_or_default();
    format!("limit={limit}{next}")
}

/// Where a page begins whose rows are read in this process.
///
/// # Errors
/// If no list ended with that word.
pub fn before(page: &PageArgs) -> Result<Before, Failure> {
    Ok(page::before(page.next.as_deref())?)
}

/// Says below a page that it is not the whole list.
pub fn say_more(site: &Site, shown: usize, answer: &Value) {
    if let Some(more) = more(shown, answer) {
        site.console.say(&more);
    }
}

/// The line below a page; nothing if it is the whole list.
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
    fn page_that_is_not_the_whole_list_says_how_to_get_the_rest() {
        let told = more(20, &json!({"total": 30, "next": "17"})).expect("more");
        assert_eq!(told, "20 of 30: the rest with --next 17, or more at once with --limit");
        assert!(
            more(20, &json!({"next": "17"})).is_some_and(|told| told.starts_with("20 shown, and there may be more"))
        );
        assert_eq!(more(3, &json!({"total": 3})), None);
    }
}
