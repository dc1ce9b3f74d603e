//! `robots.txt` (RFC 9309): which paths of a site an automatic reader may read. Asked only if the operator wants it
//! (`egress.robots`).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::egress::Url;
use annie_core::{outcome::Outcome, ports::EgressRequest};

use crate::{error::SkillError, handler::Ctx};

/// The name by which the rules of a site may address Annie, in lower case.
const AGENT: &str = "annie";
/// How long the rules of a site are kept, in milliseconds (RFC 9309: at most a day).
const KEPT_MS: i64 = 3_600_000;
/// How many sites' rules are kept.
const SITES_MAX: usize = 256;
/// The size of the rules that is read, in bytes (RFC 9309: at least 500 kibibytes).
const RULES_BYTES_MAX: usize = 512 * 1024;

/// The rules of sites that were read last.
#[derive(Default)]
pub(crate) struct Robots {
    sites: Mutex<BTreeMap<String, Site>>,
}

struct Site {
    read_at_ms: i64,
    rules: Arc<Vec<Rule>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    is_allowed: bool,
    /// A path, with `*` for any text, and `$` at the end for the end of the path.
    pattern: String,
}

/// Why a page may not be read; `None` if it may.
pub(super) async fn refusal(ctx: &Ctx, url: &str) -> Result<Option<Outcome>, SkillError> {
    // The egress client says what is wrong with a URL.
    let Ok(url) = Url::parse(url) else { return Ok(None) };
    let site = url.origin().ascii_serialization();
    let now_ms = ctx.call.now.0 / 1_000;
    let rules = match ctx.tools.robots.of(&site, now_ms) {
        Some(rules) => rules,
        None => match read(ctx, &site).await? {
            Ok(rules) => ctx.tools.robots.keep(site, now_ms, rules),
            Err(refused) => return Ok(Some(*refused)),
        },
    };
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let path = format!("{}{query}", url.path());
    Ok((!is_allowed(&rules, &path)).then(|| {
        let what = "The site does not allow automatic readers to read this page (robots.txt).";
        Outcome::blocked("robots_refused", what)
    }))
}

/// The rules of a site. A site without rules allows everything; one whose rules cannot be read allows nothing for now.
async fn read(ctx: &Ctx, site: &str) -> Result<Result<Vec<Rule>, Box<Outcome>>, SkillError> {
    let mut request = EgressRequest::get(format!("{site}/robots.txt"));
    request.reply_bytes_max = Some(RULES_BYTES_MAX);
    let reply = ctx.send(request).await?;
    Ok(match reply.status {
        200..300 => Ok(rules_for(AGENT, &String::from_utf8_lossy(&reply.body))),
        429 | 500.. => {
            let what = format!("The rules of the site for automatic readers cannot be read (status {}).", reply.status);
            Err(Box::new(Outcome::transient(&format!("site_{}", reply.status), what)))
        }
        _ => Ok(Vec::new()),
    })
}

impl Robots {
    fn of(&self, site: &str, now_ms: i64) -> Option<Arc<Vec<Rule>>> {
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sites.get(site).filter(|known| (0..KEPT_MS).contains(&(now_ms - known.read_at_ms)))?;
        Some(known.rules.clone())
    }

    fn keep(&self, site: String, now_ms: i64, rules: Vec<Rule>) -> Arc<Vec<Rule>> {
        let rules = Arc::new(rules);
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if sites.len() >= SITES_MAX {
            sites.retain(|_, known| (0..KEPT_MS).contains(&(now_ms - known.read_at_ms)));
        }
        if sites.len() < SITES_MAX {
            sites.insert(site, Site { read_at_ms: now_ms, rules: rules.clone() });
        }
        rules
    }
}

/// The rules of the groups for this agent, or those for all agents if there are none.
fn rules_for(agent: &str, text: &str) -> Vec<Rule> {
    let (mut own, mut general) = (Vec::new(), Vec::new());
    let (mut is_own, mut is_general, mut has_own, mut is_head) = (false, false, false, false);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            "user-agent" => {
                if !is_head {
                    (is_own, is_general, is_head) = (false, false, true);
                }
                let name = value.split(['/', ' ']).next().unwrap_or_default().to_ascii_lowercase();
                is_own |= name == agent;
                is_general |= name == "*";
                has_own |= is_own;
            }
            word @ ("allow" | "disallow") => {
                is_head = false;
                // An empty value is no rule.
                let rule = Rule { is_allowed: word == "allow", pattern: value.to_owned() };
                if is_own && !value.is_empty() {
                    own.push(rule.clone());
                }
                if is_general && !value.is_empty() {
                    general.push(rule);
                }
            }
            _ => {}
        }
    }
    if has_own { own } else { general }
}

/// The longest rule that fits decides; of two with the same length, the one that allows.
fn is_allowed(rules: &[Rule], path: &str) -> bool {
    let fitting = rules.iter().filter(|rule| fits(&rule.pattern, path));
    let decisive = fitting.max_by_key(|rule| (rule.pattern.len(), rule.is_allowed));
    decisive.is_none_or(|rule| rule.is_allowed)
}

fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (n, part) in parts.iter().enumerate() {
        // The last part of a whole pattern stands at the end.
        let at = if is_whole && n + 1 == parts.len() {
            rest.len().checked_sub(part.len()).filter(|at| rest.is_char_boundary(*at) && rest[*at..] == **part)
        } else {
            rest.find(part)
        };
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
    }
    !is_whole || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn robots_rule_that_is_longest_decides() {
        let text = "User-agent: other\nDisallow: /\n\n# all others\nUser-agent: *\nDisallow: /private\nAllow: /private/open\n\
                    Disallow: /*.pdf$\nDisallow:\n";
        let rules = rules_for(AGENT, text);
        for (path, allowed) in [
            ("/", true),
            ("/private", false),
            ("/private/x", false),
            ("/private/open/y", true),
            ("/a.pdf", false),
            ("/a.pdf?x", true),
            ("/public", true),
        ] {
            assert_eq!(is_allowed(&rules, path), allowed, "{path}");
        }
    }

    #[test]
    fn robots_group_of_the_own_name_takes_the_place_of_the_general_one() {
        let text = "User-agent: *\nDisallow: /\nUser-agent: Annie/1.0\nUser-agent: bob\nDisallow: /only\n";
        assert!(is_allowed(&rules_for(AGENT, text), "/x") && !is_allowed(&rules_for(AGENT, text), "/only"));
        assert!(!is_allowed(&rules_for("eve", text), "/x"));
        assert!(is_allowed(&rules_for(AGENT, "no rules"), "/x"));
        assert!(is_allowed(&rules_for(AGENT, "User-agent: *\nDisallow: /\nUser-agent: annie\nDisallow:\n"), "/x"));
    }
}
