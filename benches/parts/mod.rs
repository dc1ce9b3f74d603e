//! Selects a part of a benchmark by `--only`.

/// The part that `--only` names; `None` if all parts run. An unknown part is an error.
pub fn only(arguments: &[String], parts: &[&'static str]) -> Result<Option<&'static str>, String> {
    let Some(at) = arguments.iter().position(|a| a == "--only") else { return Ok(None) };
    let named = arguments.get(at + 1).map_or("", String::as_str);
    let found = parts.iter().find(|part| **part == named);
    found.copied().map(Some).ok_or_else(|| format!("--only {named}: there are {}", parts.join(", ")))
}
