//! What the planner says to people: results put together, failures told as they are, and plainly that it is no language
//! model.

use super::{
    catalog::Catalog,
    text::{Text, shortened},
};

/// What the planner is, in one sentence.
pub(super) const WHO: &str = "I am Annie's offline planner, not a language model";
/// The heading of what is left, by which a later `continue` finds it.
pub(super) const LEFT: &str = "Not done yet:";
/// The most characters of a clause that an answer repeats.
const CLAUSE_CHARS_MAX: usize = 200;

/// What came of one wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// The wish.
    pub wish: String,
    /// Whether it was carried out.
    pub ok: bool,
    /// The result, or why not.
    pub text: String,
}

/// Whether a result is a failure, by the words with which the kernel begins one.
pub(super) fn is_failure(result: &str) -> bool {
    ["[error_", "[unknown]", "[not run]", "[blocked]", "Error:"].iter().any(|start| result.starts_with(start))
}

/// A failure without its tag and its machine words.
pub(super) fn reason(result: &str) -> String {
    let unknown = result.starts_with("[unknown]");
    let text = result.strip_prefix('[').and_then(|r| r.split_once(']')).map_or(result, |(_, rest)| rest);
    let text = text.trim().trim_start_matches("Error:").trim();
    let told: Vec<&str> = text
        .lines()
        .take_while(|line| {
            !["Error type:", "Usage:", "Try `", "Detail:", "Already tried:", "Next:"]
                .iter()
                .any(|m| line.starts_with(m))
        })
        .filter(|line| !line.starts_with("Suggested alternatives:"))
        .collect();
    let told = told.join("\n").trim().to_owned();
    let told = if told.is_empty() { text.to_owned() } else { told };
    if unknown { format!("it is not known whether it happened ({told})") } else { told }
}

/// One report as text.
fn told(report: &Report) -> String {
    if report.ok {
        return first_person(&report.text);
    }
    format!(
        "I could not do this: “{}”. The reason: {}",
        shortened(report.wish.trim(), CLAUSE_CHARS_MAX),
        stopped(&report.text)
    )
}

/// `Created task #3 …` as somebody who did it says it.
fn first_person(text: &str) -> String {
    const DID: [&str; 9] =
        ["Created", "Updated", "Deleted", "Appended", "Prepended", "Replaced", "Sent", "Added", "Removed"];
    if let Some(rest) = text.strip_prefix("Saved: ") {
        return format!("I will remember: {}", stopped(rest));
    }
    let first = text.split(' ').next().unwrap_or_default();
    if DID.contains(&first) && !text.contains('\n') {
        return format!("I {}{}", first.to_lowercase(), stopped(&text[first.len()..]));
    }
    text.to_owned()
}

/// With a stop at its end.
fn stopped(text: &str) -> String {
    let text = text.trim_end();
    let ends = text.ends_with(['.', '!', '?', ':', '…', ')']) && !text.ends_with("…)");
    if ends || text.is_empty() || text.contains('\n') { text.to_owned() } else { format!("{text}.") }
}

/// The answer for all reports, what was not understood, and what is left.
pub(super) fn compose(reports: &[Report], puzzling: &[String], left: &[String], catalog: &Catalog) -> String {
    let mut answer = String::new();
    let mut before_is_block = false;
    for text in reports.iter().map(told) {
        let is_block = text.contains('\n');
        if !answer.is_empty() {
            answer.push_str(if is_block || before_is_block { "\n\n" } else { "\n" });
        }
        answer.push_str(&text);
        before_is_block = is_block;
    }
    let mut add = |text: String| {
        if !answer.is_empty() {
            answer.push_str("\n\n");
        }
        answer.push_str(&text);
    };
    if !puzzling.is_empty() {
        let quoted: Vec<String> =
            puzzling.iter().map(|p| format!("“{}”", shortened(p.trim(), CLAUSE_CHARS_MAX))).collect();
        add(format!("I found no skill for {}. {}", quoted.join(" or "), who_and_what(catalog)));
    }
    if !left.is_empty() {
        let lines: Vec<String> = left.iter().map(|l| format!("- {}", l.replace('\n', " "))).collect();
        add(format!("{LEFT}\n{}\n\nSay “continue” and I will go on.", lines.join("\n")));
    }
    answer
}

/// The wishes that an earlier answer left over.
pub(super) fn left_over(answer: &str) -> Vec<String> {
    let Some((_, list)) = answer.split_once(LEFT) else { return Vec::new() };
    list.trim_start().lines().map_while(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
}

/// What the planner is, what it can do, and what would do more.
pub(super) fn who_and_what(catalog: &Catalog) -> String {
    let skills = catalog.summary();
    let can = if skills.is_empty() {
        "there are no skills that I could use here".to_owned()
    } else {
        format!("I can carry out requests with these skills: {skills}")
    };
    format!(
        "{WHO}: {can}. For conversation, configure a model: `annie config init` writes a commented file, and a `[[backend]]` in it can name any OpenAI-compatible server."
    )
}

/// An answer to a prompt skill that the user invoked: its steps are written for a model.
pub(super) fn instructions(skill: &str, catalog: &Catalog) -> String {
    format!("“{skill}” is a set of instructions that only a language model can follow. {}", who_and_what(catalog))
}

/// An answer to what is no request: a greeting, thanks, a question.
pub(super) fn small_talk(said: &str, context: Option<&str>, catalog: &Catalog) -> String {
    let text = Text::new(said);
    let first: Vec<&str> = text.words.iter().take(6).map(|w| w.lower.as_str()).collect();
    let who = who_and_what(catalog);
    match first.as_slice() {
        [] => format!("Your message has no words in it. {who}"),
        ["hi" | "hello" | "hey" | "hallo" | "greetings" | "yo", ..]
        | ["good", "morning" | "evening" | "afternoon" | "day", ..] => {
            format!("Hello! {who}")
        }
        ["thanks" | "thx" | "cheers", ..] | ["thank", "you", ..] => format!("You are welcome. ({WHO}.)"),
        ["bye" | "goodbye", ..] | ["good", "night" | "bye", ..] | ["see", "you", ..] => format!("Goodbye! ({WHO}.)"),
        ["continue" | "proceed" | "resume", ..] | ["go", "on" | "ahead"] => {
            format!("There is nothing left to go on with. {who}")
        }
        _ => match known(said, context) {
            Some(lines) => format!("What I have in memory about that:\n\n{lines}\n\n{who}"),
            None => who,
        },
    }
}

/// Lines of the remembered context that share a telling word with the question.
fn known(said: &str, context: Option<&str>) -> Option<String> {
    const LINES_MAX: usize = 5;
    const WORDS_MAX: usize = 40;
    let (_, memories) = context?.split_once("Relevant memories:")?;
    let text = Text::new(said);
    let words: Vec<&str> =
        text.words.iter().take(WORDS_MAX).map(|w| w.lower.as_str()).filter(|w| w.len() > 2).collect();
    let common = [
        "what", "when", "where", "which", "does", "have", "with", "about", "that", "this", "know", "tell", "the",
        "and", "for", "are", "you", "who", "why", "how", "can", "did", "was", "has",
    ];
    let lines: Vec<&str> = memories
        .lines()
        .filter(|line| line.starts_with("- "))
        .filter(|line| {
            let lower = line.to_lowercase();
            words.iter().any(|w| !common.contains(w) && lower.contains(w.trim_end_matches("'s")))
        })
        .take(LINES_MAX)
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::catalog, *};

    fn report(ok: bool, text: &str) -> Report {
        Report { wish: "delete task 9".into(), ok, text: text.into() }
    }

    #[test]
    fn results_are_told_as_by_the_one_who_did_it() {
        let answer = compose(
            &[
                report(true, "Created task #1 Review PR 42, due 2026-11-22 (tomorrow), priority medium"),
                report(true, "Saved: Bob prefers email"),
                report(true, "Found 1 open task:\n\n- #1 Review PR 42"),
            ],
            &[],
            &[],
            &catalog(),
        );
        assert_eq!(
            answer,
            "I created task #1 Review PR 42, due 2026-11-22 (tomorrow), priority medium.\nI will remember: Bob prefers \
             email.\n\nFound 1 open task:\n\n- #1 Review PR 42"
        );
    }

    #[test]
    fn a_failure_is_told_with_its_reason_and_without_machine_words() {
        let failed =
            "[error_permanent] There is no task #9.\nError type: not_found\nSuggested alternatives: tasks.search";
        assert!(is_failure(failed) && is_failure("Error: nothing") && !is_failure("[partial] half"));
        assert_eq!(reason(failed), "There is no task #9.");
        assert_eq!(
            reason("[unknown] The mail may be out."),
            "it is not known whether it happened (The mail may be out.)"
        );
        assert_eq!(reason("Error: missing required flag: --x\nUsage: a.b --x TEXT"), "missing required flag: --x");
        let answer = compose(&[report(false, &reason(failed))], &[], &[], &catalog());
        assert_eq!(answer, "I could not do this: “delete task 9”. The reason: There is no task #9.");
    }

    #[test]
    fn what_is_left_can_be_found_again() {
        let answer = compose(
            &[report(true, "ok")],
            &["dance".into()],
            &["add a task: a".into(), "what is due".into()],
            &catalog(),
        );
        assert!(answer.contains("no skill for “dance”") && answer.contains(WHO));
        assert_eq!(left_over(&answer), ["add a task: a", "what is due"]);
        assert!(left_over("nothing").is_empty());
    }

    #[test]
    fn small_talk_says_what_it_is() {
        for said in
            ["hello there", "how are you?", "What is the capital of France?", "continue", "", "bye", "thank you!"]
        {
            assert!(small_talk(said, None, &catalog()).contains(WHO), "{said}");
        }
        let context = "[Context]\nLocal time: x\nRelevant memories:\n- Bob prefers email (preference)\n- Tea is green\n[/Context]";
        let told = small_talk("Does Bob mind calls?", Some(context), &catalog());
        assert!(told.contains("- Bob prefers email") && !told.contains("Tea is green"), "{told}");
    }
}
