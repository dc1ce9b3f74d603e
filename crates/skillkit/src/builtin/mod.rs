//! The built-in handlers: one file per verb, and one line each in the list below. A test fails if a handler has no skill
//! file, or a skill file no handler.

pub(crate) mod files;
pub(crate) mod memory;
pub(crate) mod notes;
mod python;
pub(crate) mod schedules;
mod shell;
pub(crate) mod state;
mod system;
pub(crate) mod tasks;
pub(crate) mod web;

use crate::handler::{Builtin, builtin};

/// All handlers, sorted by name.
pub(crate) static ALL: &[Builtin] = &[
    builtin::<files::list::List>(),
    builtin::<files::read::Read>(),
    builtin::<files::search::Search>(),
    builtin::<files::write::Write>(),
    builtin::<memory::delete::Delete>(),
    builtin::<memory::list::List>(),
    builtin::<memory::restore::Restore>(),
    builtin::<memory::save::Save>(),
    builtin::<memory::search::Search>(),
    builtin::<memory::update::Update>(),
    builtin::<notes::create::Create>(),
    builtin::<notes::delete::Delete>(),
    builtin::<notes::edit::Edit>(),
    builtin::<notes::list::List>(),
    builtin::<notes::read::Read>(),
    builtin::<notes::rename::Rename>(),
    builtin::<notes::restore::Restore>(),
    builtin::<notes::search::Search>(),
    builtin::<python::run::Run>(),
    builtin::<schedules::cancel::Cancel>(),
    builtin::<schedules::create::Create>(),
    builtin::<schedules::list::List>(),
    builtin::<shell::run::Run>(),
    builtin::<state::delete::Delete>(),
    builtin::<state::get::Get>(),
    builtin::<state::list::List>(),
    builtin::<state::set::Set>(),
    builtin::<system::r#await::Await>(),
    builtin::<system::build_skill::BuildSkill>(),
    builtin::<system::help::Help>(),
    builtin::<system::time::Time>(),
    builtin::<tasks::create::Create>(),
    builtin::<tasks::delete::Delete>(),
    builtin::<tasks::get::Get>(),
    builtin::<tasks::remind::Remind>(),
    builtin::<tasks::restore::Restore>(),
    builtin::<tasks::search::Search>(),
    builtin::<tasks::update::Update>(),
    builtin::<web::fetch::Fetch>(),
    builtin::<web::search::Search>(),
];

/// The handler of this name.
pub(crate) fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|b| b.name == name)
}

#[cfg(test)]
mod tests;
