//! The replies of the API as text: a list as a table, an object as lines. Which property is in which column is data, and the
//! route of a list follows from the table of operations.

use serde_json::Value;

use super::{
    console::tame,
    failure::Failure,
    page,
    short_ids::shorten,
    site::Site,
    tables::{fitted, relative},
};
use crate::{ops, system};

/// A list of the API.
pub struct Listing {
    /// The command, by which the table of operations knows the route.
    pub command: &'static str,
    /// The property of the reply that contains the rows.
    pub rows: &'static str,
    /// The heading of each column, and its property in a row.
    pub columns: &'static [(&'static str, &'static str)],
}

impl Listing {
    /// The route of the list.
    pub fn path(&self) -> &'static str {
        ops::path_of(self.command)
    }

    /// Prints a reply: as it is with `--json`, else as a table with a line about further pages, or `empty`.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn print(&self, site: &Site, answer: &Value, empty: &str) -> Result<(), Failure> {
        self.print_with(site, answer, empty, |_, _| None)
    }

    /// Like [`Self::print`], with the text of some cells from `cell`, which is asked with the row and the property.
    ///
    /// # Errors
    /// As [`Self::print`].
    pub fn print_with(
        &self,
        site: &Site,
        answer: &Value,
        empty: &str,
        cell: impl Fn(&Value, &str) -> Option<String>,
    ) -> Result<(), Failure> {
        if site.console.is_json() {
            return site.console.json(answer);
        }
        let rows: Vec<&Value> = answer[self.rows].as_array().into_iter().flatten().collect();
        if rows.is_empty() {
            site.console.say(empty);
            return Ok(());
        }
        // People read how long ago something was, programs the time.
        let now = site.console.columns().map(|_| system::env().now());
        let time = |value: &Value| relative(value.as_str()?, now?);
        let text =
            |row: &Value, key: &str| cell(row, key).or_else(|| time(&row[key])).unwrap_or_else(|| plain(&row[key]));
        let mut columns: Vec<Vec<String>> =
            self.columns.iter().map(|(_, key)| rows.iter().map(|row| text(row, key)).collect()).collect();
        if site.console.columns().is_some() {
            columns.iter_mut().for_each(|column| shorten(column));
        }
        let cells = (0..rows.len()).map(|n| columns.iter().filter_map(|column| column.get(n).cloned()).collect());
        let headings: Vec<&str> = self.columns.iter().map(|(heading, _)| *heading).collect();
        site.console.line(&fitted(site.console.columns(), &headings, cells.collect()))?;
        page::say_more(site, rows.len(), answer);
        Ok(())
    }
}

/// A value as text; empty if it is absent.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The texts of an object, a line each, in this order.
pub fn lines(object: &Value, keys: &[&str]) -> Vec<String> {
    let line = |key: &&str| object[*key].as_str().map(|text| format!("{key:<16} {}", tame(text)));
    keys.iter().filter_map(line).collect()
}

/// Prints an object: as it is with `--json`, else the texts with these keys, a line each.
///
/// # Errors
/// If stdout cannot be written.
pub fn print_object(site: &Site, object: &Value, keys: &[&str]) -> Result<(), Failure> {
    if site.console.is_json() { site.console.json(object) } else { site.console.line(&lines(object, keys).join("\n")) }
}

/// Prints what a command did, and the object as it is now; with `--json` only the object.
///
/// # Errors
/// If stdout cannot be written.
pub fn print_change(site: &Site, done: &str, object: &Value, keys: &[&str]) -> Result<(), Failure> {
    if !site.console.is_json() {
        site.console.line(done)?;
    }
    print_object(site, object, keys)
}

#[cfg(test)]
mod tests {
    use annie_testkit::openapi::properties;
    use serde_json::json;

    use super::*;
    use crate::{
        cli::{
            actors, agents, approvals, breakers, config, conversations, cron, data, dlq, events, has_command, jobs,
            mcp, operations, orders, reminders, tasks, usage,
        },
        http::document,
    };

    #[test]
    fn commands_of_the_table_of_operations_exist() {
        let missing: Vec<&str> = ops::commands().filter(|command| !has_command(command)).collect();
        assert!(missing.is_empty(), "there are no commands {missing:?}");
        assert!(ops::commands().count() > 20, "the table names {} commands", ops::commands().count());
    }

    #[test]
    fn listing_columns_are_properties_of_the_reply() {
        let document = document();
        let listings = [
            &actors::CRASHES,
            &actors::TREE,
            &agents::LIST,
            &approvals::LIST,
            &breakers::LIST,
            &config::LIST,
            &conversations::LIST,
            &conversations::FOUND,
            &conversations::TRASH,
            &cron::LIST,
            &data::LIST,
            &dlq::LIST,
            &events::LIST,
            &jobs::LIST,
            &mcp::LIST,
            &operations::LIST,
            &orders::ACTIONS,
            &orders::ORDERS,
            &reminders::LIST,
            &tasks::LIST,
            &usage::LIST,
        ];
        for listing in listings {
            let reply = &document["paths"][listing.path()]["get"]["responses"]["200"]["content"]["application/json"];
            let list = properties(&document, &reply["schema"]).remove(listing.rows);
            let list = list.unwrap_or_else(|| panic!("{}: no property {}", listing.command, listing.rows));
            let row = properties(&document, &list["items"]);
            let is_known = |key: &str| row.is_empty() || row.contains_key(key);
            let unknown: Vec<_> = listing.columns.iter().filter(|(_, key)| !is_known(key)).collect();
            assert_eq!(unknown, Vec::<&(&str, &str)>::new(), "{}", listing.command);
        }
    }

    #[test]
    fn object_lines_contain_its_texts_in_the_given_order() {
        let object = json!({"id": "x", "title": "a\u{1b}b", "number": 1});
        assert_eq!(
            lines(&object, &["title", "missing", "id", "number"]),
            ["title            a\u{fffd}b", "id               x"]
        );
        assert_eq!((plain(&json!(3)), plain(&Value::Null), plain(&json!("a"))), ("3".into(), "".into(), "a".into()));
    }
}
