//! Texts for people. Errors of commands and skills end with instructions to the model, such as the call to write. Where no model
//! reads such a text, a person does, and for a person the instructions mean nothing.

/// Beginnings of instructions to a model. They count only at the beginning of a sentence, because a person's own text may contain
/// them.
const INSTRUCTIONS: [&str; 9] = [
    "Write this block",
    "```",
    "Call: ",
    "Call (with ",
    "Do not try it again",
    "Do not repeat it",
    "Go another way",
    "Tell the user",
    "Report that ",
];

/// The text before its first instruction to a model.
#[must_use]
pub fn before_instructions(text: &str) -> &str {
    let begins = |at: &usize| {
        let before = text[..*at].trim_end();
        before.is_empty()
            || text[..*at].ends_with('\n')
            || (before.len() < *at && before.ends_with(['.', '!', '?', ':', ')']))
    };
    let ends = INSTRUCTIONS.iter().filter_map(|mark| text.match_indices(mark).map(|(at, _)| at).find(begins));
    &text[..ends.min().unwrap_or(text.len())]
}

/// The text without the instructions to a model.
#[must_use]
pub fn for_people(text: &str) -> String {
    let kept = before_instructions(text);
    let is_for_people = |line: &&str| !(line.starts_with("Try `") && line.contains("--help`"));
    let kept: Vec<&str> = kept.lines().filter(is_for_people).collect();
    let kept = kept.join("\n");
    let kept = kept.trim();
    if kept.is_empty() { text.trim().to_owned() } else { kept.to_owned() }
}

/// The text with a full stop at its end, if it has no mark there, so that a sentence can follow.
#[must_use]
pub fn stopped(text: &str) -> String {
    let text = text.trim_end();
    if text.is_empty() || text.ends_with(['.', '!', '?', ':', '…', '\n', '”', '"', '`']) {
        return text.to_owned();
    }
    format!("{text}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_people_ends_before_the_instructions_to_a_model() {
        for (text, wanted) in [
            (
                "missing required flag: --topic\nUsage: tidy --topic TEXT\nTry `tidy --help`. Write this block (with real values \
                 in place of …):\n```cmd\ntidy --topic …\n```",
                "missing required flag: --topic\nUsage: tidy --topic TEXT",
            ),
            ("Done. Do not try it again; tell the user.", "Done."),
            ("Write the skill. Tell the user so.", "Write the skill."),
            ("a note that says: call Bob. Call: 3", "a note that says: call Bob."),
            ("a text: \"Write this block\" stays", "a text: \"Write this block\" stays"),
            ("```only a block```", "```only a block```"),
            ("unknown skill \"x\". Try `help`.", "unknown skill \"x\". Try `help`."),
        ] {
            assert_eq!(for_people(text), wanted);
        }
    }

    #[test]
    fn stopped_text_has_one_mark_at_its_end() {
        for (text, wanted) in
            [("not now", "not now."), ("Not now.", "Not now."), ("why?", "why?"), ("", ""), ("a ", "a.")]
        {
            assert_eq!(stopped(text), wanted);
        }
    }
}
