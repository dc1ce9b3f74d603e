//! Finds the jobs that a command refers to. If several jobs match equally, the kernel asks the user and never guesses.

use super::{JobLine, Target, Verb, understand, words::stems};
use crate::{
    event::Priority,
    ids::{ConversationId, TaskId},
};

/// The result of resolving a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// One job.
    One(TaskId),
    /// Several candidates. The command is not executed; the user is asked to choose.
    Several(Vec<TaskId>),
    /// Several jobs, all of which are meant; never empty.
    All(Vec<TaskId>),
    /// One job that already has the requested state, or cannot reach it. The command is not executed.
    Already(TaskId),
    /// No matching job.
    None,
}

/// Resolves the target among the user's open jobs. `here` is the conversation in which the command was given.
///
/// For "that", jobs are ranked as follows: jobs of this conversation before others, jobs requested by a person before the
/// system's own, the running job before waiting ones, newer before older. For "first" and "urgent", waiting jobs rank before
/// the running one. For "resume", the job suspended last is chosen. A title matches if it contains all words, regardless of
/// their endings. Messages that are themselves job commands never match.
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

/// Whether the job is itself a message like "cancel that", which a front end accepted before it was recognised as a command.
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
    // "Go on" may also refer to a paused turn, so a deferred job must be named explicitly.
    let fits = |j: &&JobLine| verb.fits(j) && (verb != Verb::Resume || j.is_suspended());
    match open().filter(fits).max_by_key(comes_to_mind) {
        Some(job) => Resolution::One(job.task),
        // No job is suspended, so "resume" has another meaning.
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
