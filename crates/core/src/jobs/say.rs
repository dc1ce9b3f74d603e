//! Answers to job commands in words [S3 5.8]: one or two sentences to be spoken, or the numbered list to be read.

use std::fmt::Write as _;

use super::{JobCommand, JobLine, JobRequest, Resolution, Target, Verb};
use crate::{event::Priority, ids::TaskId};

/// Maximum length of a spoken title, in characters.
const SPOKEN_TITLE_CHARS_MAX: usize = 40;
/// Maximum length of a shown title, in characters.
const SHOWN_TITLE_CHARS_MAX: usize = 80;
/// Maximum number of choices that a listener can remember.
const CHOICES_MAX: usize = 4;

/// Level of detail of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Style {
    /// One or two sentences, to be spoken.
    #[default]
    Short,
    /// All facts, on separate lines.
    Detailed,
}

/// The answer to a command. `jobs` are the user's open jobs before its execution; `found` is the resolution of its target
/// (ignored for a list). A command that requests detail is answered in detail whatever the style.
#[must_use]
pub fn say(command: &JobCommand, found: &Resolution, jobs: &[JobLine], style: Style) -> String {
    let style = if command.is_detailed { Style::Detailed } else { style };
    match &command.request {
        JobRequest::List => list(jobs, style),
        JobRequest::Busy => busy(jobs, style),
        JobRequest::Act { verb, target } => acted(*verb, target, found, jobs, style),
    }
}

fn acted(verb: Verb, target: &Target, found: &Resolution, jobs: &[JobLine], style: Style) -> String {
    match found {
        Resolution::One(id) => done(verb, *id, jobs, style),
        Resolution::All(ids) => done_all(verb, ids.len()),
        Resolution::Several(ids) => which(verb, ids, jobs, style),
        Resolution::Already(id) => already(verb, *id, jobs, style),
        Resolution::None => nothing(verb, target, jobs.len()),
    }
}

fn done(verb: Verb, id: TaskId, jobs: &[JobLine], style: Style) -> String {
    let what = title(id, jobs, style);
    let job = jobs.iter().find(|j| j.task == id);
    let is_running = job.is_some_and(JobLine::is_running);
    let is_suspended = job.is_some_and(JobLine::is_suspended);
    match verb {
        Verb::First if is_running => format!("I stay on {what} before everything else."),
        Verb::First => format!("I will do {what} first."),
        Verb::Urgent if is_suspended => format!("{what} is urgent now, and still paused."),
        Verb::Urgent => format!("{what} is urgent now."),
        Verb::Cancel if is_running => format!("I am cancelling {what}."),
        Verb::Cancel => format!("{what} is cancelled."),
        Verb::Pause if is_running => format!("I pause {what} after this round. Say \"resume\" to go on."),
        Verb::Pause => format!("{what} is paused. Say \"resume\" to go on."),
        Verb::Resume => format!("I am going on with {what}."),
    }
}

fn done_all(verb: Verb, count: usize) -> String {
    let all = match count {
        1 => "the one job".to_owned(),
        2 => "both jobs".to_owned(),
        n => format!("all {} jobs", counted(n)),
    };
    match verb {
        Verb::First | Verb::Urgent => format!("I made {all} urgent."),
        Verb::Cancel => format!("I am cancelling {all}."),
        Verb::Pause => format!("I am pausing {all}. Say \"resume everything\" to go on."),
        Verb::Resume => format!("I am going on with {all}."),
    }
}

fn which(verb: Verb, ids: &[TaskId], jobs: &[JobLine], style: Style) -> String {
    let choices: Vec<&JobLine> = jobs.iter().filter(|j| ids.contains(&j.task)).collect();
    let shown = if style == Style::Short { CHOICES_MAX } else { choices.len() };
    let names: Vec<String> =
        choices.iter().take(shown).map(|j| format!("{}. {}", j.number, quoted(&j.title, style))).collect();
    let names = match names.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => names.concat(),
    };
    let more = choices.len().saturating_sub(shown);
    let more = if more == 0 { String::new() } else { format!(", and {} more", counted(more)) };
    let example = choices.first().map_or(1, |j| j.number);
    let say = match verb {
        Verb::First => format!("do number {example} first"),
        Verb::Urgent => format!("number {example} is urgent"),
        _ => format!("{} number {example}", verb.as_str()),
    };
    format!("Which one: {names}{more}? Say \"{say}\".")
}

fn already(verb: Verb, id: TaskId, jobs: &[JobLine], style: Style) -> String {
    let what = title(id, jobs, style);
    let Some(job) = jobs.iter().find(|j| j.task == id && !j.state.is_ended()) else {
        return format!("{what} has ended already.");
    };
    match verb {
        Verb::First if job.is_running() => format!("I am on {what} already."),
        Verb::First => format!("{what} is next already."),
        Verb::Urgent => format!("{what} is urgent already."),
        Verb::Cancel => format!("{what} is cancelled already."),
        Verb::Pause => format!("{what} is paused already."),
        Verb::Resume => format!("{what} is not paused."),
    }
}

fn nothing(verb: Verb, target: &Target, jobs: usize) -> String {
    let has = match jobs {
        0 => "I have no jobs now.".to_owned(),
        1 => "I have one job.".to_owned(),
        n => format!("I have {} jobs.", counted(n)),
    };
    match target {
        Target::Number(n) => format!("There is no number {n}. {has}"),
        Target::Id(id) => format!("I know no open job {id}. {has}"),
        Target::Words(words) => format!("I have no job about {}. {has}", quoted(words, Style::Short)),
        Target::That | Target::All => match verb {
            Verb::First => "There is nothing to put first.".to_owned(),
            Verb::Urgent => "There is nothing to hurry up.".to_owned(),
            Verb::Cancel => "There is nothing to cancel.".to_owned(),
            Verb::Pause => "There is nothing to pause.".to_owned(),
            Verb::Resume => "Nothing is paused.".to_owned(),
        },
    }
}

/// The jobs in the order in which they are listed: running, waiting, suspended.
fn by_state(jobs: &[JobLine]) -> [Vec<&JobLine>; 3] {
    let those = |is: fn(&JobLine) -> bool| jobs.iter().filter(|j| !j.state.is_ended() && is(j)).collect();
    [those(JobLine::is_running), those(JobLine::is_waiting), those(JobLine::is_suspended)]
}

fn list(jobs: &[JobLine], style: Style) -> String {
    let states = by_state(jobs);
    let count = states.iter().map(Vec::len).sum();
    if count == 0 {
        return "I am not working on anything right now.".to_owned();
    }
    if style == Style::Short {
        return spoken_list(&states);
    }
    let things = if count == 1 { "one thing".to_owned() } else { format!("{} things", counted(count)) };
    let mut text = format!("I am working on {things} right now:");
    for job in states.iter().flatten() {
        let _ = write!(text, "\n  {}. {}", job.number, line(job));
    }
    text
}

/// A line of the list, such as `[Queued, HIGH] Looking up golf courses - next in line, starts in about 2 minutes`.
fn line(job: &JobLine) -> String {
    let state = if job.is_suspended() {
        "Paused"
    } else if job.awaits_approval {
        "Waiting for you"
    } else if job.is_running() {
        "Running"
    } else if job.is_deferred {
        "Deferred"
    } else {
        "Queued"
    };
    let mut facts: Vec<String> = Vec::new();
    facts.extend(job.round.map(round));
    if job.awaits_approval {
        facts.push("a call needs your approval".to_owned());
    } else if job.is_running() {
        facts.extend(job.running_ms.map(|ms| format!("running for {}", about(ms))));
    }
    if job.is_waiting() && job.is_deferred {
        facts.extend(deferral(job));
    } else if job.is_waiting() {
        facts.extend(
            job.position.map(|at| if at <= 1 { "next in line".to_owned() } else { format!("number {at} in line") }),
        );
        facts.extend(job.start_in_ms.map(|ms| format!("starts in {}", about(ms))));
        if job.position.is_none() && job.start_in_ms.is_none() && job.priority >= Priority::Low {
            facts.push("will run when I am free".to_owned());
        }
    }
    let class = job.priority.as_str().to_uppercase();
    let title = clipped(&job.title, SHOWN_TITLE_CHARS_MAX);
    if facts.is_empty() {
        format!("[{state}, {class}] {title}")
    } else {
        format!("[{state}, {class}] {title} - {}", facts.join(", "))
    }
}

/// Why a deferred job does not run, and when it goes on.
fn deferral(job: &JobLine) -> Vec<String> {
    let (reason, goes_on) = if job.has_model_failed {
        ("its model failed", "goes on when the model answers, at the latest in")
    } else {
        ("it failed or its time was up", "goes on in")
    };
    let mut facts = vec![reason.to_owned()];
    facts.extend(job.start_in_ms.map(|ms| format!("{goes_on} {}", about(ms))));
    facts.push("say \"do that first\" to go on now".to_owned());
    facts
}

fn spoken_list([running, waiting, suspended]: &[Vec<&JobLine>; 3]) -> String {
    let mut text = match running.as_slice() {
        [] => "Nothing runs right now.".to_owned(),
        [job] => match job.round {
            Some(of) => format!("I am working on {}, {}.", quoted(&job.title, Style::Short), round(of)),
            None => format!("I am working on {}.", quoted(&job.title, Style::Short)),
        },
        [job, ..] => {
            let name = quoted(&job.title, Style::Short);
            format!("I am working on {} things, among them {name}.", counted(running.len()))
        }
    };
    let next = waiting.iter().min_by_key(|j| (j.position.unwrap_or(usize::MAX), j.number));
    if let Some(next) = next {
        let name = quoted(&next.title, Style::Short);
        let when = next.start_in_ms.map(|ms| format!(" and starts in {}", about(ms))).unwrap_or_default();
        let more = if running.is_empty() { "" } else { " more" };
        let _ = match waiting.len() {
            1 => write!(text, " {name} is next{when}"),
            n => write!(text, " {}{more} wait; {name} is next{when}", capital(&counted(n))),
        };
    }
    match (next, suspended.len()) {
        (None, 0) => {}
        (Some(_), 0) => text.push('.'),
        (Some(_), n) => {
            let _ = write!(text, ", and {} paused.", are(n));
        }
        (None, n) => {
            let _ = write!(text, " {} paused.", capital(&are(n)));
        }
    }
    text
}

fn busy(jobs: &[JobLine], style: Style) -> String {
    let [running, waiting, suspended] = by_state(jobs);
    let paused = match suspended.len() {
        0 => String::new(),
        n => format!(" {} paused.", capital(&are(n))),
    };
    let next = waiting.iter().filter_map(|j| j.start_in_ms).min();
    let next = next.map(|ms| format!(" The next one starts in {}.", about(ms))).unwrap_or_default();
    let mut text = match (running.len(), waiting.len()) {
        (0, 0) => format!("I am not busy: nothing runs and nothing waits.{paused}"),
        (r, 0) => format!("I am working on {}, and nothing waits.{paused}", things(r)),
        (0, 1) => format!("Nothing runs, and one job waits.{next}{paused}"),
        (0, w) => format!("Nothing runs, and {} jobs wait.{next}{paused}", counted(w)),
        (r, 1) => format!("I am working on {}, and one more waits.{next}{paused}", things(r)),
        (r, w) => format!("I am working on {}, and {} more wait.{next}{paused}", things(r), counted(w)),
    };
    if style == Style::Detailed {
        for class in Priority::ALL {
            let count = |of: &[&JobLine]| of.iter().filter(|j| j.priority == class).count();
            let (r, w, p) = (count(&running), count(&waiting), count(&suspended));
            if r + w + p > 0 {
                let _ = write!(text, "\n  {}: {r} running, {w} waiting, {p} paused", class.as_str().to_uppercase());
            }
        }
    }
    text
}

fn title(id: TaskId, jobs: &[JobLine], style: Style) -> String {
    match jobs.iter().find(|j| j.task == id) {
        Some(job) if style == Style::Detailed => format!("{} ({id})", quoted(&job.title, style)),
        Some(job) => quoted(&job.title, style),
        None => format!("job {id}"),
    }
}

fn quoted(title: &str, style: Style) -> String {
    let most = if style == Style::Short { SPOKEN_TITLE_CHARS_MAX } else { SHOWN_TITLE_CHARS_MAX };
    format!("\"{}\"", clipped(title, most))
}

/// Puts the title on one line and truncates it to `chars_max` characters, between words if there are several.
fn clipped(title: &str, chars_max: usize) -> String {
    let line = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some((end, _)) = line.char_indices().nth(chars_max) else { return line };
    let head = line.get(..end).unwrap_or_default();
    let head = head.rsplit_once(' ').map_or(head, |(whole, _)| whole);
    format!("{head}\u{2026}")
}

fn round((n, of): (u32, u32)) -> String {
    format!("round {n} of {of}")
}

fn things(count: usize) -> String {
    if count == 1 { "one thing".to_owned() } else { format!("{} things", counted(count)) }
}

fn are(count: usize) -> String {
    if count == 1 { "one is".to_owned() } else { format!("{} are", counted(count)) }
}

fn counted(count: usize) -> String {
    const NAMES: [&str; 11] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    NAMES.get(count).map_or_else(|| count.to_string(), |name| (*name).to_owned())
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// A duration rounded to the precision of an estimate: "about 2 minutes".
fn about(ms: u64) -> String {
    let unit =
        |n: u64, one: &str, many: &str| if n == 1 { format!("about {one}") } else { format!("about {n} {many}") };
    let seconds = ms / 1_000;
    match seconds {
        0..10 => "a few seconds".to_owned(),
        10..55 => format!("about {} seconds", (seconds + 5) / 10 * 10),
        55..3_570 => unit((seconds + 30) / 60, "a minute", "minutes"),
        3_570..84_600 => unit((seconds + 1_800) / 3_600, "an hour", "hours"),
        _ => unit((seconds.saturating_add(43_200)) / 86_400, "a day", "days"),
    }
}
