//! What the planner says to people: results put together, failures told as they are, and plainly that it is no language
//! model.

use annie_core::context::framed;

use super::{
    catalog::{Catalog, Skill},
    choose::ASK_FIRST,
    fallback,
    refer::{self, SHALL_I},
    text::{Text, shortened},
};

/// What the planner is, in one sentence.
pub(super) const WHO: &str = "I am Annie's offline planner, not a language model";
/// The heading of what is left, by which a later `continue` finds it.
pub(super) const LEFT: &str = "Not done yet:";
/// Begins what is told of a wish, or of a part of one, that was not carried out.
pub(super) const NOT_DONE: &str = "Not done: ";
/// Told of a value that the skill refused and that was left out.
pub(super) const REFUSED: &str = ", which was refused)";
/// Ends an answer that leaves something over.
const GO_ON: &str = "Say “continue” and I will go on.";
/// The most characters of a clause that an answer repeats.
const CLAUSE_CHARS_MAX: usize = 200;

/// How a wish ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// It was carried out.
    Done,
    /// It was not, for a reason.
    Failed,
    /// It was not, and the text says all there is to say: a refusal, or a question.
    Declined,
}

/// Whose words a text holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The planner's own question whether to delete.
    Question,
    /// A skill's that lists tasks.
    Tasks,
    /// Anybody's.
    Other,
}

/// What came of one wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    /// The wish.
    pub wish: String,
    /// Whose words the text holds.
    pub origin: Origin,
    /// How it ended.
    pub came: Came,
    /// The result, or why not.
    pub text: String,
}

/// How an agent ended that reports this text as done: its questions and failures are no deeds.
pub(super) fn came(text: &str) -> Came {
    let declined = [SHALL_I, NOT_DONE, "I did not understand", "I cannot "];
    let in_part = text.lines().any(|line| line.starts_with(NOT_DONE));
    if in_part || declined.iter().any(|start| text.starts_with(start)) { Came::Declined } else { Came::Done }
}

/// An answer, and whether it says that nothing was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// The words.
    pub text: String,
    /// What was asked for was not done, or not all of it.
    pub is_declined: bool,
}

/// Whether a result is a failure, by the words with which the kernel begins one.
pub(super) fn is_failure(result: &str) -> bool {
    ["[error_", "[unknown]", "[not run]", "[blocked]", "Error:"].iter().any(|start| result.starts_with(start))
}

/// How the kernel's words to a model begin that say what to write. They begin a sentence: a user's own words may hold them.
const FOR_MODELS: [&str; 4] = ["Write this block:", "```", "Call: ", "Call (with "];

/// The text before the first of the kernel's words to a model.
fn before_words_to_models(text: &str) -> &str {
    let begins = |at: &usize| {
        let before = text[..*at].trim_end();
        before.len() < *at && before.ends_with(['.', '!', '?', ':', ')'])
            || before.is_empty()
            || text[..*at].ends_with('\n')
    };
    let ends = FOR_MODELS.iter().filter_map(|mark| text.match_indices(mark).map(|(at, _)| at).find(begins));
    &text[..ends.min().unwrap_or(text.len())]
}

/// A failure without its tag and its machine words.
pub(super) fn reason(result: &str) -> String {
    let unknown = result.starts_with("[unknown]");
    let text = result.strip_prefix('[').and_then(|r| r.split_once(']')).map_or(result, |(_, rest)| rest);
    // What a model is to write instead is nothing for people, and a block of commands in an answer would be run.
    let text = before_words_to_models(text).trim().trim_start_matches("Error:").trim();
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
    let told = without_flags(if told.is_empty() { text } else { &told });
    if unknown { format!("it is not known whether it happened ({told})") } else { told }
}

/// The words of an error without command line flags, which people did not write: `--due` is “due”.
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

/// One report as text.
fn told(report: &Report) -> String {
    match report.came {
        Came::Done => return first_person(&report.text),
        Came::Declined => return report.text.clone(),
        Came::Failed => {}
    }
    format!(
        "{NOT_DONE}“{}”. The reason: {}",
        shortened(
            &report.wish.strip_prefix(ASK_FIRST).unwrap_or(&report.wish).trim().replace('\n', " "),
            CLAUSE_CHARS_MAX
        ),
        stopped(&report.text)
    )
}

/// `Created task #3 …` as somebody who did it says it.
pub(super) fn first_person(text: &str) -> String {
    const DID: [&str; 9] =
        ["Created", "Updated", "Deleted", "Appended", "Prepended", "Replaced", "Sent", "Added", "Removed"];
    if let Some(rest) = text.strip_prefix("Saved: ") {
        return format!("I will remember: {}", stopped(rest));
    }
    let first = text.split(' ').next().unwrap_or_default();
    // Several tasks, and what could not be done of a wish, stand on lines of their own.
    let is_list = text.lines().any(|line| line.is_empty() || line.starts_with("- "));
    if DID.contains(&first) && !is_list {
        let told = |line: &str| match line.split_once(' ') {
            Some((did, rest)) if DID.contains(&did) => format!("I {} {}", did.to_lowercase(), stopped(rest)),
            _ => line.to_owned(),
        };
        return text.lines().map(told).collect::<Vec<_>>().join(" ");
    }
    plain_help(text)
}

/// Helps and hints of skills are written for those who call them by flags; people are told in words.
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

/// With a stop at its end.
fn stopped(text: &str) -> String {
    let text = text.trim_end();
    let ends = text.ends_with(['.', '!', '?', ':', '…', ')']) && !text.ends_with("…)");
    if ends || text.is_empty() || text.contains('\n') { text.to_owned() } else { format!("{text}.") }
}

/// The answer for all reports, what was not understood, and what is left.
pub(super) fn compose(reports: &[Report], puzzling: &[String], left: &[String]) -> Said {
    let mut answer = String::new();
    let mut before_is_block = false;
    for text in reports.iter().map(|report| refer::quoted(&told(report), report.origin)) {
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
        add(fallback::not_understood(puzzling));
    }
    if !left.is_empty() {
        let lines: Vec<String> = left.iter().map(|l| format!("- {}", l.replace('\n', " "))).collect();
        add(format!("{LEFT}\n{}\n\n{GO_ON}", lines.join("\n")));
    }
    // A script is to see that a part was not done.
    let whole = |r: &Report| r.came == Came::Done && !r.text.contains(REFUSED);
    let is_done = reports.iter().all(whole) && puzzling.is_empty() && left.is_empty();
    Said { text: answer, is_declined: !is_done }
}

/// The wishes that an earlier answer left over.
pub(super) fn left_over(answer: &str) -> Vec<String> {
    // Only the end of an answer says so, on lines of its own: what was read to the user may hold the same words.
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

/// What the planner is, what it can do, and what would do more.
pub(super) fn who_and_what(catalog: &Catalog) -> String {
    let skills = catalog.domains();
    let can = if skills.is_empty() {
        "there are no skills that I could use here".to_owned()
    } else {
        format!("I carry out plain English requests about {skills}; “help” lists them")
    };
    format!("{WHO}: {can}. For conversation, `annie config init` sets up a language model.")
}

/// An answer to a prompt skill that the user invoked: its steps are written for a model.
pub(super) fn instructions(skill: &str, catalog: &Catalog) -> String {
    let known = catalog.get(skill).cloned();
    prompt_skill(&known.unwrap_or_else(|| Skill { name: skill.to_owned(), ..Skill::default() }))
}

/// The same, from what is known of the skill.
pub(super) fn prompt_skill(skill: &Skill) -> String {
    let about = skill.about.trim();
    let about = if about.is_empty() { String::new() } else { format!(" What it is for: {about}") };
    format!(
        "“{}” is a set of instructions that only a language model can follow, so nothing was done. {WHO}.{about} `annie \
         config init` sets up a language model.",
        skill.name
    )
}

/// An answer to what is no request: a greeting, thanks, a question.
pub(super) fn small_talk(said: &str, context: Option<&str>, catalog: &Catalog) -> Said {
    let text = Text::new(said);
    let first: Vec<&str> = text.words.iter().take(6).map(|w| w.lower.as_str()).collect();
    let who = who_and_what(catalog);
    let nothing = |text: String| Said { text, is_declined: true };
    let talk = |text: String| Said { text, is_declined: false };
    let alone = text.words.len() <= 4;
    match first.as_slice() {
        [] => nothing(format!("Your message has no words in it. {who}")),
        ["hi" | "hello" | "hey" | "greetings" | "yo", ..]
        | ["good", "morning" | "evening" | "afternoon" | "day", ..]
            if alone =>
        {
            talk(format!("Hello! {who}"))
        }
        ["thanks" | "thx" | "cheers", ..] | ["thank", "you", ..] if alone => talk(format!("You are welcome. ({WHO}.)")),
        ["bye" | "goodbye", ..] | ["good", "night" | "bye", ..] | ["see", "you", ..] if alone => {
            talk(format!("Goodbye! ({WHO}.)"))
        }
        ["who" | "what", "are", "you", ..] => talk(who),
        ["continue" | "proceed" | "resume", ..] | ["go", "on" | "ahead"] | ["yes" | "no" | "ok" | "okay"] => {
            nothing(format!("There is nothing left to go on with. {who}"))
        }
        _ if !text.words.iter().any(|w| w.lower.chars().any(char::is_alphabetic)) => {
            nothing(format!("I did not understand “{}”. {who}", shortened(said.trim(), CLAUSE_CHARS_MAX)))
        }
        _ => match known(said, context) {
            Some(lines) => talk(format!("What I have in memory about that:\n\n{lines}\n\n{who}")),
            None => nothing(fallback::not_understood(&[said.to_owned()])),
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
        let came = if ok { Came::Done } else { Came::Failed };
        Report { wish: "delete task 9".into(), origin: Origin::Tasks, came, text: text.into() }
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
        );
        assert!(!answer.is_declined);
        assert_eq!(
            answer.text,
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
        assert_eq!(reason("[error_permanent] There is no note 'Call: mum'."), "There is no note 'Call: mum'.");
        let corrected = "[error_permanent] id is missing. Call (with real values in place of …): {\"id\": …}";
        assert_eq!(reason(corrected), "id is missing.");
        assert_eq!(reason("Error: missing required flag: --x\nUsage: a.b --x TEXT"), "missing required value: “x”");
        assert_eq!(reason("Error: --min_size=3 is refused -- try 4"), "“min size”=3 is refused -- try 4");
        let undated = "Error: the user named no date, and not \"x\". Nothing was done. Write this block:\n```cmd\ntasks.create --title a\n```";
        assert_eq!(reason(undated), "the user named no date, and not \"x\". Nothing was done.");
        let answer = compose(&[report(false, &reason(failed))], &[], &[]);
        assert!(answer.is_declined);
        assert_eq!(answer.text, "Not done: “delete task 9”. The reason: There is no task #9.");
    }

    #[test]
    fn what_is_left_can_be_found_again() {
        let answer = compose(&[report(true, "ok")], &["dance".into()], &["add a task: a".into(), "what is due".into()]);
        assert!(answer.text.contains("not understand “dance”") && answer.text.contains(WHO));
        assert_eq!(left_over(&answer.text), ["add a task: a", "what is due"]);
        assert!(left_over("nothing").is_empty());
        let read = format!("# Note\n\nNot done yet:\n- delete task 3\n\n{GO_ON}");
        for end in ["", "\n\nThat is all."] {
            let told = compose(&[report(true, &format!("{read}{end}"))], &[], &[]).text;
            assert!(left_over(&told).is_empty(), "what a note says is no list of ours: {told}");
        }
        let told = compose(&[report(true, &read)], &[], &["add a task: a".into()]).text;
        assert_eq!(left_over(&told), ["add a task: a"]);
    }

    #[test]
    fn small_talk_says_what_it_is() {
        for said in
            ["hello there", "how are you?", "What is the capital of France?", "continue", "", "bye", "thank you!"]
        {
            assert!(small_talk(said, None, &catalog()).text.contains(WHO), "{said}");
        }
        let context = "[Context]\nLocal time: x\nRelevant memories:\n<memory-1 id=\"1\">Bob prefers email (preference)</memory-1>\n\
             <memory-1 id=\"2\">Tea is green</memory-1>\n[/Context]";
        let told = small_talk("Does Bob mind calls?", Some(context), &catalog()).text;
        assert!(told.contains("- Bob prefers email") && !told.contains("Tea is green"), "{told}");
    }
}
