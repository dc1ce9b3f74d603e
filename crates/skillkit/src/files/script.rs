//! `run:` of a command skill: the program that runs it, as an argument list. An item that begins with `./` is a file of the
//! skill's folder, and `{name}` is the value of the argument `name`.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use annie_core::skill::ArgSpec;

use super::{
    arguments::{self, is_name},
    frontmatter::{Frontmatter, scalar, truth},
    problem::Report,
    tree::Tree,
};

/// The most items of an argument list.
const ITEMS_MAX: usize = 64;

/// The script of a file, with its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptFile {
    pub(crate) script: Script,
    pub(crate) args: Vec<ArgSpec>,
}

/// A script that can be run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    /// The skill's folder, an absolute path.
    pub(crate) folder: PathBuf,
    pub(crate) run: Vec<String>,
    pub(crate) network: bool,
}

/// Where a skill file is.
pub(crate) struct Place<'a> {
    pub(crate) tree: &'a dyn Tree,
    /// The files of the tree, sorted.
    pub(crate) paths: &'a [String],
    /// The folder of the skill file in the tree.
    pub(crate) folder: &'a str,
}

/// The script of a file; `None` if the file has no `run`. Every problem is reported.
pub(crate) fn read(front: &Frontmatter, place: &Place<'_>, report: &mut Report) -> Option<ScriptFile> {
    let value = front.get("run")?;
    let line = front.line_of("run");
    let items = value.as_sequence().map(|items| items.iter().map(scalar).collect::<Option<Vec<_>>>());
    let run = items.flatten().unwrap_or_default();
    if run.is_empty() || run.len() > ITEMS_MAX || run.iter().any(|item| item.contains('\0')) {
        let shell = if value.is_string() { "; no shell reads it" } else { "" };
        let fix = "write `run: [python3, ./script.py]`: the program and each of its arguments as one item";
        report.error(line, format!("`run` must be a list of 1 to {ITEMS_MAX} texts{shell}"), fix);
    }
    let args = arguments::read(front, report);
    for name in run.iter().flat_map(|item| placeholders(item)) {
        if !args.iter().any(|arg| arg.name == name) {
            let fix = "declare it below `arguments:`, or write the braces in another way";
            report.error(line, format!("`{{{name}}}` in `run` is no argument"), fix);
        }
    }
    let network = front.flag("network", report).unwrap_or(false);
    if network && front.get("external").and_then(truth) == Some(false) {
        report.error(front.line_of("external"), "the script has the network", "write `external: true`");
    }
    let Some(root) = place.tree.folder() else {
        report.error(line, "a bundled skill cannot be a script", "put it into the skills folder");
        return None;
    };
    let script = Script { folder: root.join(place.folder), run, network };
    script.check_files(place, line, report);
    Some(ScriptFile { script, args })
}

impl Script {
    /// Reports items that name no file, and a program that cannot be executed.
    fn check_files(&self, place: &Place<'_>, line: Option<u32>, report: &mut Report) {
        for (n, item) in self.run.iter().enumerate() {
            let Some(own) = item.strip_prefix("./").filter(|own| placeholders(own).next().is_none()) else { continue };
            let path = format!("{}/{own}", place.folder);
            if place.paths.binary_search(&path).is_err() {
                report.error(line, format!("there is no file `{path}`"), "put the script beside this file");
            } else if n == 0 && !is_executable(&self.folder.join(own)) {
                let fix = format!("chmod +x {path}, or write `run: [python3, {item}]`");
                report.error(line, format!("`{path}` is not executable"), fix);
            }
        }
        let Some(program) = self.run.first() else { return };
        if program.contains('{') {
            report.error(line, "the program of `run` comes from an argument", "name one program");
        } else if program.contains('/') && !program.starts_with('/') && !program.starts_with("./") {
            let fix = "begin it with `./` for a file of this folder, or with `/`";
            report.error(line, format!("the program `{program}` is neither a name nor a path"), fix);
        }
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The names in braces that can be names of arguments. Other braces are text, such as those of JSON.
pub(crate) fn placeholders(item: &str) -> impl Iterator<Item = &str> {
    item.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).filter(|name| is_name(name))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::super::validate::validate;

    fn problems(root: &Path) -> Vec<String> {
        validate(root).unwrap().iter().map(ToString::to_string).collect()
    }

    fn written(head: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sums")).unwrap();
        let text = format!("---\nname: sums.add\ndescription: d\neffect: read\nexternal: false\n{head}---\nx\n");
        fs::write(folder.path().join("sums/add.md"), text).unwrap();
        fs::write(folder.path().join("sums/add.py"), "print(1)\n").unwrap();
        folder
    }

    #[test]
    fn script_errors_are_reported_all_at_once() {
        let head = "run: [\"./add.py\", \"./none.py\", \"{b}\"]\nnetwork: true\nhandler: tasks.search\narguments:\n  \
                    a: {type: size}\n  B: text\n";
        let found = problems(written(head).path()).join("\n");
        for wanted in [
            "`type: size` is unknown; write text, integer",
            "`B` cannot be the name of an argument",
            "`{b}` in `run` is no argument",
            "the script has the network; write `external: true`",
            "`handler` and `run` exclude each other",
            "there is no file `sums/none.py`",
            "`sums/add.py` is not executable; chmod +x sums/add.py",
        ] {
            assert!(found.contains(wanted), "{wanted} is missing in:\n{found}");
        }
    }

    #[test]
    fn script_run_as_one_text_is_refused_because_no_shell_reads_it() {
        let found = problems(written("run: python3 ./add.py\n").path()).join("\n");
        assert!(found.contains("`run` must be a list of 1 to 64 texts; no shell reads it"), "{found}");
    }

    #[test]
    fn script_without_mistakes_is_valid() {
        let head =
            "run: [python3, ./add.py, \"--n={n}\", '{\"a\": 1}']\narguments:\n  n: {type: integer, required: true}\n";
        assert_eq!(problems(written(head).path()), Vec::<String>::new());
    }
}
