//! `system.build_skill`: writes a skill file into the user's folder. The file names the call that wrote it, so that an interrupted
//! call finds out whether its file is there. The head of the file is written last and by one rename.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    path::Path,
    sync::{Arc, PoisonError},
};

use annie_core::{
    hidden::{self, first_hidden},
    outcome::Outcome,
    ports::SkillCall,
    skill::{Effect, SkillSpec, slash_commands, valid_skill_name},
};
use cap_std::{
    ambient_authority,
    fs::{Dir, DirEntry, OpenOptions},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{
    error::SkillError,
    files::{
        BUILT, Built, Entry, Frontmatter, Kind, Problem, Provenance, Report, draft, hash_of, read_text, split, stamped,
        substitute,
    },
    handler::{Ctx, Handler, Ran},
    runner::{Tools, run_blocking},
};

use super::{
    built_run,
    trial::{self, Trial},
};

/// Size limit for the file and for its script, in bytes each. A person reads both before the approval.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// The most skills that conversations may have written. Each of them is in the catalogue that models read.
const BUILT_MAX: usize = 200;
/// Characters of the hash in the name of a program's file.
const HASH_CHARS: usize = 16;
/// The end of the name of a file that is being written.
const TEMPORARY: &str = ".annie-tmp";
/// What stands for the script's file in `run:`.
const SCRIPT: &str = "./SCRIPT";
/// Domains of the kernel, of prompt skills, and of MCP servers.
const RESERVED: [&str; 3] = ["system", "prompt", "mcp"];
/// Characters of the rendered prompt that the outcome shows.
const SHOWN_BYTES_MAX: usize = 400;

pub(crate) struct BuildSkill;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// New skill.
    name: String,
    /// Whole skill file.
    content: String,
    /// Program.
    script: Option<String>,
    /// Replace it.
    #[serde(default)]
    replace: bool,
}

/// A skill that can be written.
struct Checked {
    path: String,
    text: String,
    /// Path and text of the program.
    script: Option<(String, String)>,
    entry: Entry,
}

impl Handler for BuildSkill {
    type Args = Args;
    const NAME: &'static str = "system.build_skill";
    const EFFECT: Effect = Effect::Once;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        // A skill file is an instruction of the user for all later turns. A text of an outside party would become the user's word.
        let untrusted = ctx.untrusted_origins();
        if !untrusted.is_empty() {
            let why = format!(
                "No skill was written, because this turn has read texts of others ({}). The user can ask for it in a new message.",
                untrusted.join(", ")
            );
            return Ok(Outcome::blocked("outside_text", why));
        }
        if ctx.call.user != ctx.tools.owner {
            let why = "Only the user of this installation has skills written, because all users share them.";
            return Err(SkillError::NotAllowed(why.to_owned()));
        }
        let (tools, call, args) = (Arc::clone(&ctx.tools), ctx.call.clone(), Arc::new(args));
        let draft = {
            let (tools, call, args) = (Arc::clone(&tools), call.clone(), Arc::clone(&args));
            run_blocking(move || checked(&tools, &call, &args)).await?
        };
        let found = match draft {
            Err(problems) => return Ok(invalid(&problems)),
            Ok(draft) => match trial::run(&tools, &call, &draft.entry, draft.script.as_ref()).await {
                Trial::Keep(found) => found,
                Trial::Refuse(why) => return Ok(test_failed(&args.name, &why)),
            },
        };
        run_blocking(move || {
            let _only = tools.building.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(match checked(&tools, &call, &args)? {
                Err(problems) => invalid(&problems),
                Ok(checked) => {
                    write(&tools, &checked, args.replace)?;
                    tools.catalog.reload();
                    written(&checked, &found)
                }
            })
        })
        .await
    }

    async fn reconcile(ctx: Ctx, args: Args) -> Result<Option<Outcome>, SkillError> {
        let (tools, call) = (Arc::clone(&ctx.tools), ctx.call.clone());
        run_blocking(move || {
            let _only = tools.building.lock().unwrap_or_else(PoisonError::into_inner);
            let found = match place(&args.name) {
                Some(path) => read_text(&root(&tools)?, &path).ok(),
                None => None,
            };
            let is_written = found.as_deref().and_then(Built::of).is_some_and(|b| b.provenance.intent == call.intent);
            Ok(Some(match checked(&tools, &call, &args)? {
                Ok(checked) if is_written => written(&checked, ""),
                Ok(_) | Err(_) => {
                    let what = "The call was interrupted before the skill was written. Nothing was written.";
                    Outcome::transient("interrupted", what)
                }
            }))
        })
        .await
    }
}

/// The path of a skill's file; `None` if the name has a form that no file can have.
fn place(name: &str) -> Option<String> {
    if !valid_skill_name(name) {
        return None;
    }
    match name.split('.').collect::<Vec<_>>()[..] {
        [name] => Some(format!("{name}/SKILL.md")),
        // `<domain>/skill.md` is the file of a prompt skill, which replaces the command skills of its folder.
        [_, verb] if verb.eq_ignore_ascii_case("skill") => None,
        [domain, verb] => Some(format!("{domain}/{verb}.md")),
        _ => None,
    }
}

fn root(tools: &Tools) -> Result<Dir, SkillError> {
    let folder = tools.catalog.own_folder().ok_or_else(|| SkillError::not_found("There is no folder of skills."))?;
    std::fs::create_dir_all(folder).map_err(|e| SkillError::io("cannot make the skills folder", e))?;
    Dir::open_ambient_dir(folder, ambient_authority()).map_err(|e| SkillError::io("cannot open the skills folder", e))
}

/// The skill as it is to be written, or all of its problems.
fn checked(tools: &Tools, call: &SkillCall, args: &Args) -> Result<Result<Checked, Vec<Problem>>, SkillError> {
    let mut report = Report::new(&args.name.chars().take(64).collect::<String>());
    let script = args.script.as_deref();
    for (flag, text) in [("content", Some(args.content.as_str())), ("script", script)] {
        if text.is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(SkillError::TooLarge(format!("--{flag} has more than {TEXT_BYTES_MAX} bytes.")));
        }
        // The person who approves the text must see what it says.
        if let Some((line, c)) = text.and_then(first_hidden) {
            let what = format!("line {line} of --{flag} has the invisible character {}", hidden::shown(c));
            report.error(None, what, "leave it out");
        }
    }
    let Some(path) = place(&args.name) else {
        let fix = "use `domain.verb` or one word, with lower case letters, digits, `-` and `_`, at most 64 bytes";
        report.error(None, "the name cannot be a skill's", fix);
        return Ok(Err(report.into_problems()));
    };
    check_name(tools, &args.name, &mut report);
    let (domain, file) = path.rsplit_once('/').unwrap_or((&path, ""));
    let script = script.map(|text| {
        let verb = file.trim_end_matches(".md");
        (format!("{verb}-{}.script", &hash_of(text.as_bytes())[..HASH_CHARS]), text.to_owned())
    });
    let text = with_script(&args.content, script.as_ref().map(|(name, _)| name.as_str()), &mut report);
    let script = script.map(|(name, text)| (format!("{domain}/{name}"), text));
    let folder = tools.catalog.own_folder().ok_or_else(|| SkillError::not_found("There is no folder of skills."))?;
    let files = |text: &str| -> BTreeMap<String, String> {
        script.iter().cloned().chain([(path.clone(), text.to_owned())]).collect()
    };
    let (entry, problems) = draft(folder, &path, files(&text));
    check_entry(entry.as_ref(), args, &text, folder, &mut report);
    let mut all = report.into_problems();
    all.extend(problems.into_iter().filter(Problem::is_failure));
    if !all.is_empty() {
        return Ok(Err(all));
    }
    let SkillCall { user: by, conversation, task, intent, now: at, .. } = call.clone();
    let provenance = Provenance { by, conversation, task, intent, at };
    let text = stamped(&text, &provenance).map_err(|e| SkillError::Arguments(e.to_string()))?;
    let (entry, problems) = draft(folder, &path, files(&text));
    match entry {
        // The text must not be able to hide or to change the line of its provenance.
        Some(entry) if entry.built.as_ref().is_some_and(|built| built.provenance == provenance) => {
            Ok(Ok(Checked { path, text, script, entry }))
        }
        _ => {
            let mut report = Report::new(&path);
            report.error(None, "the head is not plain", "write one `key: value` on each line of the head");
            Ok(Err(report.into_problems().into_iter().chain(problems).collect()))
        }
    }
}

/// Reports a name that is another skill's or the kernel's.
fn check_name(tools: &Tools, name: &str, report: &mut Report) {
    let domain = name.split('.').next().unwrap_or(name);
    if RESERVED.contains(&domain) {
        report.error(None, format!("`{name}` is a name of the kernel"), "use another domain");
    }
    let all = tools.all_skills.load();
    let snapshot = tools.catalog.snapshot();
    let key = SkillSpec::key(name);
    let is_own = snapshot.built().contains_key(name);
    let is_taken = all.iter().any(|skill| SkillSpec::key(&skill.name) == key);
    let is_command = slash_commands(&all).iter().any(|command| command.name.strip_prefix('/') == Some(name));
    if (is_taken || is_command) && !is_own {
        report.error(None, format!("there is another skill or command `{name}`"), "use another name");
    }
    let domains = all.domains();
    if !name.contains('.') && domains.iter().any(|known| known.name == name) {
        // A folder with a SKILL.md hides the command skills in it.
        report.error(None, format!("`{name}` is a domain"), "use another name");
    }
    let built = snapshot.built().len();
    if built >= BUILT_MAX && !is_own {
        let what = format!("conversations have written {built} skills already");
        report.error(None, what, "ask the user to remove some of them");
    }
}

/// The text with the name of the script's file in its head.
fn with_script(content: &str, script: Option<&str>, report: &mut Report) -> String {
    let Some((head, _)) = split(content) else { return content.to_owned() };
    match script {
        Some(name) if head.contains(SCRIPT) => content.replacen(head, &head.replace(SCRIPT, &format!("./{name}")), 1),
        Some(_) => {
            report.error(None, "nothing runs `--script`", format!("write `run: [python3, {SCRIPT}]` into the head"));
            content.to_owned()
        }
        None => content.to_owned(),
    }
}

/// Reports what a conversation may not write, although a person may.
fn check_entry(entry: Option<&Entry>, args: &Args, text: &str, folder: &Path, report: &mut Report) {
    let mut ignored = Report::new("");
    if Frontmatter::read(text, &mut ignored).is_some_and(|front| front.keys().any(|key| key == BUILT)) {
        report.error(None, "`built` is written by the kernel", "leave it out");
    }
    let Some(entry) = entry else { return };
    let (own, wanted) = (&entry.spec.name, &args.name);
    if own != wanted {
        report.error(None, format!("the file names the skill `{own}`"), format!("write `name: {wanted}`"));
    }
    if entry.schedule.is_some() {
        report.error(None, "`schedule` cannot be built", "leave it out, and use schedules.create after the approval");
    }
    match &entry.kind {
        Kind::Command(_) => {
            report.error(None, "a handler cannot be built", "write a prompt skill, `request:` or `run:`")
        }
        Kind::Script(script) => {
            for what in built_run::faults(&script.run, folder) {
                report.error(None, what, format!("put the program into `--script`, and name it as {SCRIPT}"));
            }
        }
        Kind::Request(_) | Kind::Prompt { .. } => {}
    }
}

fn invalid(problems: &[Problem]) -> Outcome {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let text = format!("The skill was not written. Problems: {}\n{}", lines.len(), lines.join("\n"));
    Outcome::permanent("invalid_arguments", text).with_evidence(json!({"problems": problems}))
}

/// The outcome of a skill that was not written because its test run failed.
fn test_failed(name: &str, why: &str) -> Outcome {
    let text = format!(
        "The skill {name} was not written. {why}\nCorrect the program, or the example in the text, whose first line that begins with \
         the skill's name is run."
    );
    Outcome::permanent("test_failed", text)
}

/// Writes the program, then the skill file. A program's name contains the hash of its text, so that no program is ever changed.
fn write(tools: &Tools, checked: &Checked, replace: bool) -> Result<(), SkillError> {
    let root = root(tools)?;
    let path = &checked.path;
    let (folder, file) = path.rsplit_once('/').unwrap_or((".", path));
    check_place(&root, path, replace)?;
    let failed = |error| SkillError::Setup { what: format!("cannot write {path}"), source: error };
    root.create_dir_all(folder).map_err(failed)?;
    let folder = root.open_dir(folder).map_err(failed)?;
    if let Some((path, text)) = &checked.script {
        let name = path.rsplit('/').next().unwrap_or(path);
        put(&folder, name, text).map_err(failed)?;
    }
    put(&folder, file, &checked.text).map_err(failed)?;
    let script = checked.script.as_ref().map(|(path, _)| path.rsplit('/').next().unwrap_or(path));
    remove_others(&folder, file, script).map_err(failed)
}

/// Removes the programs of former versions of the skill.
fn remove_others(folder: &Dir, file: &str, script: Option<&str>) -> io::Result<()> {
    let Some(verb) = file.strip_suffix(".md") else { return Ok(()) };
    for entry in folder.entries()? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let hash = name
            .strip_prefix(verb)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_suffix(".script"));
        let is_program =
            hash.is_some_and(|hash| hash.len() == HASH_CHARS && hash.bytes().all(|b| b.is_ascii_hexdigit()));
        if is_program && script != Some(name.as_str()) {
            folder.remove_file(&name)?;
        }
    }
    Ok(())
}

/// Refuses a place with files that no conversation wrote.
fn check_place(root: &Dir, path: &str, replace: bool) -> Result<(), SkillError> {
    let (folder, _) = path.rsplit_once('/').unwrap_or((".", path));
    let taken = |what: String| Err(SkillError::Conflict(format!("{what} Use another name.")));
    match root.symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if found.is_dir() => {}
        Ok(_) => return taken(format!("skills/{folder} is a link or a file.")),
        Err(error) => return Err(SkillError::io(format!("cannot read {folder}"), error)),
    }
    match root.symlink_metadata(path) {
        Ok(found) if found.is_file() => {
            if read_text(root, path).ok().as_deref().and_then(Built::of).is_none() {
                return taken(format!("skills/{path} is a file of a person, which no conversation changes."));
            }
            if !replace {
                return taken(format!("skills/{path} was built before: say --replace to write it again."));
            }
            Ok(())
        }
        Ok(_) => taken(format!("skills/{path} is a link or a folder.")),
        Err(_) => {
            let is_prompt = path.ends_with("/SKILL.md");
            let other = if is_prompt { folder.to_owned() } else { format!("{folder}/SKILL.md") };
            let small = format!("{folder}/skill.md");
            // A prompt skill makes the files beside it its own, and hides command skills in its folder.
            let hides = is_prompt && root.read_dir(&other).is_ok_and(|mut found| found.any(|file| !is_leftover(file)));
            let is_hidden = !is_prompt && (root.exists(&other) || root.exists(&small));
            if hides || is_hidden {
                return taken(format!("The folder skills/{folder} has other files."));
            }
            Ok(())
        }
    }
}

/// Whether a file was left by a build that was interrupted, or whose disk was full.
fn is_leftover(file: io::Result<DirEntry>) -> bool {
    file.is_ok_and(|file| file.file_name().to_string_lossy().ends_with(TEMPORARY))
}

/// Replaces a file atomically: after a crash it has either the old or the new text, never a part.
fn put(folder: &Dir, name: &str, text: &str) -> io::Result<()> {
    let temporary = format!(".{name}{TEMPORARY}");
    let filled = || {
        let mut new = folder.open_with(&temporary, OpenOptions::new().write(true).create(true).truncate(true))?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        folder.rename(&temporary, folder, name)
    };
    if let Err(error) = filled() {
        let _ = folder.remove_file(&temporary);
        return Err(error);
    }
    folder.open(".")?.sync_all()
}

/// `found` is what the test run found; empty if there was none.
fn written(checked: &Checked, found: &str) -> Outcome {
    let Checked { path, entry, .. } = checked;
    let name = &entry.spec.name;
    let next = match &entry.kind {
        Kind::Prompt { .. } => {
            let text = substitute(&entry.spec.body, "an example");
            let shown = crate::text::brief(&text, SHOWN_BYTES_MAX);
            format!("It can be used now. With the arguments \"an example\" it reads: {shown}")
        }
        Kind::Command(_) | Kind::Script(_) | Kind::Request(_) => format!(
            "It is not usable yet: the user must read and approve it, with `annie skills approve {name}` at a terminal, or on the \
             page of skills. Then `annie skills test {name}` tries it."
        ),
    };
    let next = if found.is_empty() { next } else { format!("{found}\n{next}") };
    let evidence = json!({"skill": name, "path": format!("skills/{path}"), "usage": entry.spec.synopsis()});
    Outcome::success(format!("Wrote the skill {name} into skills/{path}. {next}")).with_evidence(evidence)
}
