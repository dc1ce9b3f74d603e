//! The bundled skills as prompts show them, for the planner's tests.

use super::catalog::{Catalog, Skill};

/// Synopsis and description of each bundled skill.
pub(super) const SKILLS: [(&str, &str); 18] = [
    (
        "memory.save --content TEXT [--category preference|fact|decision|goal|relationship|context|instruction] [--importance N] [--tags A,B]",
        "Save information to long-term memory.",
    ),
    (
        "memory.search --query TEXT [--category preference|fact|decision|goal|relationship|context|instruction] [--limit N] [--min_importance N] [--tags A,B]",
        "Search long-term memory.",
    ),
    ("notes.create --content TEXT --title TEXT [--tags A,B]", "Create a markdown note."),
    ("notes.edit --title TEXT [--append TEXT] [--prepend TEXT] [--replace TEXT] [--with TEXT]", "Change a note."),
    ("notes.read --title TEXT [--from_line N] [--lines N]", "Read a note."),
    ("notes.search [--limit N] [--query TEXT] [--tag TEXT]", "Search notes."),
    ("schedules.cancel --id N", "End a schedule by its number."),
    ("schedules.create --message TEXT --when TEXT [--timezone TEXT]", "Have something done again and again."),
    ("schedules.list", "List the user's schedules."),
    ("system.await --what TEXT [--hours N]", "Wait for something outside to report back."),
    ("system.help [--topic TEXT]", "Help on domains and skills."),
    ("system.time [--timezone TEXT]", "The present date and time."),
    (
        "tasks.create --title TEXT [--description TEXT] [--due DATE] [--priority low|medium|high|critical] [--tags A,B]",
        "Create a task (to-do) for the user, with due date, priority and tags.",
    ),
    ("tasks.delete --id N", "Delete a task by its number."),
    ("tasks.get [--id N] [--ids A,B] [--limit N] [--recent]", "Show everything about tasks whose numbers are known."),
    ("tasks.remind --when DATE [--id N] [--title TEXT]", "Remind the user of something at a time."),
    (
        "tasks.search [--due DATE] [--limit N] [--priority low|medium|high|critical] [--query TEXT] [--status open|overdue|all|todo|in_progress|blocked|done|cancelled] [--tag TEXT]",
        "List or search the user's tasks.",
    ),
    (
        "tasks.update --id N [--description TEXT] [--due DATE] [--priority low|medium|high|critical] [--status todo|in_progress|blocked|done|cancelled] [--tags A,B] [--title TEXT]",
        "Change a task.",
    ),
];

/// The bundled skills, and three that a user added.
pub(super) fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    let added = [
        ("email.send --body TEXT --subject TEXT --to TEXT [--cc A,B]", "Send an email to one or more recipients."),
        ("weather.today --city TEXT [--units metric|imperial]", "The weather forecast of a city for today."),
    ];
    for (line, about) in SKILLS.into_iter().chain(added) {
        catalog.add(Skill::from_synopsis(line, about).expect("a synopsis"));
    }
    let review = "Walk through the user's week - what was finished, what is overdue, what comes next.";
    catalog.add(Skill { name: "weekly-review".into(), about: review.into(), ..Skill::default() });
    catalog
}
