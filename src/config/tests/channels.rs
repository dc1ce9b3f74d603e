//! Channels: the errors of invalid keys, and secrets from files and the environment.

use std::sync::Arc;

use annie_core::{ids::UserId, ports::Clock};
use annie_testkit::env::TestClock;

use super::*;

/// A valid channel, which later lines may extend.
const CHANNEL: &str = "[[channel]]\nname = \"x\"\nkind = \"webhook\"\nurl = \"http://h/\"\nsecret_env = \"KEY\"\n";

fn loaded(text: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    Sources::only(file(&folder, "annie.toml", text)).load().map_err(|e| format!("{e}; {}", e.fix)).unwrap()
}

/// The names of the channels, or the error.
fn channels(text: &str, variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let clock: Arc<dyn Clock> = Arc::new(TestClock::new());
    let built = loaded(text).config.channels(&Environment::of(variables), &clock);
    let names = built.map_err(|e| e.to_string())?.iter().map(|channel| channel.name().to_owned()).collect();
    Ok(names)
}

#[tokio::test]
async fn channel_secret_comes_from_environment_or_file_and_is_not_shown() {
    let secret = "0123456789abcdef";
    assert_eq!(channels(CHANNEL, &[("KEY", secret)]), Ok(vec!["x".to_owned()]));
    let missing = channels(CHANNEL, &[]).unwrap_err();
    assert!(missing.contains("channel `x` reads its secret from here"), "{missing}");
    let short = channels(CHANNEL, &[("KEY", "short")]).unwrap_err();
    assert!(
        short.contains("channel `x`: its secret is shorter than 16 bytes") && !short.contains("short\""),
        "{short}"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "secret", secret);
    let by_file = CHANNEL.replace("secret_env = \"KEY\"", &format!("secret_file = {path:?}"));
    assert_eq!(channels(&by_file, &[]), Ok(vec!["x".to_owned()]));
    let shown: Vec<String> =
        lines(&loaded(CHANNEL)).unwrap().iter().map(|l| format!("{} {}", l.key, l.value)).collect();
    assert!(shown.contains(&"channel.0.url \"[secret]\"".to_owned()), "{shown:?}");
}

#[tokio::test]
async fn channel_is_for_the_users_that_it_names() {
    let text = format!("{CHANNEL}users = [\"ann\"]\n");
    let clock: Arc<dyn Clock> = Arc::new(TestClock::new());
    let environment = Environment::of(&[("KEY", "0123456789abcdef")]);
    let built = loaded(&text).config.channels(&environment, &clock).map_err(|e| e.to_string()).unwrap();
    let check = |user: &str| built[0].check(&UserId::new(user).unwrap(), "thread:7");
    assert_eq!(check("ann"), Ok(()));
    assert!(check("bob").unwrap_err().contains("is not for this user"));
}

#[test]
fn config_refuses_invalid_channel_with_its_location() {
    let many: String = (0..33).map(|n| CHANNEL.replace("\"x\"", &format!("\"x{n}\""))).collect();
    for (text, wanted) in [
        (
            format!("{CHANNEL}{CHANNEL}"),
            "annie.toml:7:1: `channel.1.name`: another channel is named \"x\" too; give each its own name",
        ),
        (many, "annie.toml:3:1: `channel`: there are 33 channels, at most 32 are allowed; remove some of them"),
        (
            CHANNEL.replace("\"x\"", "\"Help desk\""),
            "annie.toml:2:1: `channel.0.name`: \"Help desk\" is no name; use 1 to 40 lower-case letters, digits and underscores",
        ),
        (
            CHANNEL.replace("http://h/", "h/token"),
            "annie.toml:4:1: `channel.0.url`: it is no URL with http:// or https://; write it as https://example.org/annie",
        ),
        (
            format!("{CHANNEL}users = [\"\"]\n"),
            "annie.toml:6:1: `channel.0.users`: \"\" cannot be a user id; use 1 to 128 bytes without control characters",
        ),
        (
            CHANNEL.replace("webhook", "telegram"),
            "annie.toml:3:8: `channel.0.kind`: unknown value `telegram`, expected `webhook`; \
             see `annie config sample` for every key and its values",
        ),
        (format!("{CHANNEL}user = [\"bob\"]\n"), "annie.toml:6:1: unknown key `channel.0.user`; did you mean `users`?"),
    ] {
        assert_eq!(error_text(&text), wanted);
    }
    for secrets in ["", "secret_env = \"KEY\"\nsecret_file = \"f\"\n"] {
        let error = error_text(&CHANNEL.replace("secret_env = \"KEY\"\n", secrets));
        assert!(error.contains("`channel.0`: it needs one secret") && error.ends_with("not both"), "{error}");
    }
}
