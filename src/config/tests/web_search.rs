//! `[web_search]`: what reaches the skill, and the errors of invalid keys.

use annie_skillkit::{HostPort, SearchKind};

use super::*;

#[test]
fn web_search_is_off_by_default_and_its_settings_reach_the_rules() {
    assert_eq!(Config::default().web_search.rules(), None);
    let text = "[egress]\nenabled = true\n[web_search]\nkind = \"brave\"\nsecret = \"brave-key\"\n";
    let config = typed(text.parse().unwrap()).unwrap();
    let rules = config.web_search.rules().unwrap();
    assert_eq!((rules.kind, rules.url.as_str()), (SearchKind::Brave, "https://api.search.brave.com/res/v1/web/search"));
    let at = HostPort::parse("api.search.brave.com:443").unwrap();
    assert_eq!(config.web_search.grant(), Some((at, "brave-key".to_owned())));
}

#[test]
fn config_refuses_invalid_web_search_with_its_location() {
    let on = "[egress]\nenabled = true\n";
    for (text, part) in [
        (
            "[web_search]\nkind = \"duckduckgo_lite\"\n".to_owned(),
            "`web_search.kind`: requests to other machines are switched off",
        ),
        (format!("{on}[web_search]\nkind = \"searxng\"\n"), "searxng needs url"),
        (format!("{on}[web_search]\nkind = \"brave\"\n"), "brave needs a secret"),
        (format!("{on}[web_search]\nurl = \"https://x.test\"\n"), "it has no effect without kind"),
        (format!("{on}[web_search]\nkind = \"searxng\"\nurl = \"x.test\"\n"), "it is no address"),
        (
            format!("{on}[web_search]\nkind = \"searxng\"\nurl = \"http://127.0.0.1:8080/search\"\n"),
            "egress.allow_private",
        ),
        (
            format!("{on}[web_search]\nkind = \"searxng\"\nurl = \"http://x.test/\"\nsecret = \"key\"\n"),
            "it would never be sent: requests to port 80",
        ),
    ] {
        let error = error_text(&text);
        assert!(error.contains(part), "{text}: {error}");
    }
}
