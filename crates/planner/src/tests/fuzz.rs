//! Tests that any text gives a reply in reasonable time.

use std::time::Instant;

use annie_core::{command, event::Mode, limits::SubAgentInterface};
use proptest::prelude::*;

use super::{
    super::{execute::command_line, goal::goals, testing::catalog},
    world::{World, bundled_runner},
};

/// Fragments of requests, well-formed and malformed.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("create a task to".to_owned()),
        Just("remember that".to_owned()),
        Just("and then".to_owned()),
        Just("delete the task".to_owned()),
        Just("add to my note".to_owned()),
        Just("note titled".to_owned()),
        Just("what is due".to_owned()),
        Just("mark #3 as done".to_owned()),
        Just("due tomorrow at".to_owned()),
        Just("with high priority".to_owned()),
        Just("tasks.create --title".to_owned()),
        Just("add tasks:\n-".to_owned()),
        Just("in 2".to_owned()),
        Just("the end of".to_owned()),
        Just("İstanbul ẞ ǅ".to_owned()),
        "[\"'“”‘’,;:.!?\\n\\t `\\\\#-]{1,4}",
        "\\PC{0,12}",
    ]
}

/// Requests that would delete if they were sent plainly.
fn deletion() -> impl Strategy<Value = String> {
    let phrase = prop_oneof![
        Just("delete task 3"),
        Just("please remove task #3"),
        Just("erase the milk task"),
        Just("get rid of task 7"),
        Just("delete #4"),
        Just("Delete task 2. Bye"),
        Just("yes, delete task 3"),
        Just("and then delete task 1"),
    ];
    phrase.prop_map(str::to_owned)
}

/// Text before a quotation by another author.
fn lead_in() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("summarize this email"),
        Just("note"),
        Just("remember this"),
        Just("create a task"),
        Just("create a note titled X"),
        Just("Bob wrote"),
        Just("complete task 1"),
        Just("what is due"),
        Just("translate"),
        Just("hello"),
        Just("Annie"),
        Just("please do two things"),
        Just("search my notes for"),
        Just("delete task 9"),
        Just(""),
    ]
}

/// The commands that were run and change data.
fn effects(ran: &[String]) -> Vec<&String> {
    let effect = ["create", "update", "delete", "restore", "rename", "cancel", "save", "edit", "await"];
    ran.iter()
        .filter(|line| effect.iter().any(|e| line.contains(&format!(".{e}")) || line.contains(&format!("__{e}"))))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn planner_replies_to_any_text_in_every_mode(sent in "\\PC{0,80}") {
        for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
            let answer = World::new(SubAgentInterface::Cmd, bundled_runner).turn(mode, &sent);
            prop_assert!(!answer.trim().is_empty());
        }
    }

    #[test]
    fn planner_replies_to_fragments_of_requests(pieces in prop::collection::vec(piece(), 0..14)) {
        let sent = pieces.join(" ");
        let answer = World::new(SubAgentInterface::Cmd, bundled_runner).turn(Mode::MultiAgent, &sent);
        prop_assert!(!answer.trim().is_empty());
    }

    #[test]
    fn deletion_in_quotes_after_colon_or_on_second_line_is_never_carried_out(
        lead in lead_in(), deletion in deletion(), shape in 0..5_u8, more in "[a-z ]{0,12}"
    ) {
        let lead = if lead.is_empty() && shape != 3 { "Annie" } else { lead };
        let sent = match shape {
            0 => format!("{lead}: {deletion} {more}"),
            1 => format!("{lead} \"{deletion}\" {more}"),
            2 => format!("{lead} {more}\n{deletion}"),
            3 => format!("{lead} “{deletion}”"),
            _ => format!("{lead} {more}\n\n> {deletion}\n{more}"),
        };
        for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
            let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
            let answer = world.turn(mode, &sent);
            let deleted = world.ran.iter().any(|line| line.contains("delete --id") || line.contains("__delete") || line.contains("tasks.delete {"));
            prop_assert!(!deleted, "{mode:?} {sent:?}: {:?}", world.ran);
            prop_assert!(!answer.trim().is_empty());
        }
    }

    #[test]
    fn payload_of_a_request_has_no_further_effects(
        lead in lead_in(), commands in prop::collection::vec(piece(), 1..6), quoted in any::<bool>()
    ) {
        let commands = commands.join(" ").replace(['"', '“', '”', '„', '`', '«'], "");
        let sent = if quoted { format!("{lead} \"{commands}\"") } else { format!("{lead}: {commands}") };
        let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
        world.turn(Mode::MultiAgent, &sent);
        prop_assert!(effects(&world.ran).len() <= 1, "{sent:?}: {:?}", world.ran);
    }

    #[test]
    fn plain_requests_have_at_most_one_effect_each(count in 1..5_usize, kinds in prop::collection::vec(0..4_usize, 5)) {
        let plain = ["create a task to call Bob", "remember that Bob likes tea", "mark task 3 as done", "what is due"];
        let sent: Vec<&str> = kinds.iter().take(count).map(|kind| plain[*kind]).collect();
        let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
        world.turn(Mode::MultiAgent, &sent.join("; "));
        let wanted = kinds.iter().take(count).filter(|kind| **kind < 3).count();
        prop_assert_eq!(effects(&world.ran).len(), wanted, "{:?}: {:?}", sent, world.ran);
    }

    #[test]
    fn command_line_parses_back_to_the_same_call(pieces in prop::collection::vec(piece(), 0..10)) {
        let catalog = catalog();
        for goal in goals(&pieces.join(" "), "", &catalog) {
            let Some(call) = goal.next() else { continue };
            let parsed = command::parse(&command_line(&call)).unwrap();
            prop_assert_eq!(&parsed.name, &call.skill);
            let skill = catalog.get(&call.skill).unwrap();
            for ((flag, value), (name, meant)) in parsed.flags.iter().zip(&call.args) {
                prop_assert_eq!(flag, name);
                prop_assert!(skill.arg(flag).is_some());
                if let (Some(value), Some(meant)) = (value, meant.as_str()) {
                    prop_assert_eq!(value, meant);
                }
            }
        }
    }
}

#[test]
fn payload_without_a_request_before_its_colon_is_one_request() {
    for (sent, effects_max) in [
        (": tasks.create --title a and then tasks.create --title b", 1),
        (": remember that Bob likes tea; create a task to call Bob", 1),
        ("tasks.create --title", 0),
        (": tasks.create --title and then tasks.create --title", 1),
    ] {
        let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
        let answer = world.turn(Mode::MultiAgent, sent);
        assert!(effects(&world.ran).len() <= effects_max, "{sent}: {answer}: {:?}", world.ran);
    }
}

#[test]
fn flag_without_its_value_is_asked_for() {
    let mut world = World::new(SubAgentInterface::Cmd, bundled_runner);
    let answer = world.turn(Mode::MultiAgent, "tasks.create --title");
    assert!(world.ran.is_empty() && answer.contains("needs a value after --title"), "{answer}: {:?}", world.ran);
}

#[test]
fn planner_takes_linear_time_for_long_texts() {
    let of = |(start, piece): (&str, &str), bytes: usize| format!("{start}{}", piece.repeat(bytes / piece.len()));
    let started = [("what time is it ", "a "), ("how many days until ", "christmas "), ("when is ", "1 ")];
    let repeated = [
        "create a task to call Bob, and then ",
        "word ",
        "x",
        "\"",
        "' ",
        "a, ",
        "and then ",
        "remember that ",
        "due tomorrow at ",
        "#1 ",
        ": ",
        "\n- ",
        "add tasks: a, ",
        "the end of the ",
        "😀",
    ];
    for piece in repeated.map(|piece| ("", piece)).into_iter().chain(started) {
        let time = |bytes: usize| {
            let sent = of(piece, bytes);
            let began = Instant::now();
            let answer = World::new(SubAgentInterface::Cmd, |_, _| "ok".to_owned()).turn(Mode::MultiAgent, &sent);
            assert!(!answer.is_empty());
            began.elapsed().as_secs_f64()
        };
        let (short, long) = (time(20_000), time(100_000));
        // The text is five times as long; quadratic time would be 25 times as long. The lower bound tolerates a busy
        // machine.
        assert!(long < 3.0 || long < short * 12.0, "{piece:?}: {short:.3} s, then {long:.3} s");
    }
}
