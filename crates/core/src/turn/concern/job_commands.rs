//! Job commands: messages about tasks, which the kernel carries out without a turn.

use serde::{Deserialize, Serialize};

use crate::{
    event::{Inbound, JobVerb},
    ids::{Seq, TaskId},
    turn::{conversation::Conversation, directive::Directive},
};

/// A job command: a message about tasks, which the kernel carries out without a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobCommand {
    /// Its task.
    pub task: TaskId,
    /// Its sequence number in the log, which is also its queue position.
    pub seq: Seq,
    /// The message.
    pub inbound: Inbound,
    /// The resolved meaning. Once it is set, exactly this is carried out.
    pub meant: Option<Meant>,
}

/// The resolved meaning of a job command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meant {
    /// The operation.
    pub verb: JobVerb,
    /// The tasks that it applies to.
    pub targets: Vec<TaskId>,
    /// The reply to the user.
    pub text: String,
}

impl JobCommand {
    pub(in crate::turn) fn directive(&self) -> Directive {
        match &self.meant {
            None => Directive::Understand { task: self.task, text: self.inbound.text.clone() },
            Some(Meant { verb, targets, text }) => {
                Directive::CarryOut { task: self.task, verb: *verb, targets: targets.clone(), text: text.clone() }
            }
        }
    }
}

impl Conversation {
    pub(in crate::turn) fn resolve_job_command(&mut self, task: TaskId, verb: JobVerb, targets: &[TaskId], text: &str) {
        if let Some(command) = self.job_commands.iter_mut().find(|o| o.task == task && o.meant.is_none()) {
            command.meant = Some(Meant { verb, targets: targets.to_vec(), text: text.to_owned() });
        }
    }
}
