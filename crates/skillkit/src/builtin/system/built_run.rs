//! What `run:` of a script that a conversation wrote may name. The approval covers the skill file and the files beside it that `run:`
//! names. A conversation could change any other file after the approval, and an argument of a call is not approved at all.

use std::path::Path;

use crate::{files::placeholders, script::FOLDERS};

/// Programs that run the code or the file that the next arguments name, or another program.
const INTERPRETERS: [&str; 34] = [
    "sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "python", "pypy", "perl", "ruby", "node", "nodejs", "deno",
    "bun", "php", "lua", "tclsh", "awk", "gawk", "mawk", "sed", "make", "java", "env", "nice", "nohup", "timeout",
    "xargs", "setsid", "stdbuf", "busybox", "find", "parallel",
];

/// What is wrong with an argument list; `skills` is the folder of skills.
pub(super) fn faults(run: &[String], skills: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let skills = skills.display().to_string();
    for (n, item) in run.iter().enumerate() {
        if item.starts_with("./") {
            if item.contains('{') || item.split('/').any(|part| part == "..") {
                faults.push(format!("an argument or `..` chooses the program's file in `{item}`"));
            }
        } else if item.contains(&skills) || item.split('/').any(|part| part == "..") {
            faults.push(format!("`{item}` names a file that can change after the approval"));
        } else if n == 0 && item.contains('/') && !FOLDERS.iter().any(|folder| is_in(item, folder)) {
            faults.push(format!("the program `{item}` is in none of {}", FOLDERS.join(", ")));
        } else if n > 0 && item.rsplit_once('=').map_or(item.as_str(), |(_, value)| value).starts_with('/') {
            faults.push(format!("`{item}` names a file that the approval does not cover"));
        }
    }
    faults.extend(chosen_by_argument(run));
    faults
}

fn is_in(path: &str, folder: &str) -> bool {
    Path::new(path).parent() == Some(Path::new(folder))
}

/// The interpreter whose code comes from an argument of the call.
fn chosen_by_argument(run: &[String]) -> Option<String> {
    let before_file = run.iter().take_while(|item| !item.starts_with("./")).count();
    let (named, _) = run.split_at(before_file);
    let last = named.iter().rposition(|item| is_interpreter(item))?;
    let mut behind = named[last + 1..].iter();
    let chosen = behind.find(|item| placeholders(item).next().is_some() || !item.starts_with('-'))?;
    let is_chosen = placeholders(chosen).next().is_some();
    is_chosen.then(|| format!("the argument `{chosen}` chooses what `{}` runs", named[last]))
}

/// Whether a program is an interpreter, in whatever version: `/usr/bin/python3.12`.
fn is_interpreter(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(run: &[&str]) -> Vec<String> {
        let run: Vec<String> = run.iter().map(|item| (*item).to_owned()).collect();
        faults(&run, Path::new("/data/skills"))
    }

    #[test]
    fn run_of_a_built_script_names_only_what_the_approval_covers() {
        for refused in [
            &["sh", "/data/skills/sums/other.md"][..],
            &["sh", "-c", ". /data/skills/sums/other.md"],
            &["/data/skills/sums/other.md"],
            &["/home/ann/run.sh"],
            &["/usr/bin/../../home/ann/run.sh"],
            &["sh", "../../skills/sums/other.md"],
            &["./../other/x"],
            &["./{file}"],
            &["sh", "{file}"],
            &["python3", "-u", "{file}"],
            &["/usr/bin/python3.12", "-c", "{code}"],
            &["env", "A=1", "sh", "{file}"],
            &["awk", "--file=/etc/x"],
            &["xargs", "{program}"],
        ] {
            assert!(!faults_of(refused).is_empty(), "{refused:?}");
        }
        for accepted in [
            &["sh", "./SCRIPT", "{text}"][..],
            &["./SCRIPT", "sh", "{text}"],
            &["/usr/bin/env", "python3", "-u", "./SCRIPT", "--n={n}"],
            &["sh", "-c", "echo \"$1\"", "x", "{text}"],
            &["grep", "-c", "{word}"],
            &["date", "--date={day}"],
        ] {
            assert_eq!(faults_of(accepted), Vec::<String>::new(), "{accepted:?}");
        }
    }
}
