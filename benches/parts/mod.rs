//! Which part of a benchmark is wanted.

/// The part that `--only` names, nothing if all are wanted; or why there is no such part.
pub fn only(arguments: &[String], parts: &[&'static str]) -> Result<Option<&'static str>, String> {
    let Some(at) = arguments.iter().position(|a| a == "--only") else { return Ok(None) };
    let named = arguments.get(at + 1).map_or("", String::as_str);
    let found = parts.iter().find(|part| **part == named);
    found.copied().map(Some).ok_or_else(|| format!("--only {named}: there are {}", parts.join(", ")))
}
