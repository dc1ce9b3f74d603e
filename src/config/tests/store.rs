//! Selection and checks of the database.

use super::*;

const URL: &str = "postgres://ann:s3cret@db.example:5433/annie";

fn store_of(text: &str, environment: &Environment) -> Result<Option<String>, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let loaded = Sources::only(file(&folder, "annie.toml", text)).load()?;
    let shown: Vec<String> = lines(&loaded).unwrap().iter().map(|l| format!("{} {}", l.key, l.value)).collect();
    assert!(!shown.join("\n").contains("s3cret"), "{shown:?}");
    Ok(loaded.config.store.address(environment)?.map(|address| address.to_string()))
}

#[test]
fn store_is_sqlite_unless_a_postgres_address_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let secret = file(&folder, "store.url", &format!("{URL}\n"));
    let environment = Environment::of(&[("DATABASE_URL", URL)]);
    let shown = Some("ann@db.example:5433/annie".to_owned());
    assert_eq!(store_of("", &environment).unwrap(), None);
    let passed_on = Sources { environment: Environment::of(&[("ANNIE__STORE__URL", "")]), ..Sources::default() };
    let address = passed_on.load().unwrap().config.store.address(&environment).unwrap();
    assert!(address.is_none(), "an empty variable is not set");
    for text in [format!("url = \"{URL}\""), format!("url_file = {secret:?}"), "url_env = \"DATABASE_URL\"".to_owned()]
    {
        assert_eq!(store_of(&format!("[store]\n{text}\n"), &environment).unwrap(), shown, "{text}");
    }
    let sources = Sources { environment: Environment::of(&[("ANNIE__STORE__URL", URL)]), ..Sources::default() };
    let config = sources.load().unwrap().config;
    assert_eq!(config.store.address(&environment).unwrap().map(|address| address.to_string()), shown);
}

#[test]
fn config_refuses_invalid_store_settings_with_location_and_without_password() {
    let folder = tempfile::tempdir().unwrap();
    let secret = file(&folder, "store.url", "mysql://ann:s3cret@h/d");
    let environment = Environment::of(&[("DATABASE_URL", "s3cret")]);
    for (text, wanted) in [
        (
            "url = \"\"".to_owned(),
            "`store.url`: it is empty; give the address of a PostgreSQL database, or leave `url` out",
        ),
        ("url = \"  \"".to_owned(), "`store.url`: it is empty"),
        ("url = \"mysql://ann:s3cret@h/d\"".to_owned(), "`store.url`: it does not begin with postgres://"),
        (format!("url = \"{URL}\"\nurl_env = \"X\""), "`store.url`: the address is given more than once"),
        (format!("url_file = {secret:?}"), "store.url: the database's address: it does not begin with postgres://"),
        ("url_file = \"/not/there\"".to_owned(), "/not/there: store.url_file: cannot read the file"),
        ("url_env = \"DATABASE_URL\"".to_owned(), "DATABASE_URL: the database's address: it does not begin with"),
        ("url_env = \"NONE\"".to_owned(), "NONE: store.url_env reads the database's address from here"),
        ("connections_max = 2".to_owned(), "`store.connections_max`: it is 2"),
        ("connect_ms_max = 0".to_owned(), "`store.connect_ms_max`: it is 0"),
        ("statement_ms_max = 0".to_owned(), "`store.statement_ms_max`: it is 0"),
        ("node_lease_ms = 999".to_owned(), "`store.node_renew_ms`: it is 3000, and the lease lasts 999 ms"),
        ("node_lease_ms = 999\nnode_renew_ms = 200".to_owned(), "`store.node_lease_ms`: it is 999"),
        ("node_lease_ms = 6000".to_owned(), "`store.node_renew_ms`: it is 3000, and the lease lasts 6000 ms"),
        ("node_renew_ms = 99".to_owned(), "`store.node_renew_ms`: it is 99"),
        ("readers_max = 0".to_owned(), "`store.readers_max`: it is 0"),
    ] {
        let error = store_of(&format!("[store]\n{text}\n"), &environment).unwrap_err();
        let error_text = format!("{error}; {}", error.fix);
        assert!(error_text.contains(wanted) && !error_text.contains("s3cret"), "{text}: {error_text}");
    }
}
