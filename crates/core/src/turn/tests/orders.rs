//! Orders about tasks: understood, carried out, answered; never in anybody's way.

use super::world::World;
use crate::{
    event::{EventBody, Inbound, OrderVerb, Priority, ResumeCause},
    ids::TaskId,
    turn::Directive,
};

fn order(w: &mut World, text: &str) -> TaskId {
    w.receive(Inbound { order: true, ..World::inbound(text) })
}

fn understood(w: &mut World, task: TaskId, verb: OrderVerb, targets: &[TaskId]) {
    w.happens(task, EventBody::Ordered { verb, targets: targets.to_vec(), text: "I stopped it.".to_owned() });
}

fn carried_out(w: &mut World, task: TaskId) {
    let body = EventBody::answered("I stopped it.");
    w.happens(task, body);
}

#[test]
fn an_order_is_understood_once_then_carried_out_and_answered() {
    let mut w = World::new();
    let work = w.say_as(Priority::Normal, "Report");
    let stop = order(&mut w, "Stop the report");
    let wanted = w.conv.outstanding(w.now);
    assert!(wanted.contains(&Directive::Understand { task: stop, text: "Stop the report".to_owned() }));
    understood(&mut w, stop, OrderVerb::Cancel, &[work]);
    let carry_out = Directive::CarryOut {
        task: stop,
        verb: OrderVerb::Cancel,
        targets: vec![work],
        text: "I stopped it.".to_owned(),
    };
    assert!(w.conv.outstanding(w.now).contains(&carry_out));
    understood(&mut w, stop, OrderVerb::First, &[]);
    w.restart(ResumeCause::Restart);
    assert!(w.conv.outstanding(w.now).contains(&carry_out), "the first understanding holds, also after a restart");
    w.cancel(work);
    carried_out(&mut w, stop);
    assert_eq!(w.answer(stop), "I stopped it.");
    assert!(w.conv.is_idle());
    w.say("And now?");
    let shown: Vec<String> = w.request().messages.iter().map(super::world::text_of).collect();
    assert!(shown.contains(&"Stop the report".to_owned()) && shown.contains(&"I stopped it.".to_owned()), "{shown:?}");
}

#[test]
fn an_order_waits_for_no_turn_and_no_turn_waits_for_it() {
    let mut w = World::new();
    let one = w.say("one");
    let first = order(&mut w, "Hurry");
    let second = order(&mut w, "Hurry more");
    assert_eq!(w.conv.outstanding(w.now).len(), 2, "the turn's round, and the first order");
    assert!(w.conv.inbox.is_empty() && w.conv.turns.len() == 1);
    understood(&mut w, first, OrderVerb::Tell, &[]);
    carried_out(&mut w, first);
    w.replies("1", &[]);
    assert_eq!((w.answer(one), w.answer(first)), ("1".to_owned(), "I stopped it.".to_owned()));
    let two = w.say("two");
    assert_eq!(w.current(), Some(two));
    assert!(!w.conv.is_idle());
    w.replies("2", &[]);
    assert!(!w.conv.is_idle(), "an order is open");
    w.cancel(second);
    assert_eq!(w.ending(second).0, "cancelled");
    assert!(w.conv.is_idle());
}

#[test]
fn orders_are_carried_out_in_their_order() {
    let mut w = World::new();
    let work = w.say_as(Priority::Normal, "Report");
    let (pause, go_on) = (order(&mut w, "Pause the report"), order(&mut w, "Go on with the report"));
    let is_meant = |w: &World, wanted: TaskId| {
        let of = |d: &Directive| match d {
            Directive::Understand { task, .. } | Directive::CarryOut { task, .. } => Some(*task),
            _ => None,
        };
        w.conv.outstanding(w.now).iter().filter_map(of).eq([wanted])
    };
    assert!(is_meant(&w, pause));
    understood(&mut w, pause, OrderVerb::Suspend, &[work]);
    assert!(is_meant(&w, pause), "the second one is understood when the first one is done");
    w.restart(ResumeCause::Crash);
    assert!(is_meant(&w, pause), "also after a death");
    carried_out(&mut w, pause);
    assert!(is_meant(&w, go_on));
    w.cancel(go_on);
    assert_eq!(w.ending(go_on).0, "cancelled");
}

#[test]
fn an_order_can_be_cancelled_while_it_is_carried_out_and_what_comes_late_changes_nothing() {
    let mut w = World::new();
    let task = order(&mut w, "Stop");
    understood(&mut w, task, OrderVerb::Tell, &[]);
    w.cancel(task);
    assert_eq!(w.ending(task).0, "cancelled");
    let before = w.conv.clone();
    let late = EventBody::Ordered { verb: OrderVerb::Tell, targets: Vec::new(), text: "x".to_owned() };
    w.conv.fold(w.now, task, &crate::ids::AgentId::orchestrator(), &late);
    assert_eq!(w.conv, before);
}

#[test]
fn an_order_has_no_class_no_lane_and_no_deadline() {
    let mut w = World::new();
    let task = order(&mut w, "Stop");
    assert_eq!(w.conv.next_deadline(&crate::limits::Deadlines::default()), None);
    w.suspend(task);
    w.make(task, Priority::Low);
    w.happens(task, EventBody::DeadlinePassed { hard: true, letters: None });
    understood(&mut w, task, OrderVerb::Tell, &[]);
    carried_out(&mut w, task);
    assert_eq!(w.ending(task).0, "answered");
}
