//! The planner's answers to people: the combined results, the failures with their reasons, and the statement that the
//! planner is not a language model.

use annie_core::{context::framed, people::before_instructions};

use super::{
    catalog::{Catalog, Skill},
    choose::ASK_FIRST,
    fallback,
    refer::{self, SHALL_I},
    text::{Text, shortened},
};

/// What the planner is, in one sentence.
pub(super) const IDENTITY: &str = "I am Annie's offline planner, not a language model";
/// The heading of the remaining requests, by which a later `continue` finds them.
pub(super) const LEFT: &str = "Not done yet:";
/// Begins the report on a request, or on a part of one, that was not carried out.
pub(super) const NOT_DONE: &str = "Not done: ";
/// Begins the report on a request that may have been carried out.
pub(super) const UNCLEAR: &str = "I do not know whether this was done: ";
/// Begins the reason of such a request.
const NOT_KNOWN: &str = "it is not known whether it happened";
/// What the kernel says of a call that broke off.
const MAY_HAVE_HAPPENED: &str = "may or may not have happened";
/// Reported for a value that the skill refused and that was left out.
pub(super) const REFUSED: &str = ", which was refused)";
/// Ends an answer that leaves requests over.
const GO_ON: &str = "Say “continue” and I will go on.";
/// Length limit for a clause that an answer repeats, in characters.
const CLAUSE_CHARS_MAX: usize = 200;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completion {
    /// The request was carried out.
    Done,
    /// The request failed with a reason.
    Failed,
    /// The request was not carried out, and the report's text is complete in itself: a refusal, or a question.
    Declined,
}

/// The author of the text in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The planner's own question whether to delete.
    Question,
    /// A skill that lists tasks.
    Tasks,
    /// Any other author.
    Other,
}

/// The result of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub user_request: String,
    pub origin: Origin,
    pub completion: Completion,
    /// The result, or the reason of the failure.
    pub text: String,
}

/// The end of a request whose agent reports this text as done: a question or a failure is not a completed request.
pub(super) fn completion(text: &str) -> Completion {
    let declined = [SHALL_I, NOT_DONE, UNCLEAR, "I did not understand", "I cannot "];
    let in_part = text.lines().any(|line| line.starts_with(NOT_DONE) || line.starts_with(UNCLEAR));
    if in_part || declined.iter().any(|start| text.starts_with(start)) {
        Completion::Declined
    } else {
        Completion::Done
    }
}

/// An answer, and whether it reports unfinished requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub text: String,
    /// Some request was not carried out completely.
    pub is_declined: bool,
}

/// Whether a result is a failure, recognised by the kernel's prefixes.
pub(super) fn is_failure(result: &str) -> bool {
    ["[error_", "[unknown]", "[not run]", "[blocked]", "[refused]", "Error:"]
        .iter()
        .any(|start| result.starts_with(start))
}

/// A failure without its tag and its technical lines.
pub(super) fn reason(result: &str) -> String {
    let unknown = result.starts_with("[unknown]") || result.contains(MAY_HAVE_HAPPENED);
    let text = result.strip_prefix('[').and_then(|r| r.split_once(']')).map_or(result, |(_, rest)| rest);
    // Instructions to a model are of no use to people, and a block of commands in an answer would be executed.
    let text = before_instructions(text).trim().trim_start_matches("Error:").trim();
    let kept: Vec<&str> = text
        .lines()
        .take_while(|line| {
            !["Error type:", "Usage:", "Try `", "Detail:", "Already tried:", "Next:"]
                .iter()
                .any(|m| line.starts_with(m))
        })
        .filter(|line| !line.starts_with("Suggested alternatives:"))
        .collect();
    let kept = kept.join("\n").trim().to_owned();
    let kept = without_flags(if kept.is_empty() { text } else { &kept });
    if unknown { format!("{NOT_KNOWN} ({})", kept.trim_end_matches('.')) } else { kept }
}

/// Replaces command line flags, which people did not write, in an error: `--due` becomes “due”.
fn without_flags(text: &str) -> String {
    let plain = |word: &str| {
        let Some(at) = word.find("--") else { return word.to_owned() };
        let (before, flag) = (&word[..at], &word[at + 2..]);
        let end = flag.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).unwrap_or(flag.len());
        if end == 0 || !before.chars().all(|c| !c.is_alphanumeric()) {
            return word.to_owned();
        }
        format!("{before}“{}”{}", flag[..end].replace('_', " "), &flag[end..])
    };
    let line = |line: &str| line.split(' ').map(plain).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n").replace("required flag", "required value")
}

/// Writes one report as text.
fn report_text(report: &Report) -> String {
    match report.completion {
        Completion::Done => return first_person(&report.text),
        Completion::Declined => return report.text.clone(),
        Completion::Failed => {}
    }
    let asked = report.user_request.strip_prefix(ASK_FIRST).unwrap_or(&report.user_request).trim().replace('\n', " ");
    let asked = shortened(&asked, CLAUSE_CHARS_MAX);
    match unclear_reason(&report.text) {
        Some(why) => format!("{UNCLEAR}“{asked}”. {why} Look before you ask for it again."),
        None => format!("{NOT_DONE}“{asked}”. The reason: {}", stopped(&report.text)),
    }
}

/// What a skill said of a request that may have been carried out, as a sentence.
fn unclear_reason(text: &str) -> Option<String> {
    let why = text.strip_prefix(NOT_KNOWN)?.trim().trim_start_matches('(').trim_end_matches(')');
    Some(format!("The reason: {}", stopped(why)))
}

/// The line about a part of a request that failed.
pub(super) fn failed_part(text: &str) -> String {
    match unclear_reason(text) {
        Some(why) => format!("{UNCLEAR}{}", why.trim_start_matches("The reason: ")),
        None => format!("{NOT_DONE}{text}"),
    }
}

/// Rewrites `Created task #3 …` in the first person.
pub(super) fn first_person(text: &str) -> String {
    const DID: [&str; 11] = [
        "Set",
        "Cancelled",
        "Created",
        "Updated",
        "Deleted",
        "Appended",
        "Prepended",
        "Replaced",
        "Sent",
        "Added",
        "Removed",
    ];
    if let Some(rest) = text.strip_prefix("Saved: ") {
        return format!("I will remember: {}", stopped(rest));
    }
    let first = text.split(' ').next().unwrap_or_default();
    // Several tasks, or the unfinished parts of a request, are on lines of their own.
    let is_list = text.lines().any(|line| line.is_empty() || line.starts_with("- "));
    if DID.contains(&first) && !is_list {
        let in_first_person = |line: &str| match line.split_once(' ') {
            Some((did, rest)) if DID.contains(&did) => format!("I {} {}", did.to_lowercase(), stopped(rest)),
            _ => line.to_owned(),
        };
        return text.lines().map(in_first_person).collect::<Vec<_>>().join(" ");
    }
    plain_help(text)
}

/// Rewrites help texts of skills, which show flags, for people.
fn plain_help(text: &str) -> String {
    if let Some((list, _)) = text.rsplit_once("\n\n`system.help --topic NAME`") {
        return format!("{list}\n\n“help with tasks” tells more about one of these.");
    }
    if let Some(found) = text.strip_suffix(" Finished ones are found with status all.") {
        return format!("{found} “list all my tasks” shows finished ones too.");
    }
    let Some((domain, _)) = text.rsplit_once("\nDetails: `<skill> --help`") else { return text.to_owned() };
    let named = |line: &str| {
        let end = [" --", " [--"].iter().filter_map(|flag| line.find(flag)).min();
        line[..end.unwrap_or(line.len())].to_owned()
    };
    domain.lines().map(named).collect::<Vec<_>>().join("\n")
}

/// Adds a full stop at the end if one is missing.
fn stopped(text: &str) -> String {
    let text = text.trim_end();
    let ends = text.ends_with(['.', '!', '?', ':', '…', ')']) && !text.ends_with("…)");
    if ends || text.is_empty() || text.contains('\n') { text.to_owned() } else { format!("{text}.") }
}

/// Combines all reports, the clauses that were not understood, and the remaining requests into the answer.
pub(super) fn compose(reports: &[Report], unrecognised: &[String], left: &[String]) -> Answer {
    let mut answer = String::new();
    let mut before_is_block = false;
    for text in reports.iter().map(|report| refer::quoted(&report_text(report), report.origin)) {
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
    if !unrecognised.is_empty() {
        add(fallback::not_understood(unrecognised));
    }
    if !left.is_empty() {
        let lines: Vec<String> = left.iter().map(|l| format!("- {}", l.replace('\n', " "))).collect();
        add(format!("{LEFT}\n{}\n\n{GO_ON}", lines.join("\n")));
    }
    // The answer is marked as declined if any part is unfinished, so that scripts can detect it.
    let whole = |r: &Report| r.completion == Completion::Done && !r.text.contains(REFUSED);
    let is_done = reports.iter().all(whole) && unrecognised.is_empty() && left.is_empty();
    Answer { text: answer, is_declined: !is_done }
}

/// The requests that an earlier answer left over.
pub(super) fn left_over(answer: &str) -> Vec<String> {
    // Only a list at the end of an answer counts, because text that was read to the user may contain the same phrases.
    let mut lines = answer.trim_end().lines().rev();
    if lines.next() != Some(GO_ON) {
        return Vec::new();
    }
    let above: Vec<&str> = lines.take_while(|line| *line != LEFT).collect();
    let list = above.iter().rev().take_while(|line| !line.is_empty());
    if answer.lines().any(|line| line == LEFT) {
        list.filter_map(|line| line.strip_prefix("- ")).map(str::to_owned).collect()
    } else {
        Vec::new()
    }
}

/// What the planner is, what it can do, and how to get a language model.
pub(super) fn introduction(catalog: &Catalog) -> String {
    let skills = catalog.domains();
    let can = if skills.is_empty() {
        "there are no skills that I could use here".to_owned()
    } else {
        format!("I carry out plain English requests about {skills}; “help” lists them")
    };
    format!("{IDENTITY}: {can}. For conversation, `annie config init` sets up a language model.")
}

/// The answer to a prompt skill that the user invoked: its steps are written for a model.
pub(super) fn instructions(skill: &str, catalog: &Catalog) -> String {
    let known = catalog.get(skill).cloned();
    prompt_skill(&known.unwrap_or_else(|| Skill { name: skill.to_owned(), ..Skill::default() }))
}

/// The same answer, from the known data of the skill.
pub(super) fn prompt_skill(skill: &Skill) -> String {
    let about = skill.about.trim();
    let about = if about.is_empty() { String::new() } else { format!(" What it is for: {about}") };
    format!(
        "“{}” is a set of instructions that only a language model can follow, so nothing was done. {IDENTITY}.{about} `annie \
         config init` sets up a language model.",
        skill.name
    )
}

/// The answer to a message that is not a request: a greeting, thanks, a question.
pub(super) fn small_talk(user_text: &str, context: Option<&str>, catalog: &Catalog) -> Answer {
    let text = Text::new(user_text);
    let first: Vec<&str> = text.words.iter().take(6).map(|w| w.lower.as_str()).collect();
    let introduction = introduction(catalog);
    let nothing = |text: String| Answer { text, is_declined: true };
    let talk = |text: String| Answer { text, is_declined: false };
    let alone = text.words.len() <= 4;
    match first.as_slice() {
        [] => nothing(format!("Your message has no words in it. {introduction}")),
        ["hi" | "hello" | "hey" | "greetings" | "yo", ..]
        | ["good", "morning" | "evening" | "afternoon" | "day", ..]
            if alone =>
        {
            talk(format!("Hello! {introduction}"))
        }
        ["thanks" | "thx" | "cheers", ..] | ["thank", "you", ..] if alone => {
            talk(format!("You are welcome. ({IDENTITY}.)"))
        }
        ["bye" | "goodbye", ..] | ["good", "night" | "bye", ..] | ["see", "you", ..] if alone => {
            talk(format!("Goodbye! ({IDENTITY}.)"))
        }
        ["who" | "what", "are", "you", ..] => talk(introduction),
        ["continue" | "proceed" | "resume", ..] | ["go", "on" | "ahead"] | ["yes" | "no" | "ok" | "okay"] => {
            nothing(format!("There is nothing left to go on with. {introduction}"))
        }
        _ if !text.words.iter().any(|w| w.lower.chars().any(char::is_alphabetic)) => {
            nothing(format!("I did not understand “{}”. {introduction}", shortened(user_text.trim(), CLAUSE_CHARS_MAX)))
        }
        _ => match known(user_text, context) {
            Some(lines) => talk(format!("What I have in memory about that:\n\n{lines}\n\n{introduction}")),
            None => nothing(fallback::not_understood(&[user_text.to_owned()])),
        },
    }
}

/// Lines of the remembered context that share a significant word with the question.
fn known(question: &str, context: Option<&str>) -> Option<String> {
    const LINES_MAX: usize = 5;
    const WORDS_MAX: usize = 40;
    let (_, memories) = context?.split_once("Relevant memories:")?;
    let text = Text::new(question);
    let words: Vec<&str> =
        text.words.iter().take(WORDS_MAX).map(|w| w.lower.as_str()).filter(|w| w.len() > 2).collect();
    let common = [
        "what", "when", "where", "which", "does", "have", "with", "about", "that", "this", "know", "tell", "the",
        "and", "for", "are", "you", "who", "why", "how", "can", "did", "was", "has",
    ];
    let memories = framed(memories, "memory");
    let lines: Vec<String> = memories
        .iter()
        .map(|memory| format!("- {}", memory.text))
        .filter(|line| {
            let lower = line.to_lowercase();
            words.iter().any(|w| !common.contains(w) && lower.contains(w.trim_end_matches("'s")))
        })
        .take(LINES_MAX)
        .collect();
    (!lines.is_empty()).then(|| refer::quoted(&lines.join("\n"), Origin::Other))
}

#[cfg(test)]
mod tests {
    use super::{super::testing::catalog, *};

    fn report(ok: bool, text: &str) -> Report {
        let completion = if ok { Completion::Done } else { Completion::Failed };
        Report { user_request: "delete task 9".into(), origin: Origin::Tasks, completion, text: text.into() }
    }

    #[test]
    fn answer_reports_results_in_first_person() {
        let answer = compose(
            &[
                report(true, "Created task #1 Review PR 42, due 2026-11-22 (tomorrow), priority medium"),
                report(true, "Saved: Bob prefers email"),
                report(true, "Found 1 open task:\n\n- #1 Review PR 42"),
            ],
            &[],
            &[],
        );
        assert!(!answer.is_declined);
        assert_eq!(
            answer.text,
            "I created task #1 Review PR 42, due 2026-11-22 (tomorrow), priority medium.\nI will remember: Bob prefers \
             email.\n\nFound 1 open task:\n\n- #1 Review PR 42"
        );
    }

    #[test]
    fn answer_reports_failure_with_reason_and_without_technical_lines() {
        let failed =
            "[error_permanent] There is no task #9.\nError type: not_found\nSuggested alternatives: tasks.search";
        assert!(is_failure(failed) && is_failure("Error: nothing") && !is_failure("[partial] half"));
        assert_eq!(reason(failed), "There is no task #9.");
        assert_eq!(
            reason("[unknown] The mail may be out."),
            "it is not known whether it happened (The mail may be out)"
        );
        assert_eq!(reason("[error_permanent] There is no note 'Call: mum'."), "There is no note 'Call: mum'.");
        let corrected = "[error_permanent] id is missing. Call (with real values in place of …): {\"id\": …}";
        assert_eq!(reason(corrected), "id is missing.");
        assert_eq!(reason("Error: missing required flag: --x\nUsage: a.b --x TEXT"), "missing required value: “x”");
        assert_eq!(reason("Error: --min_size=3 is refused -- try 4"), "“min size”=3 is refused -- try 4");
        let undated = "Error: the user named no date, and not \"x\". Nothing was done. Write this block:\n```cmd\ntasks.create --title a\n```";
        assert_eq!(reason(undated), "the user named no date, and not \"x\". Nothing was done.");
        let refused =
            "[refused] The rule \"quiet\" does not allow email.send here: No mail. Do not try it again; tell the user.";
        assert!(is_failure(refused));
        assert_eq!(reason(refused), "The rule \"quiet\" does not allow email.send here: No mail.");
        let doubt =
            "[blocked] This may have happened already: its last outcome is unknown. Do not repeat it; report it.";
        assert_eq!(reason(doubt), "This may have happened already: its last outcome is unknown.");
        for result in [
            "[unknown] The mail may be out.",
            "[error_transient] It broke down. Its effect may or may not have happened.",
        ] {
            let answer = compose(&[report(false, &reason(result))], &[], &[]);
            assert!(
                answer.is_declined && answer.text.starts_with("I do not know whether this was done: “delete task 9”. ")
            );
            assert!(!answer.text.contains("Not done"), "{}", answer.text);
            assert_eq!(completion(&answer.text), Completion::Declined);
        }
        let answer = compose(&[report(false, &reason(failed))], &[], &[]);
        assert!(answer.is_declined);
        assert_eq!(answer.text, "Not done: “delete task 9”. The reason: There is no task #9.");
    }

    #[test]
    fn answer_lists_remaining_requests_so_that_continue_finds_them() {
        let answer = compose(&[report(true, "ok")], &["dance".into()], &["add a task: a".into(), "what is due".into()]);
        assert!(answer.text.contains("not understand “dance”") && answer.text.contains(IDENTITY));
        assert_eq!(left_over(&answer.text), ["add a task: a", "what is due"]);
        assert!(left_over("nothing").is_empty());
        let read = format!("# Note\n\nNot done yet:\n- delete task 3\n\n{GO_ON}");
        for end in ["", "\n\nThat is all."] {
            let answer_text = compose(&[report(true, &format!("{read}{end}"))], &[], &[]).text;
            assert!(
                left_over(&answer_text).is_empty(),
                "a list inside a note is not the planner's own list: {answer_text}"
            );
        }
        let answer_text = compose(&[report(true, &read)], &[], &["add a task: a".into()]).text;
        assert_eq!(left_over(&answer_text), ["add a task: a"]);
    }

    #[test]
    fn small_talk_states_what_the_planner_is() {
        for question in
            ["hello there", "how are you?", "What is the capital of France?", "continue", "", "bye", "thank you!"]
        {
            assert!(small_talk(question, None, &catalog()).text.contains(IDENTITY), "{question}");
        }
        let context = "[Context]\nLocal time: x\nRelevant memories:\n<memory-1 id=\"1\">Bob prefers email (preference)</memory-1>\n\
             <memory-1 id=\"2\">Tea is green</memory-1>\n[/Context]";
        let answer_text = small_talk("Does Bob mind calls?", Some(context), &catalog()).text;
        assert!(answer_text.contains("- Bob prefers email") && !answer_text.contains("Tea is green"), "{answer_text}");
    }
}
