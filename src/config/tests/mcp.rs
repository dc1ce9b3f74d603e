//! MCP servers: the errors of invalid keys, and the rules of the client that reaches a URL.

use annie_skillkit::HostPort;

use super::*;

const PROGRAM: &str = "[[mcp]]\nname = \"x\"\ncommand = [\"/bin/x\"]\n";
const URL: &str = "[[mcp]]\nname = \"x\"\nurl = \"https://h.test/mcp\"\n";

fn config(text: &str) -> Config {
    typed(text.parse().unwrap()).unwrap()
}

#[test]
fn config_refuses_invalid_mcp_server_with_its_location() {
    let many: String = (0..33).map(|n| PROGRAM.replace("\"x\"", &format!("\"x{n}\""))).collect();
    for (text, wanted) in [
        (PROGRAM.replace("\"x\"", "\"Big-1\""), "annie.toml:2:1: `mcp.0.name`: \"Big-1\" is no name; use 1 to 20"),
        (PROGRAM.replace("/bin/x", "x"), "annie.toml:3:1: `mcp.0.command`: the program is not a whole path; begin it"),
        (format!("{PROGRAM}{PROGRAM}"), "annie.toml:5:1: `mcp.1.name`: another server is named \"x\" too; give each"),
        (many, "`mcp`: there are 33 servers, at most 32 are allowed; remove some of them"),
        ("[[mcp]]\nname = \"x\"\n".to_owned(), "`mcp.0`: it needs a program or a URL; give command = "),
        (format!("{PROGRAM}url = \"https://h.test\"\n"), "`mcp.0`: it needs a program or a URL; give command = "),
        (format!("{PROGRAM}timeout_ms = 0\n"), "annie.toml:4:1: `mcp.0.timeout_ms`: it is 0; give at least 1"),
        (format!("{PROGRAM}bearer = \"t\"\n"), "`mcp.0.bearer`: a program has no URL; remove it"),
        (format!("{PROGRAM}env_secrets = {{ A = \"B C\" }}\n"), "\"B C\" cannot be the name of a secret; name one of"),
        (format!("{PROGRAM}pins = {{ echo = \"12\" }}\n"), "`mcp.0.pins`: that of \"echo\" is no hash; copy it from"),
        (format!("{PROGRAM}effects = {{ echo = \"none\" }}\n"), "unknown value"),
        (format!("{URL}env = {{ A = \"b\" }}\n"), "`mcp.0.env`: a URL starts no program; remove it"),
        (URL.replace("https", "ftp"), "`mcp.0.url`: it is no URL with http:// or https://; write it as"),
        (URL.replace("h.test", "u@h.test"), "`mcp.0.url`: it is no URL with http:// or https://; write it as"),
        (
            URL.replace("h.test", "127.0.0.1:8000"),
            "`mcp.0.url`: its host is on this machine or in a private network; set allow_private = true",
        ),
        (format!("{PROGRAM}tiemout_ms = 5\n"), "unknown key `mcp.0.tiemout_ms`; did you mean `timeout_ms`?"),
    ] {
        let error = error_text(&text);
        assert!(error.contains(wanted), "{error}\n{wanted}");
    }
}

#[test]
fn mcp_url_is_the_only_address_that_its_client_may_reach() {
    let url = URL.replace("https://h.test", "http://127.0.0.1:8000");
    let server = config(&format!("{url}allow_private = true\nbearer = \"token\"\ntimeout_ms = 7\n")).mcp.remove(0);
    let rules = server.egress_rules().unwrap();
    let at = HostPort::parse("127.0.0.1:8000").unwrap();
    assert_eq!((rules.ports.as_slice(), rules.private.as_slice()), (&[8000_u16][..], &[at.clone()][..]));
    assert_eq!(rules.credentials, [(at, "token".to_owned())]);
    assert_eq!((rules.limits.total_ms_max, rules.limits.connect_ms_max, rules.limits.redirects_max), (7, 7, 0));
    let public = config(URL).mcp.remove(0).egress_rules().unwrap();
    assert_eq!((public.ports.as_slice(), public.private.len()), (&[443_u16][..], 0));
    assert!(config(PROGRAM).mcp[0].egress_rules().is_none());
}

#[test]
fn mcp_secrets_of_the_configuration_are_not_shown() {
    let text = format!(
        "{PROGRAM}env = {{ A = \"hidden-1\" }}\n{}",
        URL.replace("\"x\"", "\"y\"").replace("h.test", "h.test/hidden-2")
    );
    let shown = table(&config(&text)).unwrap().to_string();
    assert!(!shown.contains("hidden") && shown.contains("[secret]"), "{shown}");
}
