//! The names of skills. A server chooses the names of its tools, so they are mapped to valid ones. Two tools whose names map to
//! the same one both get a part of a hash, so that a new tool never takes the name of another.

use std::collections::BTreeMap;

use annie_core::skill::SkillSpec;
use sha2::{Digest, Sha256};

/// The domain of all tools, the first part of their names.
pub(crate) const DOMAIN: &str = "mcp";
/// Length limit of a skill's name, in bytes: that of `valid_skill_name`.
const NAME_BYTES_MAX: usize = 64;
/// Digits of the hash that makes a name unique.
const HASH_DIGITS: usize = 8;

/// The name of the skill of each tool, in the order of the tools.
pub(crate) fn skill_names(server: &str, tools: &[&str]) -> Vec<String> {
    let plain: Vec<String> = tools.iter().map(|tool| safe(tool)).collect();
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for name in &plain {
        *count.entry(SkillSpec::key(name)).or_default() += 1;
    }
    let bytes_max = NAME_BYTES_MAX - DOMAIN.len() - server.len() - 2;
    let named = tools.iter().zip(&plain).map(|(tool, name)| {
        let is_unique = count.get(&SkillSpec::key(name)) == Some(&1) && name.len() <= bytes_max;
        let name = if is_unique { name.clone() } else { hashed(tool, name, bytes_max) };
        format!("{DOMAIN}.{server}.{name}")
    });
    named.collect()
}

/// Lower-case letters, digits, `-` and `_`, beginning with a letter or a digit: `getSum` becomes `get_sum`.
fn safe(tool: &str) -> String {
    let mut name = String::with_capacity(tool.len() + 4);
    let mut was_small = false;
    for c in tool.chars() {
        if c.is_ascii_uppercase() && was_small {
            name.push('_');
        }
        was_small = c.is_ascii_lowercase() || c.is_ascii_digit();
        name.push(if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' });
    }
    let name = name.trim_start_matches(['-', '_']).trim_end_matches(['-', '_']);
    if name.is_empty() { "tool".to_owned() } else { name.to_owned() }
}

fn hashed(tool: &str, name: &str, bytes_max: usize) -> String {
    let hash = hex(&Sha256::digest(tool.as_bytes()));
    // A safe name is ASCII.
    let kept = name.len().min(bytes_max - HASH_DIGITS - 1);
    format!("{}_{}", name.get(..kept).unwrap_or_default(), hash.get(..HASH_DIGITS).unwrap_or_default())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use annie_core::skill::valid_skill_name;

    use super::*;

    #[test]
    fn name_of_a_tool_becomes_a_valid_name_of_a_skill() {
        let tools = ["echo", "getSum", "files/read.text", "__init__", "GET-URL2", "čeština"];
        let names = skill_names("fake", &tools);
        let wanted = ["echo", "get_sum", "files_read_text", "init", "get-url2", "e_tina"];
        assert_eq!(names, wanted.map(|name| format!("mcp.fake.{name}")));
        let long = "x".repeat(300);
        for name in names.into_iter().chain(skill_names("twenty_bytes_of_name", &[long.as_str(), "", "日本"])) {
            assert!(valid_skill_name(&name), "{name}");
        }
    }

    #[test]
    fn tools_whose_names_become_equal_get_names_that_depend_on_no_other_tool() {
        let alone = skill_names("fake", &["get_sum"]);
        let both = skill_names("fake", &["getSum", "get_sum", "echo"]);
        assert_eq!((alone[0].as_str(), both[2].as_str()), ("mcp.fake.get_sum", "mcp.fake.echo"));
        assert!(both[..2].iter().all(|name| name.starts_with("mcp.fake.get_sum_")) && both[0] != both[1], "{both:?}");
        assert_eq!(skill_names("fake", &["get_sum", "getSum"])[1], both[0]);
    }
}
