//! Which of the jobs a command means. The kernel never guesses between two: it asks.

use super::{JobLine, Target, Verb, understand, words::stems};
use crate::{
    event::Priority,
    ids::{ConversationId, TaskId},
};

/// What a target turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// This job.
    One(TaskId),
    /// Any of these: nothing is done, the user is asked which.
    Several(Vec<TaskId>),
    /// All of these; never empty.
    All(Vec<TaskId>),
    /// This job, and it is as the user wants it already, or cannot become so: nothing is done.
    Already(TaskId),
    /// No such job.
    None,
}

/// Looks for the target among the user's open jobs. `here` is the conversation in which the command was given.
///
/// "That" is a job of this conversation before others, one that a person asked for before the system's own, the running one
/// before those that wait, and the newest of them; for "first" and "urgent" those that wait come before the running one, and
/// for "resume" it is the one suspended last. Titles match if they hold all words, whatever their endings. Messages that are
/// job commands themselves are never meant.
#[must_use]
pub fn resolve(target: &Target, jobs: &[JobLine], verb: Verb, here: Option<ConversationId>) -> Resolution {
    match target {
        Target::That => that(jobs, verb, here),
        Target::All => {
            let all: Vec<TaskId> = jobs.iter().filter(|j| verb.fits(j) && !is_command(j)).map(|j| j.task).collect();
            if all.is_empty() { Resolution::None } else { Resolution::All(all) }
        }
        Target::Number(n) => one(jobs.iter().find(|j| j.number == *n), verb),
        Target::Id(id) => one(jobs.iter().find(|j| j.task == *id), verb),
        Target::Words(words) => titled(words, jobs, verb, here),
    }
}

fn one(job: Option<&JobLine>, verb: Verb) -> Resolution {
    match job {
        None => Resolution::None,
        Some(job) if verb.fits(job) => Resolution::One(job.task),
        Some(job) => Resolution::Already(job.task),
    }
}

/// Whether the job is itself a message like "cancel that", which a door accepted before it was understood.
fn is_command(job: &JobLine) -> bool {
    understand(&job.title).is_some_and(|c| c.is_certain())
}

fn that(jobs: &[JobLine], verb: Verb, here: Option<ConversationId>) -> Resolution {
    let open = || jobs.iter().filter(|j| !j.state.is_ended() && !is_command(j));
    let comes_to_mind = |job: &&JobLine| {
        let order = match verb {
            Verb::Resume => (0, job.suspended_at),
            Verb::First | Verb::Urgent => (u8::from(!job.is_running()), None),
            Verb::Cancel | Verb::Pause => (u8::from(job.is_running()) * 2 + u8::from(job.is_waiting()), None),
        };
        (Some(job.conversation) == here, job.priority <= Priority::Normal, order, job.task)
    };
    // "Go on" is also said to a turn that paused: what was put off has to be named.
    let fits = |j: &&JobLine| verb.fits(j) && (verb != Verb::Resume || j.is_suspended());
    match open().filter(fits).max_by_key(comes_to_mind) {
        Some(job) => Resolution::One(job.task),
        // Nothing is suspended: then "resume" means something else.
        None if verb == Verb::Resume => Resolution::None,
        None => one(open().max_by_key(comes_to_mind), verb),
    }
}

fn titled(words: &str, jobs: &[JobLine], verb: Verb, here: Option<ConversationId>) -> Resolution {
    let wanted = stems(words);
    let is_meant = |job: &&JobLine| {
        let title = stems(&job.title);
        wanted.iter().all(|w| title.contains(w)) && !job.state.is_ended() && understand(&job.title).is_none()
    };
    if wanted.is_empty() {
        return Resolution::None;
    }
    let meant: Vec<&JobLine> = jobs.iter().filter(is_meant).collect();
    let fit: Vec<&JobLine> = meant.iter().copied().filter(|j| verb.fits(j)).collect();
    let near: Vec<&JobLine> = fit.iter().copied().filter(|j| Some(j.conversation) == here).collect();
    match (fit.as_slice(), near.as_slice()) {
        ([], _) => one(meant.first().copied(), verb),
        ([job], _) | (_, [job]) => Resolution::One(job.task),
        _ => Resolution::Several(fit.iter().map(|j| j.task).collect()),
    }
}
