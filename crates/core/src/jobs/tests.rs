//! Tables of phrases that are job commands, and of ordinary requests.

mod answers;
mod properties;

use uuid::Uuid;

use super::*;
use crate::ids::{ConversationId, TaskId};

fn act(verb: Verb, target: Target) -> JobRequest {
    JobRequest::Act { verb, target }
}

fn words(text: &str) -> Target {
    Target::Words(text.into())
}

fn task(n: u128) -> TaskId {
    TaskId::from_uuid(Uuid::from_u128(n))
}

fn conversation(n: u128) -> ConversationId {
    ConversationId::from_uuid(Uuid::from_u128(n))
}

fn waiting(n: usize, title: &str) -> JobLine {
    JobLine {
        number: n,
        task: task(n as u128),
        title: title.into(),
        state: TaskState::Queued,
        suspended_at: None,
        is_deferred: false,
        awaits_approval: false,
        has_model_failed: false,
        priority: Priority::Normal,
        position: Some(n),
        round: None,
        start_in_ms: None,
        deferred_until: None,
        ends_in_ms_max: None,
        running_ms: None,
        conversation: conversation(1),
    }
}

fn running(n: usize, title: &str) -> JobLine {
    JobLine {
        state: TaskState::Running,
        position: None,
        round: Some((3, 5)),
        running_ms: Some(61_000),
        ..waiting(n, title)
    }
}

/// A job that goes on in 14 minutes.
fn deferred(n: usize, title: &str) -> JobLine {
    JobLine { is_deferred: true, start_in_ms: Some(840_000), running_ms: None, ..running(n, title) }
}

fn suspended(n: usize, title: &str, at: i64) -> JobLine {
    JobLine { suspended_at: Some(Micros(at)), position: None, ..running(n, title) }
}

fn three() -> Vec<JobLine> {
    vec![
        running(1, "Summarise that YouTube video I sent you"),
        JobLine {
            priority: Priority::High,
            position: Some(1),
            start_in_ms: Some(110_000),
            ..waiting(2, "Look up golf courses near Bangalore")
        },
        JobLine { priority: Priority::Background, position: None, ..waiting(3, "Write the daily reflection") },
    ]
}

fn request_of(text: &str) -> Option<JobRequest> {
    understand(text).map(|c| c.request)
}

#[track_caller]
fn all_mean(request: &JobRequest, phrases: &[&str]) {
    for phrase in phrases {
        assert_eq!(request_of(phrase).as_ref(), Some(request), "{phrase:?}");
    }
}

#[test]
fn job_grammar_recognises_questions_about_jobs() {
    all_mean(
        &JobRequest::List,
        &[
            "what are you working on",
            "What are you working on?",
            "Annie, what are you working on?",
            "Hey Annie, what are you working on right now?",
            "what're you working on",
            "what are you doing",
            "what are you doing at the moment?",
            "so what are you currently doing",
            "what are you up to?",
            "jobs",
            "Status?",
            "what's the status",
            "can you tell me what you are working on",
            "show me your jobs please",
            "what\u{2019}s in the queue",
            "are you still working on something?",
            "show me the queue",
            "/jobs",
            "/jobs --all",
        ],
    );
    all_mean(
        &JobRequest::Busy,
        &["how busy are you", "How busy are you right now?", "top", "are you busy?", "how long is your queue", "/top"],
    );
}

#[test]
fn job_grammar_recognises_first_and_urgent() {
    all_mean(
        &act(Verb::First, Target::That),
        &[
            "do that first",
            "Do this first!",
            "please do that first",
            "Annie, could you do it first?",
            "that one first",
            "prioritise that",
            "prioritize this one please",
            "move that up",
            "make that a priority",
            "do that before anything else",
            "start with that",
            "/first",
        ],
    );
    all_mean(
        &act(Verb::Urgent, Target::That),
        &[
            "this is urgent",
            "This is really urgent!",
            "that's urgent",
            "it's urgent, please",
            "urgent",
            "ASAP",
            "hurry up",
            "Annie, this is urgent",
            "make that urgent",
            "this can't wait",
            "i need this asap",
            "/urgent",
        ],
    );
}

#[test]
fn job_grammar_recognises_cancel_phrases() {
    all_mean(
        &act(Verb::Cancel, Target::That),
        &[
            "cancel that",
            "Cancel that.",
            "never mind",
            "Nevermind!",
            "never mind, cancel that",
            "never mind, please cancel that",
            "stop that",
            "no, stop that",
            "wait, cancel that please",
            "stop it",
            "stop, stop, stop!",
            "no no no, stop that",
            "stop",
            "cancel",
            "forget it",
            "forget about that",
            "drop it",
            "don't do that",
            "don't bother",
            "stop what you are doing",
            "cancel that one",
            "hey annie can you cancel that for me thanks",
            "/cancel",
            "/cancel that",
        ],
    );
}

#[test]
fn job_grammar_recognises_pause_and_resume() {
    all_mean(
        &act(Verb::Pause, Target::That),
        &[
            "pause that",
            "pause that for now",
            "Pause that for a bit, please",
            "pause",
            "put that on hold",
            "hold off on that",
            "hold on with that",
            "suspend that job",
            "set that aside for later",
            "/pause",
        ],
    );
    all_mean(
        &act(Verb::Resume, Target::That),
        &[
            "resume",
            "Resume that",
            "go on with that",
            "continue with that",
            "carry on with it",
            "unpause that",
            "pick that up again",
            "ok, resume",
            "/resume",
        ],
    );
}

#[test]
fn job_target_recognises_number_and_all() {
    all_mean(
        &act(Verb::Cancel, Target::All),
        &[
            "cancel everything",
            "stop everything!",
            "cancel all",
            "Cancel all of them",
            "cancel all jobs",
            "stop all the jobs",
            "/cancel all",
            "never mind, cancel everything",
        ],
    );
    all_mean(
        &act(Verb::Pause, Target::All),
        &["pause everything", "pause everything for now", "put everything on hold"],
    );
    all_mean(&act(Verb::Resume, Target::All), &["resume everything", "resume all jobs"]);
    all_mean(
        &act(Verb::Cancel, Target::Number(2)),
        &[
            "cancel number 2",
            "cancel task 2",
            "Cancel #2",
            "cancel 2",
            "cancel job two",
            "cancel the second one",
            "cancel the second thing",
            "cancel the second job",
            "kill number two",
            "/cancel 2",
            "/cancel #2",
        ],
    );
    all_mean(
        &act(Verb::First, Target::Number(2)),
        &["do number 2 first", "do the second one first", "/first 2", "number two first"],
    );
    all_mean(&act(Verb::Pause, Target::Number(3)), &["pause number three", "pause the third one", "/pause 3"]);
}

#[test]
fn job_target_recognises_words_of_title() {
    all_mean(
        &act(Verb::Cancel, words("research")),
        &[
            "cancel the research",
            "Cancel the research, please.",
            "stop the research job",
            "never mind the research",
            "forget about the research",
            "stop working on the research",
            "never mind, cancel the research",
            "call off the research",
            "/cancel the research",
            "/cancel research",
        ],
    );
    all_mean(
        &act(Verb::First, words("research")),
        &[
            "do the research first",
            "do the research next",
            "first do the research",
            "prioritise the research",
            "move the research to the front",
            "start with the research",
            "the research first",
        ],
    );
    all_mean(
        &act(Verb::Urgent, words("research")),
        &[
            "the research is urgent",
            "make the research urgent",
            "hurry up with the research",
            "i need the research urgently",
        ],
    );
    all_mean(
        &act(Verb::Pause, words("video summary")),
        &[
            "hold on with the video summary",
            "pause the video summary",
            "pause that video summary for now",
            "put the video summary on hold",
        ],
    );
    all_mean(
        &act(Verb::Resume, words("video")),
        &[
            "continue with the video",
            "resume the video",
            "go on with the video",
            "resume work on the video",
            "get back to the video please",
        ],
    );
}

#[test]
fn job_target_recognises_task_id() {
    let id = task(7);
    all_mean(
        &act(Verb::Resume, Target::Id(id)),
        &[&format!("/resume {id}"), &format!("resume {id}"), &format!("resume job {id}")],
    );
}

/// Ordinary requests that contain words of job commands.
const REQUESTS: &[&str] = &[
    "",
    "   ",
    "Annie",
    "hello",
    "please",
    "continue",
    "go on",
    "Continue, please",
    "please go on",
    "keep going",
    "yes, continue",
    "cancel my meeting tomorrow",
    "cancel the meeting",
    "cancel that meeting",
    "cancel the meeting with Bob",
    "cancel the 3pm call",
    "cancel the call at 3pm",
    "cancel my subscription",
    "cancel the newspaper subscription",
    "cancel all my meetings",
    "cancel all my tasks",
    "cancel everything on Friday",
    "cancel a flight for me",
    "pause the music",
    "stop the music please",
    "pause my alarm",
    "stop the timer",
    "resume the music",
    "resume the podcast",
    "do the dishes first",
    "who was first?",
    "the first",
    "what comes first",
    "ladies first",
    "do the first thing on my list",
    "what is urgent in my tasks?",
    "is this urgent?",
    "this is not urgent",
    "that isn't urgent",
    "show my urgent tasks",
    "this is urgent: call mum and tell her that I am late",
    "what are you doing tonight",
    "what are you working on with Tom",
    "what am I working on",
    "what is the status of my order",
    "status of the build",
    "list my tasks",
    "show me my tasks",
    "how busy am I tomorrow",
    "how busy is the train to Basel",
    "how do I cancel that in Amazon",
    "write a mail that says cancel that",
    "translate \"cancel that\" into French",
    "what does 'never mind' mean",
    "never mind what I said about the garden",
    "don't stop",
    "stop doing that with my mail",
    "stop by the shop tomorrow",
    "stop sending me news",
    "kill the lights",
    "drop me a line",
    "forget everything",
    "forget that I like tea",
    "go on with your story",
    "get back to me",
    "get back to work tomorrow",
    "pick me up again",
    "put the milk on the list",
    "put me first",
    "move the meeting up",
    "start with a joke",
    "top 10 songs of 1990",
    "resume writing tips",
    "my resume",
    "write my resume",
    "job offers in Berlin",
    "jobs in Berlin",
    "cancel 2024",
    "cancel()",
    "status = ok",
    "task 2",
    "urgent care near me",
    "hurry hard, said the curler",
    "abort, retry, ignore?",
    "cancel that and play some music",
    "/weekly-review",
    "/cancelled",
    "/jobs in Berlin",
    "/jobs --frob",
    "/",
    "//",
];

#[test]
fn job_grammar_ignores_ordinary_requests() {
    for text in REQUESTS {
        assert_eq!(request_of(text), None, "{text:?}");
    }
}

#[test]
fn job_grammar_recognises_whole_specified_table() {
    // [S3 5.2.5], verbatim.
    let table = [
        ("What are you working on?", JobRequest::List),
        ("Do the research first", act(Verb::First, words("research"))),
        ("Never mind, cancel that", act(Verb::Cancel, Target::That)),
        ("Pause that for now", act(Verb::Pause, Target::That)),
        ("This is urgent", act(Verb::Urgent, Target::That)),
        ("How busy are you?", JobRequest::Busy),
        // [S3 5.8]
        ("Do this first", act(Verb::First, Target::That)),
        ("Resume the research", act(Verb::Resume, words("research"))),
        ("Annie, what are you working on?", JobRequest::List),
    ];
    for (text, request) in table {
        assert_eq!(request_of(text), Some(request), "{text:?}");
    }
}

#[test]
fn ambiguous_job_command_applies_only_if_a_job_matches() {
    let certain = |text: &str| understand(text).is_some_and(|c| c.is_certain());
    for text in [
        "cancel that",
        "pause that",
        "do that first",
        "this is urgent",
        "cancel everything",
        "cancel number 2",
        "/cancel research",
        "/resume",
        "/pause",
        "jobs",
        "top",
    ] {
        assert!(certain(text), "{text:?}");
    }
    for text in [
        "cancel the research",
        "never mind",
        "stop",
        "pause",
        "resume",
        "resume that",
        "cancel task 2",
        "start with that",
        "stop it",
        "cancel all tasks",
    ] {
        assert!(!certain(text), "{text:?}");
    }
    let command = understand("cancel the research").unwrap();
    assert!(!command.applies(&Resolution::None));
    assert!(command.applies(&Resolution::One(task(1))));
    assert!(understand("cancel that").unwrap().applies(&Resolution::None));
}

#[test]
fn job_command_detail_is_requested_by_flag_or_words() {
    for (text, is_detailed) in [
        ("/jobs", false),
        ("/jobs --all", true),
        ("/top --detail", true),
        ("jobs", false),
        ("what are you working on in detail", true),
    ] {
        assert_eq!(understand(text).unwrap().is_detailed, is_detailed, "{text:?}");
    }
}

#[test]
fn job_percent_is_the_part_of_its_rounds_that_is_done() {
    let at = |round| JobLine { round, ..running(1, "x") }.percent();
    let percents = [None, Some((1, 8)), Some((5, 8)), Some((8, 8)), Some((9, 8)), Some((1, 0))].map(at);
    assert_eq!(percents, [None, Some(0), Some(50), Some(87), Some(100), Some(0)]);
}
