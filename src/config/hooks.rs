//! `[[hook]]`: decisions before a turn or a skill runs, by rules, programs and persons. The hooks are documented in
//! [`annie_core::hooks`].

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use annie_channels::{WebhookHook, WebhookHookConfig};
use annie_core::{
    approval::APPROVAL,
    hooks::{
        Agents, Conditions, Hook, HookPoint, HookSet, OnFailure, OutsideHook, RefuseRule, skill_matches,
        valid_hook_name, valid_skill_pattern,
    },
    ids::UserId,
    ports::{Clock, HookRunner},
};
use annie_llm::{CommandConfig, ProgramHook, Secret};
use serde::{Deserialize, Serialize};

use super::{
    backend::host_of,
    channels::{ChannelConfig, ChannelError, signing_key, valid_channel_name},
    environment::Environment,
    settings::Config,
    typed::KeyError,
};

/// The channels of messages: the front ends, and `voice` for spoken messages, which arrive over HTTP or gRPC.
const CHANNELS: [&str; 5] = ["cli", "grpc", "http", "openai", "voice"];

/// The kind of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookKind {
    /// A rule that refuses.
    Refuse,
    /// A program that decides.
    Program,
    /// A rule that asks a person.
    Ask,
    /// A service behind a URL that decides.
    Webhook,
}

/// The time limit of a program's answer, in milliseconds. A person may wait for the turn.
const ANSWER_MS_DEFAULT: u64 = 2_000;
/// Bytes of a question beside the message. The arguments of a call are a part of a model's reply.
const QUESTION_BYTES_MIN: usize = 64 * 1024;
/// Bytes that JSON needs at most for a byte of a text, such as `\u0000`.
const ESCAPED_BYTES_MAX: usize = 6;
/// Size limit for the answer of a program, in bytes. It replaces the arguments of one call at most.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// The size limit of a question, in bytes.
const fn question_bytes_max(message_bytes_max: usize) -> usize {
    message_bytes_max.saturating_mul(ESCAPED_BYTES_MAX).saturating_add(QUESTION_BYTES_MIN)
}

/// `[[hook]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookConfig {
    /// The name, for records and people.
    pub name: String,
    /// The point at which the hook decides.
    pub point: HookPoint,
    /// The kind.
    pub kind: HookKind,
    /// The conditions under which the rule refuses, or the program is asked.
    #[serde(default)]
    pub when: Conditions,
    /// Of a rule: the reason, which the model or the user receives.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The program's absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// The program's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The URL of the service. It is not shown, because it may contain a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Secret>,
    /// A file that contains the key of the signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// The environment variable that contains the key of the signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    /// The time limit of an answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms_max: Option<u64>,
    /// The consequence if the program or the service gives no valid answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
}

impl HookConfig {
    /// The rule, if this hook is one.
    fn rule(&self) -> Option<Arc<dyn Hook>> {
        let Self { name, point, kind, when, text, .. } = self.clone();
        match kind {
            HookKind::Refuse => Some(Arc::new(RefuseRule { name, point, text, when })),
            HookKind::Program | HookKind::Ask | HookKind::Webhook => None,
        }
    }

    /// The program, if this hook asks one. Its question has room for every message of this size.
    #[must_use]
    pub fn command(&self, message_bytes_max: usize) -> Option<CommandConfig> {
        let program = self.program.clone().filter(|_| self.kind == HookKind::Program)?;
        Some(CommandConfig {
            name: self.name.clone(),
            folder: program.parent().unwrap_or(Path::new("/")).to_owned(),
            program,
            args: self.args.clone(),
            run_ms_max: self.answer_ms(),
            output_bytes_max: OUTPUT_BYTES_MAX,
            prompt_bytes_max: question_bytes_max(message_bytes_max),
            ..CommandConfig::default()
        })
    }

    /// The service, if this hook asks one. Its question has room for every message of this size.
    ///
    /// # Errors
    /// If the secret is missing, or the service cannot be asked.
    pub fn webhook(
        &self,
        message_bytes_max: usize,
        environment: &Environment,
        clock: Arc<dyn Clock>,
    ) -> Result<Option<WebhookHook>, ChannelError> {
        let Some(url) = self.url.as_ref().filter(|_| self.kind == HookKind::Webhook) else { return Ok(None) };
        let of = format!("hook `{}`", self.name);
        let secret = signing_key(&of, self.secret_file.as_deref(), self.secret_env.as_deref(), environment)?;
        let config = WebhookHookConfig {
            name: self.name.clone(),
            url: url.expose().to_owned(),
            secret: secret.expose().to_owned(),
            ms_max: self.answer_ms(),
            question_bytes_max: question_bytes_max(message_bytes_max),
        };
        Ok(Some(WebhookHook::new(config, annie_llm::http_client(), clock)?))
    }

    /// The hook that asks its program or its service through this runner.
    #[must_use]
    pub fn outside(&self, runner: Arc<dyn HookRunner>) -> OutsideHook {
        OutsideHook {
            name: self.name.clone(),
            point: self.point,
            when: self.when.clone(),
            on_failure: self.on_failure.unwrap_or_default(),
            ms_max: self.answer_ms().saturating_add(ProgramHook::OVERHEAD_MS_MAX),
            runner,
        }
    }

    fn answer_ms(&self) -> u64 {
        self.answer_ms_max.unwrap_or(ANSWER_MS_DEFAULT)
    }

    /// All errors in this hook's keys. `webhooks` are the configured channels, which receive no messages.
    fn problems(&self, index: &str, webhooks: &[ChannelConfig]) -> Vec<KeyError> {
        let mut found = Vec::new();
        if !valid_hook_name(&self.name) {
            let fix = "use 1 to 64 lower-case letters, digits, dashes and underscores";
            found.push(KeyError::value(&["hook", index, "name"], &format!("{:?} is not a valid name", self.name), fix));
        } else if self.name == APPROVAL {
            let what = "this name stands for the answers of persons";
            found.push(KeyError::value(&["hook", index, "name"], what, "rename it"));
        }
        found.extend(self.point_problems(index));
        found.extend(condition_problems(&["hook", index], &self.when, webhooks));
        match self.kind {
            HookKind::Refuse => found.extend(self.rule_problems(index)),
            HookKind::Program => found.extend(self.program_problems(index)),
            HookKind::Ask => found.extend(self.ask_problems(index)),
            HookKind::Webhook => found.extend(self.webhook_problems(index)),
        }
        if self.kind != HookKind::Webhook {
            found.extend(self.webhook_keys(index));
        }
        found
    }

    /// The errors in the keys of a rule that asks a person.
    fn ask_problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        if self.point == HookPoint::BeforeTurn {
            let what = "a person is asked about calls of skills, and a turn begins before them";
            found.push(KeyError::value(&["hook", index, "point"], what, "use point = \"before_skill\""));
        }
        if !self.text.is_empty() {
            found.push(KeyError::value(&["hook", index, "text"], "the person gives the reason", "remove it"));
        }
        found.extend(self.program_keys(index));
        found
    }

    /// The errors in the keys of a rule.
    fn rule_problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        let (chars, chars_max) = (self.text.chars().count(), RefuseRule::TEXT_CHARS_MAX);
        let path = ["hook", index, "text"];
        if self.text.trim().is_empty() {
            found.push(KeyError::value(
                &path,
                "it is missing or empty",
                "write the reason that the user or the model receives",
            ));
        } else if chars > chars_max {
            let what = format!("it has {chars} characters, at most {chars_max} are allowed");
            found.push(KeyError::value(&path, &what, "shorten it"));
        }
        found.extend(self.program_keys(index));
        found
    }

    /// The keys of a program, which a rule does not have.
    fn program_keys(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        let what = match self.kind {
            HookKind::Ask => "a rule that asks a person asks no program",
            HookKind::Webhook => "a service is asked by its url",
            HookKind::Refuse | HookKind::Program => "a rule that refuses asks no program",
        };
        let is_asked = self.kind == HookKind::Webhook;
        for (key, is_given) in [
            ("program", self.program.is_some()),
            ("args", !self.args.is_empty()),
            ("answer_ms_max", self.answer_ms_max.is_some() && !is_asked),
            ("on_failure", self.on_failure.is_some() && !is_asked),
        ] {
            if is_given {
                let fix = "use kind = \"program\", or remove it";
                found.push(KeyError::value(&["hook", index, key], what, fix));
            }
        }
        found
    }

    /// The keys of a service, which no other hook has.
    fn webhook_keys(&self, index: &str) -> Vec<KeyError> {
        let given = [
            ("url", self.url.is_some()),
            ("secret_file", self.secret_file.is_some()),
            ("secret_env", self.secret_env.is_some()),
        ];
        let wrong = given.into_iter().filter(|(_, is_given)| *is_given);
        let fix = "use kind = \"webhook\", or remove it";
        wrong.map(|(key, _)| KeyError::value(&["hook", index, key], "only a webhook has it", fix)).collect()
    }

    /// The errors in the keys of a service.
    fn webhook_problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = self.program_keys(index);
        let mut add = |key: &str, what: &str, fix: &str| {
            found.push(KeyError::value(&["hook", index, key], what, fix));
        };
        let url = self.url.as_ref().map(|url| url.expose().to_owned()).unwrap_or_default();
        if !(url.starts_with("http://") || url.starts_with("https://")) || host_of(&url).is_none() {
            add("url", "it is no URL with http:// or https://", "write it as https://example.org/annie");
        }
        if self.secret_file.is_some() == self.secret_env.is_some() {
            let what = "it needs one secret, with which its questions are signed";
            add("secret_file", what, "give secret_file or secret_env, not both");
        }
        let ms_max = OutsideHook::MS_MAX;
        if !(1..=ms_max).contains(&self.answer_ms()) {
            let what = format!("{} is not between 1 and {ms_max}", self.answer_ms());
            add("answer_ms_max", &what, "a person may wait for the turn: 2000 is the default");
        }
        if !self.text.is_empty() {
            add("text", "the service gives the reason", "remove it");
        }
        found
    }

    /// The errors in the keys of a program.
    fn program_problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        let mut add = |key: &str, what: &str, fix: &str| {
            found.push(KeyError::value(&["hook", index, key], what, fix));
        };
        match &self.program {
            None => add("program", "it is missing", "give the whole path of the program"),
            Some(program) if !program.is_absolute() => {
                let what = format!("{:?} is not a whole path", program.display().to_string());
                add("program", &what, "begin it with a slash");
            }
            Some(_) => {}
        }
        if self.args.iter().any(|arg| arg.contains("{prompt}")) {
            add("args", "the question is no argument", "read it from stdin, and remove {prompt}");
        }
        if self.args.iter().any(|arg| arg.contains('\0')) {
            add("args", "an argument has a NUL", "remove it");
        }
        let ms_max = OutsideHook::MS_MAX;
        if !(1..=ms_max).contains(&self.answer_ms()) {
            let what = format!("{} is not between 1 and {ms_max}", self.answer_ms());
            add("answer_ms_max", &what, "a person may wait for the turn: 2000 is the default");
        }
        if !self.text.is_empty() {
            add("text", "the program gives the reason", "remove it");
        }
        found
    }

    /// The errors in conditions that the point does not have.
    fn point_problems(&self, index: &str) -> Vec<KeyError> {
        let mut found = Vec::new();
        if self.point == HookPoint::BeforeTurn && !self.when.skills.is_empty() {
            let what = "a turn begins before its skills are known";
            let path = ["hook", index, "when", "skills"];
            found.push(KeyError::value(&path, what, "use point = \"before_skill\""));
        }
        if self.point == HookPoint::BeforeTurn && self.when.agents == Agents::Sub {
            let what = "a turn begins before its sub-agents exist";
            let path = ["hook", index, "when", "agents"];
            let fix = "use point = \"before_skill\", or leave `agents` out";
            found.push(KeyError::value(&path, what, fix));
        }
        found
    }
}

/// The errors in conditions on skills, users and channels. `at` is the path of the table that has the key `when`. `webhooks` are the
/// configured channels, which receive no messages.
pub(super) fn condition_problems(at: &[&str], when: &Conditions, webhooks: &[ChannelConfig]) -> Vec<KeyError> {
    let path = |key: &'static str| [at, &["when", key]].concat();
    let Conditions { skills, users, channels, .. } = when;
    let mut found = Vec::new();
    let fix = "write `tasks.create`, `tasks.*` or `*`";
    found.extend(first_problem(&path("skills"), skills, fix, |pattern| {
        (!valid_skill_pattern(pattern)).then(|| format!("{pattern:?} is not a skill pattern"))
    }));
    found.extend(first_problem(&path("users"), users, "use 1 to 128 bytes without control characters", |user| {
        UserId::new(user).is_err().then(|| format!("{user:?} cannot be a user id"))
    }));
    let known = format!(
        "the channels are {}, and channel:NAME for what the channel NAME of an extension receives",
        CHANNELS.join(", ")
    );
    found.extend(first_problem(&path("channels"), channels, &known, |channel| {
        if CHANNELS.contains(&channel) {
            return None;
        }
        let name = channel.strip_prefix("channel:").filter(|name| valid_channel_name(name));
        let Some(name) = name else { return Some(format!("there is no channel {channel:?}")) };
        let is_webhook = webhooks.iter().any(|webhook| webhook.name == name);
        is_webhook.then(|| format!("{channel:?} is a webhook, which receives no messages: name the front end"))
    }));
    found
}

/// The first error in the values of a condition.
fn first_problem(
    path: &[&str],
    values: &[String],
    fix: &str,
    problem: impl Fn(&str) -> Option<String>,
) -> Option<KeyError> {
    let (count, count_max, bytes_max) = (values.len(), Conditions::VALUES_MAX, Conditions::VALUE_BYTES_MAX);
    if count > count_max {
        let what = format!("it has {count} values, at most {count_max} are allowed");
        return Some(KeyError::value(path, &what, "divide them between several hooks"));
    }
    if values.iter().any(|value| value.len() > bytes_max) {
        let what = format!("a value has more than {bytes_max} bytes");
        return Some(KeyError::value(path, &what, "shorten it"));
    }
    values.iter().find_map(|value| problem(value)).map(|what| KeyError::value(path, &what, fix))
}

impl Config {
    /// The configured rules.
    #[must_use]
    pub fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        self.hook.iter().filter_map(HookConfig::rule).collect()
    }

    /// The patterns that match none of the skills with these names, each with the name of its hook, as (hook, pattern). The rules
    /// of `[approval]` are named [`APPROVAL`].
    #[must_use]
    pub fn idle_hooks(&self, skills: &[String]) -> Vec<(String, String)> {
        // The tools of an MCP server are listed only once it is connected.
        let is_awaited = |pattern: &str| {
            let mut servers = self.mcp.iter().filter(|server| server.enabled);
            servers.any(|server| pattern == "mcp.*" || pattern.starts_with(&format!("mcp.{}.", server.name)))
        };
        let is_listed = |pattern: &str| pattern == "*" || skills.iter().any(|skill| skill_matches(pattern, skill));
        let is_idle = |pattern: &str| !is_listed(pattern) && !is_awaited(pattern);
        let hooks = self.hook.iter().map(|hook| (hook.name.as_str(), &hook.when));
        let rules = self.approval.rules.iter().map(|rule| (APPROVAL, &rule.when));
        let patterns = hooks.chain(rules).flat_map(|(name, when)| when.skills.iter().map(move |skill| (name, skill)));
        let idle = patterns.filter(|(_, pattern)| is_idle(pattern));
        idle.map(|(name, pattern)| (name.to_owned(), pattern.clone())).collect()
    }

    /// The programs of hooks that are no executable files, each with the name of its hook, as (hook, program).
    #[must_use]
    pub fn broken_hook_programs(&self) -> Vec<(String, PathBuf)> {
        let is_program = |path: &Path| {
            use std::os::unix::fs::PermissionsExt;
            path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let commands = self.hook.iter().filter_map(|hook| hook.command(self.limits.message_bytes_max));
        commands
            .filter(|command| !is_program(&command.program))
            .map(|command| (command.name, command.program))
            .collect()
    }

    /// The errors of all hooks.
    pub(super) fn hook_problems(&self) -> Vec<KeyError> {
        let (count, count_max) = (self.hook.len(), HookSet::HOOKS_MAX);
        if count > count_max {
            let what = format!("there are {count} hooks, at most {count_max} are allowed");
            return vec![KeyError::value(&["hook"], &what, "combine some of them")];
        }
        let (mut found, mut names) = (Vec::new(), BTreeSet::new());
        for (at, hook) in self.hook.iter().enumerate() {
            let index = at.to_string();
            found.extend(hook.problems(&index, &self.channel));
            if !names.insert(hook.name.as_str()) {
                let what = format!("another hook is named {:?} too", hook.name);
                found.push(KeyError::value(&["hook", &index, "name"], &what, "give each its own name"));
            }
        }
        found
    }
}
