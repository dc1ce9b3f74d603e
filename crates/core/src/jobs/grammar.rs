//! The phrases of job commands, with one function for each request. The functions receive the words without politeness and
//! must match all of them: a phrase with one additional word is an ordinary request.

use super::{JobCommand, JobRequest, Target, Verb, target::target};

/// Questions for the list of jobs.
const LIST: &[&str] = &[
    "jobs",
    "status",
    "status update",
    "job status",
    "what is the status",
    "what is your status",
    "give me a status update",
    "what are you working on",
    "what are you doing",
    "what are you up to",
    "what are you busy with",
    "what else are you working on",
    "what else are you doing",
    "what tasks are you working on",
    "what jobs are you working on",
    "what jobs are running",
    "what jobs are there",
    "what is running",
    "what is queued",
    "what is in the queue",
    "what is in your queue",
    "what is on your plate",
    "what you are working on",
    "what you are doing",
    "are you working on anything",
    "are you working on something",
    "list jobs",
    "list the jobs",
    "list your jobs",
    "list all jobs",
    "show jobs",
    "show the jobs",
    "show your jobs",
    "show me the jobs",
    "show me your jobs",
    "show me what you are working on",
    "show me what you are doing",
    "show the queue",
    "show me the queue",
    "show me your queue",
];
/// Questions about the load.
const BUSY: &[&str] = &[
    "top",
    "busy",
    "are you busy",
    "how busy are you",
    "how busy you are",
    "how much are you doing",
    "how much do you have to do",
    "how much do you have on",
    "how long is the queue",
    "how long is your queue",
    "how full is the queue",
    "how full is your queue",
    "how many jobs are running",
    "how many jobs are waiting",
    "how many jobs are there",
    "how many jobs do you have",
];

/// The command that these words form.
pub(super) fn command(words: &[&str]) -> Option<JobCommand> {
    question(words).or_else(|| {
        cancel(words)
            .or_else(|| pause(words))
            .or_else(|| resume(words))
            .or_else(|| first(words))
            .or_else(|| urgent(words))
    })
}

fn question(words: &[&str]) -> Option<JobCommand> {
    let (words, is_detailed) = match words {
        [words @ .., "in", "detail" | "full"] | ["in", "detail", words @ ..] => (words, true),
        _ => (words, false),
    };
    let text = words.join(" ");
    let request = if LIST.contains(&text.as_str()) {
        JobRequest::List
    } else if BUSY.contains(&text.as_str()) {
        JobRequest::Busy
    } else {
        return None;
    };
    Some(JobCommand { request, is_detailed, is_certain: true })
}

/// A command for the job that these words name.
fn act(verb: Verb, words: &[&str]) -> Option<JobCommand> {
    let (target, is_certain) = target(words)?;
    // "Resume" may also continue a paused turn.
    let is_certain = is_certain && !(verb == Verb::Resume && target == Target::That);
    Some(JobCommand { request: JobRequest::Act { verb, target }, is_detailed: false, is_certain })
}

/// A command for the most likely job, in words that may have another meaning.
fn ambiguous(verb: Verb) -> Option<JobCommand> {
    let request = JobRequest::Act { verb, target: Target::That };
    Some(JobCommand { request, is_detailed: false, is_certain: false })
}

fn cancel(words: &[&str]) -> Option<JobCommand> {
    match words {
        ["never", "mind"] | ["forget", "it" | "that" | "this"] | ["forget", "about", "it" | "that" | "this"] => {
            ambiguous(Verb::Cancel)
        }
        ["never", "mind", "please" | "and" | "about", rest @ ..]
        | ["never", "mind", rest @ ..]
        | ["forget", "about" | "it" | "that", rest @ ..] => cancel(rest).or_else(|| match rest {
            ["the", ..] => act(Verb::Cancel, rest),
            _ => None,
        }),
        ["cancel" | "stop" | "abort" | "kill"] | ["do", "not", "bother"] => ambiguous(Verb::Cancel),
        ["stop" | "quit", "doing", rest @ ..]
        | ["stop" | "quit", "working", "on", rest @ ..]
        | ["do", "not", "bother", "with", rest @ ..]
        | ["do", "not", "do", rest @ ..]
        | ["call", "off", rest @ ..]
        | ["cancel" | "stop" | "abort" | "kill" | "drop" | "scrap", rest @ ..] => act(Verb::Cancel, rest),
        _ => None,
    }
}

fn pause(words: &[&str]) -> Option<JobCommand> {
    match words {
        ["pause" | "suspend"] => ambiguous(Verb::Pause),
        ["hold", "on", "with", rest @ ..]
        | ["hold", "off", "on" | "with", rest @ ..]
        | ["wait", "with", rest @ ..]
        | ["put", rest @ .., "on", "hold"]
        | ["put" | "set", rest @ .., "aside"]
        | ["put", "aside", rest @ ..]
        | ["pause" | "suspend", rest @ ..] => act(Verb::Pause, rest),
        _ => None,
    }
}

/// "Continue" and "go on" alone are not job commands: they continue a paused turn.
fn resume(words: &[&str]) -> Option<JobCommand> {
    match words {
        ["resume" | "unpause"] => ambiguous(Verb::Resume),
        ["resume" | "continue", "work" | "working", "on" | "with", rest @ ..]
        | ["go" | "carry", "on", "with", rest @ ..]
        | ["keep", "going", "with", rest @ ..]
        | ["keep", "working", "on", rest @ ..]
        | ["get", "back", "to", rest @ ..]
        | ["pick" | "take", "up", rest @ .., "again"]
        | ["pick" | "take", rest @ .., "up", "again"]
        | ["pick", rest @ .., "back", "up"]
        | ["continue" | "resume", "with", rest @ ..]
        | ["continue" | "resume" | "unpause", rest @ ..] => act(Verb::Resume, rest),
        _ => None,
    }
}

fn first(words: &[&str]) -> Option<JobCommand> {
    match words {
        // Also an answer to "where shall I begin?".
        ["start" | "begin", "with", rest @ ..] => act(Verb::First, rest).map(|c| JobCommand { is_certain: false, ..c }),
        ["do" | "finish" | "run" | "take" | "handle", rest @ .., "first" | "next"]
        | ["work", "on", rest @ .., "first" | "next"]
        | ["do" | "finish" | "run", rest @ .., "before", "anything" | "everything", "else"]
        | ["first", "do" | "finish", rest @ ..]
        | ["move", rest @ .., "up"]
        | ["move" | "bump" | "put", rest @ .., "to" | "at", "the", "front" | "top"]
        | ["move" | "bump" | "put", rest @ .., "to" | "at", "the", "front" | "top", "of", "the", "queue" | "list"]
        | ["make", rest @ .., "a" | "the" | "your", "priority"]
        | ["make", rest @ .., "a" | "the" | "your", "top" | "first", "priority"]
        | ["prioritise", rest @ ..]
        | [rest @ .., "first"] => act(Verb::First, rest),
        _ => None,
    }
}

fn urgent(words: &[&str]) -> Option<JobCommand> {
    match words {
        ["urgent" | "asap" | "hurry"] | ["hurry", "up"] => ambiguous(Verb::Urgent),
        ["hurry", "up", "with", rest @ ..]
        | ["hurry", "with", rest @ ..]
        | ["make", rest @ .., "urgent"]
        | ["i", "need", rest @ .., "urgently" | "asap" | "immediately"]
        | [rest @ .., "is", "urgent"]
        | [rest @ .., "cannot", "wait"] => act(Verb::Urgent, rest),
        _ => None,
    }
}
