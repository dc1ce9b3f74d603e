//! The data folder as the front ends see it: the mark of its database, and the folder of notes.

mod mark;
mod notes;
mod notes_watch;

pub use mark::Mark;
pub use notes::{KEPT_AS as NOTES_KEPT_AS, NotesFolder, NotesProblem};
pub use notes_watch::{NotesPace, NotesWatch};
