//! Short ids: the beginning of an id, such as `task_0198f2a1b3c4`, wherever a command takes the whole one. Only arguments that the
//! parser rejected as an id are completed, so that a message with such a word is left as it is.

use std::{collections::BTreeSet, ffi::OsString};

use super::{
    args::{Cli, PageArgs, parsed},
    conversations,
    failure::{Exit, Failure},
    operations, page,
    site::Site,
    tasks,
};
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The digits of a whole id.
const DIGITS: usize = 32;
/// The fewest digits of a short one.
const DIGITS_MIN: usize = 6;
/// The fewest digits that are shown: they are the time in milliseconds at which the id was made.
const DIGITS_SHOWN_MIN: usize = 12;
const KINDS: [&str; 3] = ["task_", "conv_", "op_"];
/// How many entries are read at a time, and at most how often.
const PAGE: u32 = 500;
const PAGES_MAX: usize = 40;
/// Maximum number of candidates that an error names.
const CANDIDATES_MAX: usize = 5;

/// A short id in the arguments, at this place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortId {
    at: usize,
    start: String,
}

/// Parses arguments. Short ids are replaced by whole ones that do not exist, and returned.
///
/// # Errors
/// As the parser.
pub fn parse(args: &[OsString]) -> Result<(Cli, Vec<ShortId>), clap::Error> {
    let mut args = args.to_vec();
    let mut found: Vec<ShortId> = Vec::new();
    loop {
        let error = match parsed(&args) {
            Ok(cli) => return Ok((cli, found)),
            Err(error) => error,
        };
        let Some(short) = rejected(&error).and_then(|start| place(&args, &start)) else { return Err(error) };
        replace(&mut args, &short, &format!("{:0<1$}", short.start, kind(&short.start).map_or(0, str::len) + DIGITS));
        found.push(short);
    }
}

/// The value that the parser rejected, if it is a short id.
fn rejected(error: &clap::Error) -> Option<String> {
    match (error.kind(), error.get(ContextKind::InvalidValue)) {
        (ErrorKind::ValueValidation, Some(ContextValue::String(value))) if is_short(value) => Some(value.clone()),
        _ => None,
    }
}

fn kind(text: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| text.starts_with(kind))
}

fn is_short(text: &str) -> bool {
    let digits = kind(text).and_then(|kind| text.strip_prefix(kind));
    digits.is_some_and(|digits| {
        (DIGITS_MIN..DIGITS).contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// The first argument that is this value, or a flag with it.
fn place(args: &[OsString], start: &str) -> Option<ShortId> {
    let is_it = |arg: &OsString| arg.to_str().is_some_and(|arg| arg == start || arg.ends_with(&format!("={start}")));
    args.iter().position(is_it).map(|at| ShortId { at, start: start.to_owned() })
}

fn replace(args: &mut [OsString], short: &ShortId, whole: &str) {
    if let Some(arg) = args.get_mut(short.at)
        && let Some(text) = arg.to_str()
        && let Some(before) = text.strip_suffix(short.start.as_str())
    {
        *arg = format!("{before}{whole}").into();
    }
}

/// Parses arguments again, with the whole ids.
///
/// # Errors
/// If no id or several ids begin so, or they cannot be listed.
pub async fn completed(site: &Site, args: &[OsString], found: &[ShortId]) -> Result<Cli, Failure> {
    let mut args = args.to_vec();
    for short in found {
        let whole = chosen(&short.start, &ids(site, &short.start).await?)?;
        replace(&mut args, short, &whole);
    }
    parsed(&args).map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}

/// All ids that begin so.
async fn ids(site: &Site, start: &str) -> Result<BTreeSet<String>, Failure> {
    let mut page = PageArgs { limit: PAGE, next: None };
    let mut ids = BTreeSet::new();
    for _ in 0..PAGES_MAX {
        let (answer, rows) = match kind(start) {
            Some("task_") => (tasks::listed(site, false, &page).await?, tasks::LIST.rows),
            Some("conv_") => (conversations::listed(site, &page, true).await?, conversations::LIST.rows),
            _ => {
                let path = format!("{}?open=false&{}", operations::LIST.path(), page::query(&page));
                (site.running().await?.get(&path).await?, operations::LIST.rows)
            }
        };
        let rows = answer[rows].as_array().into_iter().flatten();
        ids.extend(rows.filter_map(|row| row["id"].as_str()).filter(|id| id.starts_with(start)).map(str::to_owned));
        page.next = answer["next"].as_str().map(str::to_owned);
        if page.next.is_none() {
            break;
        }
    }
    Ok(ids)
}

/// The only id that begins so.
fn chosen(start: &str, ids: &BTreeSet<String>) -> Result<String, Failure> {
    let mut all = ids.iter();
    match (all.next(), all.next()) {
        (Some(id), None) => Ok(id.clone()),
        (Some(_), Some(_)) => {
            let named: Vec<&str> = ids.iter().take(CANDIDATES_MAX).map(String::as_str).collect();
            let more = if ids.len() > CANDIDATES_MAX { ", and more" } else { "" };
            let what = format!("{} ids begin with {start}: {}{more}", ids.len(), named.join(", "));
            Err(Failure::new(Exit::Usage, what).fix("write more of the id"))
        }
        (None, _) => {
            Err(Failure::new(Exit::NotFound, format!("no id begins with {start}"))
                .fix("write the id as the list shows it"))
        }
    }
}

/// Shortens the ids of a column, so that they remain different from each other.
pub fn shorten(cells: &mut [String]) {
    let ids: BTreeSet<String> = cells.iter().filter(|cell| is_whole(cell)).cloned().collect();
    let sorted: Vec<&String> = ids.iter().collect();
    let common = |pair: &[&String]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count() + 1;
    let different = sorted.windows(2).map(common).max().unwrap_or(0);
    for cell in cells.iter_mut().filter(|cell| is_whole(cell)) {
        let least = kind(cell).map_or(0, str::len) + DIGITS_SHOWN_MIN;
        cell.truncate(different.max(least));
    }
}

fn is_whole(text: &str) -> bool {
    let digits = kind(text).and_then(|kind| text.strip_prefix(kind));
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Whether a cell is an id, whole or short.
pub fn is_id(text: &str) -> bool {
    is_short(text) || is_whole(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Vec<ShortId>, clap::Error> {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        parse(&args).map(|(_, found)| found)
    }

    #[test]
    fn short_ids_are_found_where_ids_belong_and_nowhere_else() {
        let short = |at, start: &str| ShortId { at, start: start.to_owned() };
        assert_eq!(parsed("annie tasks show task_0198ab").unwrap(), [short(3, "task_0198ab")]);
        assert_eq!(parsed("annie jobs cancel task_0198ab").unwrap(), [short(3, "task_0198ab")]);
        let two = parsed("annie ask --after task_0198ab --after=task_0198cd hi").unwrap();
        assert_eq!(two, [short(3, "task_0198ab"), short(4, "task_0198cd")]);
        assert_eq!(parsed("annie ask -c conv_0198ab hi").unwrap(), [short(3, "conv_0198ab")]);
        assert_eq!(parsed("annie ask what is task_0198ab").unwrap(), []);
        assert!(parsed("annie tasks show task_0198a").is_err(), "too short");
        assert!(parsed("annie tasks show conv_0198ab").is_err(), "of another kind");
        assert!(parsed("annie tasks show task_0198xy").is_err(), "no digits");
    }

    #[test]
    fn ambiguous_id_names_the_candidates() {
        let ids = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(chosen("task_a", &ids(&["task_ab"])), Ok("task_ab".to_owned()));
        let several = chosen("task_a", &ids(&["task_ab", "task_ac"])).unwrap_err();
        assert_eq!(several.exit, Exit::Usage);
        assert!(several.what.contains("task_ab, task_ac"), "{several}");
        assert_eq!(chosen("task_a", &ids(&[])).unwrap_err().exit, Exit::NotFound);
    }

    #[test]
    fn shown_ids_are_short_and_different() {
        let mut cells = ["task_01980000000070008000000000000000", "task_01980000000070009000000000000000", "", "x"]
            .map(str::to_owned);
        shorten(&mut cells);
        assert_eq!(cells, ["task_01980000000070008", "task_01980000000070009", "", "x"]);
        let mut one = ["conv_01980000000070008000000000000000".to_owned()];
        shorten(&mut one);
        assert_eq!(one, ["conv_019800000000"]);
        assert!(is_id(&one[0]));
    }
}
