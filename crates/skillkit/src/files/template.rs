//! Files for a person who begins a new skill by hand: valid, and with the places to fill in.

use super::{Report, draft, problem::Problem};
use annie_core::skill::valid_skill_name;
use std::{collections::BTreeMap, path::Path};

/// The kind of a new skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillTemplate {
    /// Instructions for the model.
    Prompt,
    /// An HTTP request.
    Request,
    /// A program in the sandbox.
    Script,
}

impl SkillTemplate {
    /// The files of a new skill by their path in the skills folder: the skill file and, for a script, its program.
    ///
    /// # Errors
    /// The problems of the name.
    pub fn files(self, name: &str) -> Result<BTreeMap<String, String>, Vec<Problem>> {
        let mut report = Report::new(name);
        let parts: Vec<&str> = name.split('.').collect();
        let files = match (self, &parts[..]) {
            _ if !valid_skill_name(name) => BTreeMap::new(),
            // `<domain>/skill.md` is the file of a prompt skill.
            (_, [_, "skill"]) => BTreeMap::new(),
            (Self::Prompt, [word]) => BTreeMap::from([(format!("{word}/SKILL.md"), prompt(name))]),
            (Self::Request, [domain, verb]) => BTreeMap::from([(format!("{domain}/{verb}.md"), request(name))]),
            (Self::Script, [domain, verb]) => BTreeMap::from([
                (format!("{domain}/{verb}.md"), script(name, verb)),
                (format!("{domain}/{verb}.py"), "import sys\n\nprint(sys.argv[1])\n".to_owned()),
            ]),
            _ => BTreeMap::new(),
        };
        let Some(path) = files.keys().find(|path| path.ends_with(".md")).cloned() else {
            let form = if self == Self::Prompt {
                "one word, such as `standup`"
            } else {
                "a domain and a verb, such as `weather.now`"
            };
            report.error(
                None,
                "the name cannot be this skill's",
                format!("use {form}, in lower case letters, digits and `-`"),
            );
            return Err(report.into_problems());
        };
        let (_, mut problems) = draft(Path::new("/"), &path, files.clone());
        problems.retain(Problem::is_failure);
        if problems.is_empty() { Ok(files) } else { Err(problems) }
    }
}

fn prompt(name: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Say in one sentence what it does and when to use it.\n---\n\nWrite here what is to be done \
         with $ARGUMENTS.\n"
    )
}

fn request(name: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Say in one sentence what it does and when to use it.\neffect: read\nexternal: true\n\
         arguments:\n  query: {{required: true}}\nrequest:\n  url: https://api.example.com/v1/search\n  query: {{q: \"{{query}}\"}}\n\
         ---\n\n## Examples\n\n```cmd\n{name} --query tea\n```\n"
    )
}

fn script(name: &str, verb: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Say in one sentence what it does and when to use it.\neffect: read\nexternal: false\n\
         arguments:\n  text: {{required: true}}\nrun: [python3, ./{verb}.py, \"{{text}}\"]\n---\n\n## Examples\n\n```cmd\n{name} --text \
         hello\n```\n"
    )
}
