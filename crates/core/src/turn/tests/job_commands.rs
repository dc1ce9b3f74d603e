//! Job commands: interpreted, executed and answered without blocking turns.

use super::world::World;
use crate::{
    event::{EventBody, Inbound, JobVerb, Priority, ResumeCause},
    ids::TaskId,
    turn::Directive,
};

fn job_command(w: &mut World, text: &str) -> TaskId {
    w.receive(Inbound { order: true, ..World::inbound(text) })
}

fn interpreted(w: &mut World, task: TaskId, verb: JobVerb, targets: &[TaskId]) {
    w.happens(task, EventBody::Ordered { verb, targets: targets.to_vec(), text: "I stopped it.".to_owned() });
}

fn executed(w: &mut World, task: TaskId) {
    let body = EventBody::answered("I stopped it.");
    w.happens(task, body);
}

#[test]
fn job_command_is_interpreted_once_then_executed_and_answered() {
    let mut w = World::new();
    let work = w.say_as(Priority::Normal, "Report");
    let stop = job_command(&mut w, "Stop the report");
    let wanted = w.conv.outstanding(w.now);
    assert!(wanted.contains(&Directive::Understand { task: stop, text: "Stop the report".to_owned() }));
    interpreted(&mut w, stop, JobVerb::Cancel, &[work]);
    let execute = Directive::CarryOut {
        task: stop,
        verb: JobVerb::Cancel,
        targets: vec![work],
        text: "I stopped it.".to_owned(),
    };
    assert!(w.conv.outstanding(w.now).contains(&execute));
    interpreted(&mut w, stop, JobVerb::First, &[]);
    w.restart(ResumeCause::Restart);
    assert!(w.conv.outstanding(w.now).contains(&execute), "the first interpretation is kept, also after a restart");
    w.cancel(work);
    executed(&mut w, stop);
    assert_eq!(w.answer(stop), "I stopped it.");
    assert!(w.conv.is_idle());
    w.say("And now?");
    let shown: Vec<String> = w.request().messages.iter().map(super::world::text_of).collect();
    assert!(shown.contains(&"Stop the report".to_owned()) && shown.contains(&"I stopped it.".to_owned()), "{shown:?}");
}

#[test]
fn job_command_and_turn_do_not_wait_for_each_other() {
    let mut w = World::new();
    let one = w.say("one");
    let first = job_command(&mut w, "Hurry");
    let second = job_command(&mut w, "Hurry more");
    assert_eq!(w.conv.outstanding(w.now).len(), 2, "the turn's round, and the first job command");
    assert!(w.conv.inbox.is_empty() && w.conv.turns.len() == 1);
    interpreted(&mut w, first, JobVerb::Tell, &[]);
    executed(&mut w, first);
    w.replies("1", &[]);
    assert_eq!((w.answer(one), w.answer(first)), ("1".to_owned(), "I stopped it.".to_owned()));
    let two = w.say("two");
    assert_eq!(w.current(), Some(two));
    assert!(!w.conv.is_idle());
    w.replies("2", &[]);
    assert!(!w.conv.is_idle(), "a job command is open");
    w.cancel(second);
    assert_eq!(w.ending(second).0, "cancelled");
    assert!(w.conv.is_idle());
}

#[test]
fn job_commands_are_executed_in_order() {
    let mut w = World::new();
    let work = w.say_as(Priority::Normal, "Report");
    let (pause, resume_command) =
        (job_command(&mut w, "Pause the report"), job_command(&mut w, "Go on with the report"));
    let is_meant = |w: &World, wanted: TaskId| {
        let of = |d: &Directive| match d {
            Directive::Understand { task, .. } | Directive::CarryOut { task, .. } => Some(*task),
            _ => None,
        };
        w.conv.outstanding(w.now).iter().filter_map(of).eq([wanted])
    };
    assert!(is_meant(&w, pause));
    interpreted(&mut w, pause, JobVerb::Suspend, &[work]);
    assert!(is_meant(&w, pause), "the second command is interpreted after the first is done");
    w.restart(ResumeCause::Crash);
    assert!(is_meant(&w, pause), "the same holds after a restart");
    executed(&mut w, pause);
    assert!(is_meant(&w, resume_command));
    w.cancel(resume_command);
    assert_eq!(w.ending(resume_command).0, "cancelled");
}

#[test]
fn job_command_can_be_cancelled_during_execution_and_late_result_is_ignored() {
    let mut w = World::new();
    let task = job_command(&mut w, "Stop");
    interpreted(&mut w, task, JobVerb::Tell, &[]);
    w.cancel(task);
    assert_eq!(w.ending(task).0, "cancelled");
    let before = w.conv.clone();
    let late = EventBody::Ordered { verb: JobVerb::Tell, targets: Vec::new(), text: "x".to_owned() };
    w.conv.fold(w.now, task, &crate::ids::AgentId::orchestrator(), &late);
    assert_eq!(w.conv, before);
}

#[test]
fn job_command_has_no_class_lane_or_deadline() {
    let mut w = World::new();
    let task = job_command(&mut w, "Stop");
    assert_eq!(w.conv.next_deadline(&crate::limits::Deadlines::default()), None);
    w.suspend(task);
    w.make(task, Priority::Low);
    w.happens(task, EventBody::DeadlinePassed { hard: true, dead_letters: None });
    interpreted(&mut w, task, JobVerb::Tell, &[]);
    executed(&mut w, task);
    assert_eq!(w.ending(task).0, "answered");
}

#[test]
fn reminder_of_a_text_of_others_gives_its_origins_to_later_turns() {
    let mut w = World::new();
    let reminder = w.receive(Inbound {
        order: true,
        client_id: "reminder:7:1".to_owned(),
        origins: vec!["web.fetch".to_owned()],
        ..World::inbound("[Reminder of task #3]\nReminder: Post the vault (task #3).")
    });
    executed(&mut w, reminder);
    w.restart(ResumeCause::Restart);
    w.say("And now?");
    assert_eq!(w.turn().main.provenance.origins(), ["web.fetch"]);
}
