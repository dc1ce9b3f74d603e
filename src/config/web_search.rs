//! `[web_search]`: the search engine of `web.search`. It becomes [`annie_skillkit::SearchRules`].

use annie_skillkit::{HostPort, SearchKind, SearchRules};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};
use crate::secrets::valid_secret_name;

/// `[web_search]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebSearchSettings {
    /// The protocol of the search engine; absent means that there is none.
    pub kind: Option<SearchKind>,
    /// Its address without a query; absent means that of the service.
    pub url: Option<String>,
    /// The name of the secret that is sent with each request.
    pub secret: Option<String>,
}

impl WebSearchSettings {
    /// What `web.search` needs; `None` if no search engine is configured.
    #[must_use]
    pub fn rules(&self) -> Option<SearchRules> {
        let kind = self.kind?;
        let url = self.url.clone().or_else(|| kind.usual_url().map(str::to_owned))?;
        Some(SearchRules { kind, url, secret: self.secret.clone() })
    }

    /// The secret that may be sent to the search engine.
    #[must_use]
    pub fn grant(&self) -> Option<(HostPort, String)> {
        let SearchRules { url, secret, .. } = self.rules()?;
        Some((HostPort::of_url(&url)?, secret?))
    }
}

impl Config {
    /// The errors in `[web_search]`.
    pub(super) fn web_search_problems(&self) -> Vec<KeyError> {
        let settings = &self.web_search;
        let mut found = Vec::new();
        let mut add = |key: &str, what: &str, fix: &str| found.push(KeyError::value(&["web_search", key], what, fix));
        let Some(kind) = settings.kind else {
            let keys = [("url", settings.url.is_some()), ("secret", settings.secret.is_some())];
            for (key, _) in keys.into_iter().filter(|(_, is_given)| *is_given) {
                add(key, "it has no effect without kind", "set kind to searxng, brave or duckduckgo_lite");
            }
            return found;
        };
        if let Some(name) = settings.secret.as_ref().filter(|name| !valid_secret_name(name)) {
            add("secret", &format!("{name:?} cannot be the name of a secret"), "name one of `annie secret list`");
        }
        if kind == SearchKind::Brave && settings.secret.is_none() {
            let fix = "store its API key with `annie secret set brave-key`, and write secret = \"brave-key\"";
            add("kind", "brave needs a secret", fix);
        }
        let Some(rules) = settings.rules() else {
            add("kind", "searxng needs url", "write url = \"https://searx.example.org/search\"");
            return found;
        };
        let is_web = rules.url.starts_with("https://") || rules.url.starts_with("http://");
        let Some(at) = HostPort::of_url(&rules.url).filter(|_| is_web) else {
            add("url", "it is no address", "write it as https://searx.example.org/search");
            return found;
        };
        match self.egress.rules() {
            None => add("kind", "requests to other machines are switched off", "set egress.enabled = true"),
            Some(egress) => {
                if let Some(why) = egress.refusal(&rules.url) {
                    let fix = "allow the host in egress.hosts and egress.ports, or list it with its port in \
                               egress.allow_private";
                    add("url", &why, fix);
                } else if let Some(why) = egress.idle_credential(&at).filter(|_| settings.secret.is_some()) {
                    add("secret", &format!("it would never be sent: {why}"), "use an address with https");
                }
            }
        }
        found
    }
}
