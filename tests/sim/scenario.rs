//! The steps of one simulated run: what users say and do, and what operators and the environment do to the process. The
//! faults of a run are chosen elsewhere. All steps are chosen from the seed before the run begins, so that the
//! reduction of a failing run can leave out one step without changing the others.

use annie_core::event::{Mode, Priority};
use annie_testkit::sim::Dice;

/// One action at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The number of the step, which stays the same when other steps are left out.
    pub id: u64,
    pub at_ms: u64,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A user sends a message.
    Say(Say),
    /// A user controls the latest of their tasks through the API, not by a message.
    Control { user: usize, verb: &'static str },
    /// A user follows a conversation and loses the connection now and then.
    Listen { user: usize, conversation: u64 },
    /// A user requests data of another user.
    Spy { user: usize },
    /// An operator kills, stops or restarts one actor. It is the actor at `position` in the list of all actors, modulo
    /// the length of the list.
    Injection { position: u64, how: &'static str },
    /// A user speaks: the voice gate of a backend, by its number modulo the number of backends, is closed. It opens
    /// again after half of `ms` milliseconds if `ms` is even, and otherwise when its lease ends after `ms`.
    Gate { backend: u64, ms: u64 },
    /// A power cut.
    PowerCut,
    /// An operator shuts the process down, and the service manager starts it again.
    Restart,
    /// The process freezes for `ms` milliseconds, and another one is started on the same database. Then the first one
    /// continues for `wakes_ms` milliseconds, in which all of its writes must be refused, and is killed.
    Freeze { ms: u64, wakes_ms: u64 },
    /// The wall clock is set forward, or back if `ms` is negative.
    Jump { ms: i64 },
    /// An operator closes all breakers and takes conversations out of quarantine.
    Tidy,
}

/// A message of a user, with its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Say {
    pub user: usize,
    pub conversation: u64,
    pub text: String,
    pub source: &'static str,
    pub priority: Option<Priority>,
    pub mode: Option<Mode>,
    pub is_steer: bool,
    pub is_private: bool,
    /// The name of its work. A message of the same user with the same name joins one whose work has not begun.
    pub name: Option<&'static str>,
    /// The message waits for the user's latest task.
    pub is_after: bool,
    pub not_before_ms: Option<u64>,
    /// After this time the message is sent again with the same id.
    pub again_ms: Option<u64>,
}

/// The users of every run.
pub const USERS: [&str; 3] = ["ann", "bob", "eve"];
/// Conversations of each user.
pub const CONVERSATIONS: u64 = 3;
/// All steps of a run begin within this time, in milliseconds. Each run uses one of these values.
const SPANS_MS: [u64; 3] = [2_000, 20_000, 120_000];

/// All steps of a run of this seed, ordered by time.
pub fn steps(dice: Dice) -> Vec<Step> {
    let dice = dice.of("steps");
    let span_ms = dice.of("span").pick(&SPANS_MS);
    let says = dice.of("says").between(3, 26);
    let wildness = dice.of("wild").between(0, 6);
    let mut all: Vec<Step> = (0..says + wildness)
        .map(|id| {
            let dice = dice.of("step").nth(id);
            let what = if id < says { of_a_user(dice, id) } else { of_the_world(dice) };
            Step { id, at_ms: dice.of("at").below(span_ms), what }
        })
        .collect();
    all.sort_by_key(|step| (step.at_ms, step.id));
    all
}

const JOB_COMMANDS: [&str; 9] = [
    "pause that",
    "resume that",
    "do that first",
    "cancel that",
    "what are you working on",
    "cancel everything",
    "pause job 1",
    "resume job 1",
    "that is urgent",
];

fn of_a_user(dice: Dice, id: u64) -> What {
    let user = usize::try_from(dice.of("user").below(USERS.len() as u64)).unwrap_or(0);
    let conversation = dice.of("conversation").below(CONVERSATIONS);
    match dice.of("kind").below(100) {
        0..=7 => What::Control { user, verb: dice.of("verb").pick(&["cancel", "suspend", "continue", "first"]) },
        8..=17 => What::Listen { user, conversation },
        18..=21 => What::Spy { user },
        22..=33 => What::Say(Say {
            text: dice.of("order").pick(&JOB_COMMANDS).to_owned(),
            ..say(dice, user, conversation, id)
        }),
        _ => What::Say(say(dice, user, conversation, id)),
    }
}

fn say(dice: Dice, user: usize, conversation: u64, id: u64) -> Say {
    let often = |what: &str, per_mille| dice.of(what).chance(per_mille);
    let priority = often("classed", 350).then(|| dice.of("class").pick(&Priority::ALL[1..]));
    let source = if often("voice", 120) { "voice" } else { "test" };
    let name = often("named", 60).then(|| dice.of("name").pick(&["report", "backup"]));
    // If the run has an agentic backend, this name routes the message to it.
    let address = if often("called", 80) { "Claude, " } else { "" };
    // `@user#` marks the owner of a text, so that a request for another user that contains the text is noticed.
    let text = match name {
        Some(name) => format!("make the {name} for @{}#", USERS[user]),
        None => format!("{address}please see to thing {id} of @{}#", USERS[user]),
    };
    Say {
        user,
        conversation,
        text,
        source,
        priority,
        mode: often("moded", 400).then(|| dice.of("mode").pick(&[Mode::MultiAgent, Mode::SingleLoop, Mode::Direct])),
        is_steer: often("steer", 80),
        is_private: often("private", 60),
        name,
        is_after: often("after", 60),
        not_before_ms: often("later", 50).then(|| dice.of("later_ms").between(1, 30_000)),
        again_ms: often("again", 200).then(|| dice.of("again_ms").below(3_000)),
    }
}

fn of_the_world(dice: Dice) -> What {
    let ms = |what: &str, low, high| dice.of(what).between(low, high);
    match dice.of("world").below(100) {
        0..=44 => What::Injection {
            position: dice.of("place").roll(),
            how: dice.of("how").pick(&["kill", "stop", "restart"]),
        },
        45..=56 => What::Gate { backend: dice.of("backend").below(2), ms: ms("gate", 500, 20_000) },
        57..=70 => What::PowerCut,
        71..=77 => What::Restart,
        78..=86 => What::Freeze { ms: ms("freeze", 10, 9_000), wakes_ms: ms("wakes", 1, 4_000) },
        87..=93 => {
            let hour = i64::try_from(ms("jump", 1, 7_200_000)).unwrap_or(0);
            What::Jump { ms: if dice.of("back").chance(500) { -hour } else { hour } }
        }
        _ => What::Tidy,
    }
}
