//! `[egress]`: its default, its rules, and the errors of invalid keys.

use annie_skillkit::{EgressRules, HostPort};

use super::*;

#[test]
fn egress_is_off_by_default_and_its_settings_reach_the_rules() {
    assert_eq!(Config::default().egress.rules(), None);
    let text = "[egress]\nenabled = true\nhosts = [\"*.example.org\"]\nports = [443]\nallow_private = [\"127.0.0.1:8080\"]\n\
                credentials = { \"api.example.org\" = \"a\", \"127.0.0.1:8080\" = \"b\" }\n\
                redirects_max = 1\nreply_bytes_max = 2\nconnect_ms_max = 3\ntotal_ms_max = 4\n";
    let EgressRules { hosts, ports, private, credentials, limits, .. } =
        typed(text.parse().unwrap()).unwrap().egress.rules().unwrap();
    assert_eq!((hosts, ports), (vec!["*.example.org".to_owned()], vec![443]));
    assert_eq!(private, [HostPort::parse("127.0.0.1:8080").unwrap()]);
    let at = |text: &str, name: &str| (HostPort::parse(text).unwrap(), name.to_owned());
    assert_eq!(credentials, [at("127.0.0.1:8080", "b"), at("api.example.org:443", "a")]);
    let limits = (limits.redirects_max, limits.reply_bytes_max, limits.connect_ms_max, limits.total_ms_max);
    assert_eq!(limits, (1, 2, 3, 4));
}

#[test]
fn config_refuses_invalid_egress_with_its_location() {
    for (text, wanted) in [
        (
            "[egress]\nhosts = [\"https://example.org\"]\n",
            "annie.toml:2:1: `egress.hosts`: \"https://example.org\" is no host; write a host without scheme and port, such as \
             example.org or *.example.org",
        ),
        ("[egress]\nports = [0]\n", "annie.toml:2:1: `egress.ports`: 0 is no port; write ports such as 443"),
        (
            "[egress]\nallow_private = [\"127.0.0.1\"]\n",
            "annie.toml:2:1: `egress.allow_private`: \"127.0.0.1\" is not a host with a port, such as 127.0.0.1:8080; write each \
             as host:port, such as \"127.0.0.1:8080\" or \"nas.local:80\"",
        ),
        (
            "[egress]\nenabled = true\ncredentials = { \"api.test:80\" = \"a\" }\n",
            "annie.toml:3:17: `egress.credentials`: the secret for \"api.test:80\" would never be sent: requests to port 80 of \
             api.test are not encrypted; allow the host for https in hosts and ports, or list it with its port in allow_private",
        ),
        (
            "[egress]\nenabled = true\nhosts = [\"example.org\"]\ncredentials = { \"api.test\" = \"a\" }\n",
            "annie.toml:4:17: `egress.credentials`: the secret for \"api.test\" would never be sent: api.test is not allowed by \
             egress.hosts; allow the host for https in hosts and ports, or list it with its port in allow_private",
        ),
        (
            "[secrets]\nkey_file = \"k\"\nkey_env = \"K\"\n",
            "annie.toml:3:1: `secrets.key_env`: key_file is given too; keep one of the two",
        ),
        ("[egress]\ntotal_ms_max = 0\n", "annie.toml:2:1: `egress.total_ms_max`: it is 0; give at least 1"),
        (
            "[egress]\ntotal_ms_max = 30000\n",
            "annie.toml:2:1: `egress.total_ms_max`: a skill that takes 30000 ms counts as failed, for all users and sites; give \
             at most 29000",
        ),
    ] {
        assert_eq!(error_text(text), wanted);
    }
}
