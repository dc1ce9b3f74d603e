//! The phrases that people use for the bundled skills. The table is tried in order; the shape determines how arguments are
//! found in the rest of the clause.

use std::sync::LazyLock;

use super::{
    pattern::{Fit, Pattern},
    text::Word,
};

/// How the words of a clause become arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// No arguments beyond those that the clause names.
    Plain,
    /// The rest is a topic, if it is a domain or a skill.
    Topic,
    /// The rest is an event to wait for.
    Await,
    /// The rest is the title of a task, with date, priority and tags in it.
    Title,
    /// The gap is the title of a task.
    GapTitle,
    /// Filters of a task list.
    List,
    /// A task by number or words, and its new status.
    Status(&'static str),
    /// A task by number or words, and the fields to change.
    Change,
    /// A task by number or words.
    One,
    /// A task to delete if the user confirms it.
    AskDelete,
    /// The gap identifies a task, the rest is its new date.
    Move,
    /// A field of a task to clear: its date, tags or description.
    Clear,
    /// An addition to a task, which only few fields allow.
    AddTo,
    /// The rest is a statement to remember.
    Statement,
    /// The gap is a statement to remember.
    GapStatement,
    /// The query is the whole clause.
    Question,
    /// The query is the rest.
    Search,
    /// A new note: title and text are in the rest.
    Note,
    /// A new note whose text is the rest.
    Jot,
    /// The rest is a note's title.
    NoteTitle,
    /// A reminder of a numbered task, and when it reminds again.
    Snooze,
    /// No arguments at all.
    Bare,
    /// The rest is the number or the words of something deleted.
    Deleted,
    /// The gap is added to the note that the rest names.
    NoteAppend,
    /// The rest is a note's title, with the text to add after a colon.
    NoteMore,
}

/// A phrase and its meaning.
pub(super) struct Rule {
    pub skill: &'static str,
    pub shape: Shape,
    pattern: Pattern,
}

impl Rule {
    /// Matches the rule's phrase against a clause that begins at `start`.
    pub fn fit(&self, words: &[Word], start: usize) -> Option<Fit> {
        self.pattern.fit(words, start)
    }
}

/// All rules, in order.
pub(super) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    TABLE
        .iter()
        .flat_map(|(skill, shape, patterns)| {
            patterns.iter().map(|p| Rule { skill, shape: *shape, pattern: Pattern::new(p) })
        })
        .collect()
});

const TABLE: &[(&str, Shape, &[&str])] = &[
    (
        "system.time",
        Shape::Plain,
        &[
            "what time|date|day is|was|will|are|falls * it|be?",
            "what is|will|was|are the? date|day|weekday",
            "which day|date|weekday is|was|will|falls|does",
            "when is next|this|last? today|tomorrow|yesterday|monday|tuesday|wednesday|thursday|friday|saturday|sunday",
            "how many|long days|weeks? until|till|to|before",
            "what time|date|day is it",
            "what time|date|day it is",
            "what is|are the? current? time|date|day",
            "what is today's|todays date|day",
            "what day|date|time is|do today|we|you|it",
            "the? current time|date",
            "the time",
            "do you have the time",
        ],
    ),
    (
        "system.help",
        Shape::Topic,
        &[
            "what can|could you do|help",
            "what are you able|capable",
            "what ~ skills|commands|tools|capabilities|features",
            "which ~ skills|commands|tools",
            "list|show ~ skills|commands|capabilities|tools",
            "how do|can i use",
            "help me? with|on|about|for",
            "help",
            "manual|usage",
        ],
    ),
    (
        "system.await",
        Shape::Await,
        &[
            "let me know when|once|if",
            "keep me posted on|about|when",
            "notify|ping me when|once|if",
            "wait for|until",
            "await",
        ],
    ),
    // Changes of a task's fields come before changes of tasks and notes.
    (
        "tasks.update",
        Shape::Clear,
        &[
            "remove|delete|clear|drop|unset|erase|take ~ due|deadline|date|tag|tags|label|labels|priority|description|details|title|status * date? from|of|off|on|for|away",
        ],
    ),
    (
        "tasks.update",
        Shape::AddTo,
        &[
            "add|put|attach|append|assign ~ tag|tags|label|labels|due|deadline|date|description|details|priority|subtask|sub-task|subtasks|comment|comments|attachment|file|note|notes|reminder|alarm * to|on|onto|for|of ~ task|todo|to-do #",
            "add|put|attach|append|assign ~ * to|on|onto|of|with ~ task|todo|to-do #",
            "tag|label ~ task|todo|to-do # as|with|:?",
        ],
    ),
    // Notes: the noun must closely follow the verb.
    (
        "notes.create",
        Shape::Note,
        &[
            "create|make|write|take|add|start|new|draft|save|open|begin ~ note|memo|notes",
            "another|one note|memo",
            "note|memo titled|called|named",
        ],
    ),
    ("notes.create", Shape::Jot, &["write|note|jot|take|put down that|this?", "jot", "note to self"]),
    (
        "notes.edit",
        Shape::NoteMore,
        &[
            "append|add|write to ~ note|notes titled|called|named|about?",
            "update|edit|change|extend ~ note|notes titled|called|named|about?",
        ],
    ),
    (
        "notes.edit",
        Shape::NoteAppend,
        &[
            "add|append|put|write|insert|include * to|in|into|on|at ~ note|notes titled|called|named|about?",
            "add|append|put|write|insert * to|in|into|on ~ * note|notes",
        ],
    ),
    (
        "notes.search",
        Shape::Search,
        &[
            "find|search|look|browse up|for|in|through? ~ notes|note for|about|with|mentioning|on|containing|that|which?",
            "list|show|give|display|see ~ notes about|on|for|with|mentioning?",
            "which|what notes do|did|have? i|you|we? have|write|about|on?",
            "do i have ~ note|notes about|on|for?",
            "are|is there ~ note|notes about|on|for?",
            "what do my notes say about|on?",
            "my notes about|on|for?",
            "find|search|list|show|display|see|read|open ~ * notes",
        ],
    ),
    (
        "notes.read",
        Shape::NoteTitle,
        &[
            "read|open|show|display|view|see|print|get ~ note titled|called|named|about|on|from?",
            "what is in|on the|my? note titled|called|named|about?",
            "what does the|my? note titled|called|named|about?",
            "read|open|show|display|view|see|print|get ~ * note",
            "what is in|on the|my? * note",
        ],
    ),
    ("notes.delete", Shape::NoteTitle, &["delete|remove|erase|discard|trash ~ note titled|called|named?"]),
    (
        "notes.restore",
        Shape::NoteTitle,
        &["restore|undelete|recover ~ note titled|called|named?", "bring back ~ note titled|called|named?"],
    ),
    (
        "tasks.restore",
        Shape::Deleted,
        &[
            "restore|undelete|recover ~ task|todo|to-do|reminder titled|called|named|about|to?",
            "bring back ~ task|todo|to-do|reminder titled|called|named|about|to?",
        ],
    ),
    // Memory comes before the questions about tasks.
    (
        "memory.restore",
        Shape::Deleted,
        &["restore|undelete|recover ~ memory that|about|of?", "bring back ~ memory that|about|of?"],
    ),
    ("memory.delete", Shape::Deleted, &["forget ~ memory that|about?", "forget that|about?"]),
    (
        "memory.list",
        Shape::Bare,
        &[
            "what do|did you know|remember|recall about|of me",
            "what have you remembered|saved|learned|stored|noted about|of me",
            "list|show|display ~ memories",
        ],
    ),
    (
        "memory.search",
        Shape::Search,
        &[
            "what do|did you know|remember|recall|have about|of|on|regarding|for?",
            "what you know|remember|have about|of|on?",
            "what have you remembered|saved|learned|stored|noted about|of|on?",
            "do|can you remember|recall anything|something|what|who|when|where|if|that? about|of?",
            "do you know anything|something about|of",
            "recall anything|what|everything? about?",
            "what did i say|tell|mention you? about|on|of?",
            "what have i told|said|mentioned you|to? you? about|on|of?",
            "search|look|check|browse|query in|through|up? ~ memory|memories for|about|on?",
            "list|show|display ~ memories|memory about|on|of?",
        ],
    ),
    (
        "memory.search",
        Shape::Question,
        &[
            "what|who|how|when|where does|did * prefer|like|want|love|hate|need|live|work",
            "what is|are my|his|her|their|our favourite|favorite|preferred|name|birthday|address|number|email|password",
            "when is * birthday|anniversary",
            "who is",
            "what do|did i prefer|like|want|love|hate|decide",
        ],
    ),
    ("memory.save", Shape::GapStatement, &["save|store|keep|put|commit|add|write * to|in|into ~ memory|memories"]),
    (
        "memory.save",
        Shape::Statement,
        &[
            "save|store|keep|commit to|in ~ memory that?",
            "save|store|keep ~ fact|information|preference|memory that?",
            "save|store that",
            "keep|bear in mind that?",
            "do not forget that",
            "note that",
            "make a mental note that|of?",
            "memorize|memorise that?",
            "for future reference",
            "fyi",
            "you should know that?",
            "learn that",
        ],
    ),
    (
        "tasks.remind",
        Shape::Snooze,
        &[
            "snooze|postpone|delay ~ reminder of|about|for? task|todo|to-do? #",
            "snooze ~ task|todo|to-do? #",
            "remind me again? of|about|for|on ~ task|todo|to-do|reminder #",
        ],
    ),
    ("schedules.cancel", Shape::One, &["cancel|delete|remove|stop|end ~ schedule|schedules number|no? #"]),
    (
        "schedules.list",
        Shape::Bare,
        &["list|show|display|see|view|get ~ schedules", "what|which ~ schedules", "what is|are ~ schedules"],
    ),
    (
        "tasks.delete",
        Shape::One,
        &[
            "delete|remove|erase|discard|drop|archive|trash ~ task|tasks|todo|todos|to-do|reminder|reminders|item|items",
            "get rid of ~ task|tasks|todo|todos|to-do|reminder|reminders|item|items",
            "delete|remove|erase|discard|drop|archive #",
            "delete|remove|erase|drop|take * from|off ~ list|tasks|todo|to-do|todos",
            "delete|remove|erase|discard|drop|archive ~ * task|tasks|todo|todos|reminder|reminders",
        ],
    ),
    (
        "tasks.update",
        Shape::Status("cancelled"),
        &[
            "cancel|abandon ~ task|tasks|todo|todos|to-do|reminder|reminders",
            "cancel|abandon #",
            "mark|set ~ * as|to? cancelled|canceled",
        ],
    ),
    (
        "tasks.update",
        Shape::Status("blocked"),
        &["mark|set ~ * as|to? blocked|stuck", "task? # is blocked|stuck|waiting"],
    ),
    (
        "tasks.update",
        Shape::Status("in_progress"),
        &[
            "mark|set ~ * as|to? started|in-progress|ongoing",
            "mark|set ~ * as|to? in progress",
            "start|begin working on",
            "start|begin ~ task #",
            "start|begin #",
            "i am working on|starting",
        ],
    ),
    ("tasks.update", Shape::Status("todo"), &["reopen", "mark|set ~ * as|to? todo|to-do|undone|open|reopened"]),
    (
        "tasks.update",
        Shape::Status("done"),
        &[
            "mark|set|check|tick|cross ~ * as|to|off? done|complete|completed|finished",
            "check|tick|cross off",
            "complete|finish|close|resolve ~ task|tasks|todo|todos|to-do|reminder|reminders",
            "complete|finish|close|resolve|check|tick #",
            "i have? just|already|now? finished|done|completed|did",
            "i am done|finished with",
            "done|finished with",
            "task? # is|are? done|finished|complete|completed",
            "the? * task|tasks|todo|todos|reminder|reminders is done|finished|complete|completed",
        ],
    ),
    (
        "tasks.update",
        Shape::Change,
        &[
            "postpone|reschedule|delay|defer|snooze",
            "schedule|plan ~ task|todo|to-do #",
            "set|change|update|replace|edit ~ description|details|tags|tag|labels of|for|on",
            "move|push|shift|bump ~ task|tasks|todo|todos|reminder|reminders",
            "move|push|shift|bump #",
            "make|set|change|raise|lower|increase ~ task|tasks|todo|todos|reminder|reminders #",
            "make #",
            "set|change|raise|lower|increase|update ~ priority|due|deadline|date|title|status|description|tags|name date? of|for|on",
            "rename|retitle ~ task|todo|reminder|#",
            "rename|retitle ~ * task|todo|reminder",
            "update|change|edit|modify|tag ~ task|tasks|todo|todos|to-do|reminder|reminders",
            "update|change|edit|modify|tag #",
            "task|todo|reminder # to",
        ],
    ),
    ("tasks.update", Shape::Move, &["move|push|shift|bump|reschedule|postpone * to|until|till"]),
    (
        "tasks.get",
        Shape::One,
        &[
            "is|was|has ~ task|todo|reminder #",
            "have|did i|we finish|finished|complete|completed|done|do|start|started ~ task|todo|reminder #",
            "show|open|display|describe|read|get|see|view|check ~ task|tasks|todo|todos|reminder|reminders #",
            "show|open|display|describe|get|view #",
            "show|list|see|get ~ recent tasks|todos|changes",
            "details|info|information|more of|about|on|for ~ task|tasks|todo|todos|reminder|reminders? #",
            "tell me more? about ~ task #",
            "what is|about ~ task #",
            "task #",
        ],
    ),
    (
        "tasks.search",
        Shape::List,
        &[
            "what|which ~ tasks|todos|to-dos|reminders|task|todo|to-do|things",
            "what is|are still? due|overdue|late|left|pending|outstanding|next|urgent|upcoming|blocked|open|there|planned|coming",
            "what is|are on|in ~ list|plate|agenda|todo|to-do|schedule|tasks",
            "what is|are ~ tasks|todos|to-dos|reminders|agenda|todo|to-do",
            "what do|did i still? have|need to|due|on|left|planned|today|tomorrow|this|next",
            "what should|must|shall|can i do|work|tackle|focus",
            "what am i supposed|meant|expected",
            "what else is|do|should",
            "what remains|needs",
            "what did|have i finish|finished|complete|completed|done|do|get|got|achieved",
            "what have i got",
            "show|list|display|give|tell|read|get|see|view|check|find|search|look|review for|up|through|at|out? ~ done|finished|completed|overdue|due|blocked|pending? ~ tasks|task|todos|to-dos|reminders|todo|to-do|agenda",
            "show|list|display|give|tell|get|see|view|check ~ what|everything|anything|all|things that|which? is|are? due|overdue|open|left|late|pending",
            "show|list|display|see|view|check ~ due|overdue",
            "do i have ~ tasks|todos|reminders|due|overdue|left|task|anything|something|deadlines to|due|overdue|left|today|tomorrow?",
            "have i got ~ tasks|todos|reminders|anything",
            "is|are ~ anything|something|tasks|todos|task due|overdue|late|left|open|blocked",
            "is|are there ~ anything|something|tasks|todos|reminders",
            "anything|something due|overdue|left|to",
            "how many ~ due|overdue|done|finished|completed? tasks|todos|reminders",
            "~ done|finished|completed|overdue|due|blocked|pending? tasks|todos|to-dos|reminders",
            "due|overdue",
            "how busy am i",
        ],
    ),
    (
        "tasks.create",
        Shape::GapTitle,
        &["add|put|throw|stick|get * to|on|onto|in|into ~ list|todo|to-do|tasks|todos|to-dos|reminders"],
    ),
    (
        "tasks.create",
        Shape::Title,
        &[
            "remind me again?",
            "remember to",
            "do not forget to|about",
            "do not let me forget to|about|that?",
            "make sure that? i remember? to?",
            "create|add|make|new|start|open|set|put|log|file|enter|register|schedule|need up|down? ~ task|todo|to-do|reminder|action-item|tasks|todos|to-dos|reminders item|items? for|to? me|my|list? called|named|titled|saying|that|about|for|of|to? says|i? to?",
            "i need|want ~ task|todo|to-do|reminder called|named|titled|about|for|to",
            "task|todo|to-do|reminder called|named|titled|for|to?",
            "another|one task|todo|to-do|reminder|one? called|named|titled|about|for|to",
            "i|we need|have|ought|got to",
            "i|we must|gotta",
            "schedule a|an|the?",
            "plan a|an|the",
        ],
    ),
    // Last: `remember` with any text that no rule above matched.
    ("memory.save", Shape::Statement, &["remember that?", "note", "save this", "save the following"]),
];

#[cfg(test)]
mod tests {
    use super::{
        super::{
            catalog::Skill,
            choose::choose,
            fill::{Filled, Filler},
            testing::catalog,
            text::Text,
        },
        *,
    };

    #[test]
    fn every_rule_parses_and_requires_at_least_one_word() {
        assert!(RULES.len() > 100);
        for rule in RULES.iter() {
            assert!(rule.fit(&[], 0).is_none(), "a rule of {} fits nothing at all", rule.skill);
        }
    }

    #[test]
    fn rules_of_the_trash_fill_a_number_words_or_a_title() {
        let mut catalog = catalog();
        for line in [
            "memory.delete [--id N] [--query TEXT]",
            "memory.list [--deleted] [--limit N]",
            "memory.restore [--id N] [--query TEXT]",
            "notes.delete --title TEXT",
            "notes.restore --title TEXT",
            "tasks.restore [--id N] [--query TEXT]",
        ] {
            catalog.add(Skill::from_synopsis(line, "").expect("a synopsis"));
        }
        for (source, skill, arg, part) in [
            ("forget that Bob likes tea", "memory.delete", "query", "likes tea"),
            ("forget memory 3", "memory.delete", "id", "3"),
            ("restore the memory about tea", "memory.restore", "query", "tea"),
            ("restore task #3", "tasks.restore", "id", "3"),
            ("bring back the task call Bob", "tasks.restore", "query", "call Bob"),
            ("delete the note Groceries", "notes.delete", "title", "Groceries"),
            ("restore the note Groceries", "notes.restore", "title", "Groceries"),
        ] {
            let text = Text::new(source);
            let choice = choose(&text, &(0..text.words.len()), &catalog).expect(source);
            assert_eq!(choice.skill, skill, "{source}");
            let known = catalog.get(skill).expect("a skill");
            let Filled::Ready(calls) = (Filler { skill: known, text: &text, results: "" }).fill(&choice) else {
                panic!("{source} is not filled");
            };
            let (name, value) = &calls[0].args[0];
            assert!(name == arg && value.to_string().contains(part), "{source}: {name} {value}");
        }
        let text = Text::new("what do you remember about me");
        let choice = choose(&text, &(0..text.words.len()), &catalog).expect("a choice");
        assert_eq!(choice.skill, "memory.list");
    }
}
