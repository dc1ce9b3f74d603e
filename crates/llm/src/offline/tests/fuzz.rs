//! Any text at all gives a reply, soon.

use std::time::Instant;

use annie_core::{command, event::Mode, limits::SubAgentInterface};
use proptest::prelude::*;

use super::{
    super::{execute::command_line, goal::goals, testing::catalog},
    world::{World, obliging},
};

/// Pieces of requests, well and badly put together.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gives_a_reply_in_every_mode(said in "\\PC{0,80}") {
        for mode in [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct] {
            let answer = World::new(SubAgentInterface::Cmd, obliging).turn(mode, &said);
            prop_assert!(!answer.trim().is_empty());
        }
    }

    #[test]
    fn pieces_of_requests_give_a_reply(pieces in prop::collection::vec(piece(), 0..14)) {
        let said = pieces.join(" ");
        let answer = World::new(SubAgentInterface::Cmd, obliging).turn(Mode::MultiAgent, &said);
        prop_assert!(!answer.trim().is_empty());
    }

    #[test]
    fn every_command_is_read_back_as_it_was_meant(pieces in prop::collection::vec(piece(), 0..10)) {
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
fn long_texts_take_time_in_proportion_to_their_length() {
    let of = |piece: &str, bytes: usize| piece.repeat(bytes / piece.len());
    for piece in [
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
    ] {
        let time = |bytes: usize| {
            let said = of(piece, bytes);
            let began = Instant::now();
            let answer = World::new(SubAgentInterface::Cmd, |_, _| "ok".to_owned()).turn(Mode::MultiAgent, &said);
            assert!(!answer.is_empty());
            began.elapsed().as_secs_f64()
        };
        let (short, long) = (time(20_000), time(100_000));
        // Five times as long; quadratic would be twenty-five times. The floor forgives a busy machine.
        assert!(long < 3.0 || long < short * 12.0, "{piece:?}: {short:.3} s, then {long:.3} s");
    }
}
