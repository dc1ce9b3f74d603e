//! Limits of lengths. Aim at 150 to 300 lines a file. A file at the limit should be split in two.

use super::{
    lexer::functions,
    tree::{all_well, sources},
};

/// Most lines of code in a file. Comments, blank lines and tests are not counted.
const FILE_LINES_MAX: usize = 500;
/// Most lines of code in a function.
const FUNCTION_LINES_MAX: usize = 70;
/// Most lines of tests within a file. Longer tests are in a file of their own.
const TEST_LINES_MAX: usize = 130;
/// Exceptions, each with its present length and its reason. A length here may only fall.
const RATCHET: &[(&str, usize, &str)] = &[];

fn lines(code: &str) -> usize {
    code.lines().filter(|l| !l.trim().is_empty()).count()
}

/// Checks against the limit, or against the exception.
fn check(what: String, len: usize, max: usize, wrong: &mut Vec<String>) {
    let allowed = RATCHET.iter().find(|(known, ..)| *known == what).map_or(max, |(_, len, _)| *len);
    if len > allowed {
        wrong.push(format!("{what} has {len} lines of code, {allowed} are allowed"));
    }
}

#[test]
fn files_have_at_most_five_hundred_lines_of_code() {
    let mut wrong = Vec::new();
    for source in sources() {
        check(source.path.clone(), lines(&source.shipped()), FILE_LINES_MAX, &mut wrong);
    }
    all_well("split these by what they are about", &wrong);
}

#[test]
fn functions_have_at_most_seventy_lines_of_code() {
    let mut wrong = Vec::new();
    for source in sources() {
        for function in functions(&source.code) {
            let len = lines(&source.code[function.body.clone()]);
            check(format!("{}::{}", source.path, function.name), len, FUNCTION_LINES_MAX, &mut wrong);
        }
    }
    all_well("split these into named steps", &wrong);
}

#[test]
fn long_tests_have_a_file_of_their_own() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| !s.is_for_tests()) {
        let len = lines(&source.code) - lines(&source.shipped());
        check(format!("tests in {}", source.path), len, TEST_LINES_MAX, &mut wrong);
    }
    all_well("move these tests into tests.rs", &wrong);
}

#[test]
fn ratchet_of_exceptions_only_falls() {
    let mut wrong = Vec::new();
    for (what, allowed, reason) in RATCHET {
        let (path, name) = what.split_once("::").unwrap_or((what, ""));
        let path = path.strip_prefix("tests in ").unwrap_or(path);
        let Some(source) = sources().iter().find(|s| s.path == path) else {
            wrong.push(format!("{what} is gone: remove its line"));
            continue;
        };
        let found = functions(&source.code).into_iter().find(|f| f.name == name);
        let len = match found {
            Some(function) => lines(&source.code[function.body]),
            None if what.starts_with("tests in ") => lines(&source.code) - lines(&source.shipped()),
            None => lines(&source.shipped()),
        };
        if len < *allowed {
            wrong.push(format!("{what} has only {len} lines now ({reason}): lower its number"));
        }
    }
    all_well("the ratchet of tests/tidy/sizes.rs", &wrong);
}
