//! The default routing table [S3 10.3]. It selects backends by capability and not by name, because names differ between
//! installations. A rule for a capability that no backend has is ignored, so with a single plain backend all requests go
//! there. The rules take effect when a backend declares `git`, `voice`, `shell` …

use super::rules::{Fallback, RouteRule, Target, When};
use crate::event::Priority;

/// The rules that apply unless the configuration has its own; the first rule that matches applies. Notes and tasks come
/// before git and files: "remind me to push the branch" is not a request to push.
#[must_use]
pub fn default_rules() -> Vec<RouteRule> {
    vec![
        RouteRule {
            when: When { sources: vec!["voice".to_owned()], ..When::default() },
            ..rule("voice", "", Target::able(["voice"]), Fallback::Never, "speech cannot wait for a slow backend")
        },
        RouteRule {
            when: When { priorities: vec![Priority::Realtime], ..When::default() },
            ..rule("realtime", "", Target::able(["voice"]), Fallback::Never, "speech cannot wait for a slow backend")
        },
        rule("memory", MEMORY, Target::local(), Fallback::Never, "memories are processed by local backends only"),
        rule("tasks", TASKS, Target::local(), Fallback::Allow, "notes and tasks are kept here"),
        rule("video", VIDEO, Target::able(["shell", "web"]), Fallback::Allow, "a video must be fetched"),
        rule("git", GIT, Target::able(["git"]), Fallback::Never, "needs the git command line"),
        rule("files", FILES, Target::able(["files"]), Fallback::Allow, "needs to read and write files"),
        rule("mcp", r"\bmcp\b", Target::able(["mcp"]), Fallback::Allow, "needs an MCP server"),
        rule("browser", BROWSER, Target::able(["browser"]), Fallback::Allow, "needs a browser"),
        rule("python", PYTHON, Target::able(["python"]), Fallback::Allow, "needs a place to run code"),
        rule("search", SEARCH, Target::local(), Fallback::Allow, "searching and reading are done by local backends"),
    ]
}

fn rule(name: &str, regex: &str, to: Target, fallback: Fallback, reason: &str) -> RouteRule {
    let when = When { regex: Some(regex.to_owned()).filter(|r| !r.is_empty()), ..When::default() };
    RouteRule { name: name.to_owned(), when, to, fallback, reason: reason.to_owned() }
}

const MEMORY: &str = r"^\W*(please\s+)?(remember|forget|memori[sz]e)\b|\bwhat do you (remember|know about me)\b";

const TASKS: &str = concat!(
    r"^\W*(please\s+)?(remind me|don'?t let me forget|note( down)? that|take a note)\b",
    r"|\b(create|add|make|set|new)\s+(me\s+)?(a|an|another)?\s*(task|to-?do|reminder|note|event|appointment)\b",
);

const VIDEO: &str =
    r"\bhttps?://((www|m|music)\.)?(youtube(-nocookie)?\.com/(watch|shorts|live|embed|playlist)|youtu\.be/)";

const GIT: &str = concat!(
    r"\bgit\s+(status|diff|log|add|commit|push|pull|fetch|clone|branch|checkout|switch|merge|rebase|stash|tag|blame|show|reset|revert)\b",
    r"|^\W*(please\s+)?((now|then|also|can you|could you)\s+)*(commit|push|rebase|cherry-?pick)\b",
    r"|\bcommit\s+((this|these|that|the|my|our|your|all|it|them)\s+)*(changes?|work|files?|code|edits?|fix|fixes)\b",
    r"|\bpush\s+((this|these|that|the|my|our|it|them|branch|changes?)\s+)*to\s+(origin|main|master|remote|git\w*|the remote)\b",
    r"|\b(open|create|make|merge|close|update)\s+((a|an|the|this|that|my|new|draft)\s+)*(pr|pull request|merge request)\b",
);

const FILES: &str = concat!(
    r"\b(edit|read|open|write|change|fix|refactor|delete|rename|create)\s+((the|a|my|this|that)\s+)*(source\s+)?files?\b",
    r"|\b(edit|refactor|fix|rename|read|open|change)\s+(the\s+)?[\w./-]+\.(rs|py|js|ts|tsx|jsx|go|c|h|cpp|java|kt|rb|sh|toml|ya?ml|json|md|sql|html|css)\b",
    r"|\b(refactor|debug|compile)\s+((the|this|my|our)\s+)*(code|function|module|crate|package|project|program|script)\b",
    r"|\brun\s+((the|all|our|my)\s+)*(unit\s+|integration\s+)?tests\b",
);

const BROWSER: &str = concat!(
    r"\b(take a )?screenshot\s+(of|from)\s+(https?://|\w+\.\w+|the (page|site|website))",
    r"|\b(fill (in|out)|submit)\s+((the|a|this|that)\s+)*(web\s*)?form\b",
    r"|\b(click|log ?in|sign ?in)\s+(on|to|at)\s+(https?://|the (page|site|website|button|link))",
);

const PYTHON: &str =
    r"\b(run|execute|evaluate|write and run)\s+((this|that|the|some|a|following)\s+)*python\b|\bexecute_python\b";

const SEARCH: &str = r"^\W*(please\s+)?((can|could) you\s+)?(search|look up|google|research|find out|browse)\b";
