//! Cases of redaction: texts whole and in pieces.

use super::*;

const ALL: [Redaction; 2] = [Redaction::Secrets, Redaction::Pii];
const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAK\n-----END RSA PRIVATE KEY-----";

fn redacted(text: &str, what: &[Redaction], own: &str) -> String {
    let mut text = text.to_owned();
    redact(&mut text, what, own);
    text
}

/// Texts with what becomes of them.
fn cases() -> Vec<(String, String)> {
    let web_token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N";
    [
        ("Your key is sk-proj-abc123def456ghi789jkl, keep it.", "Your key is [redacted: API key], keep it."),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted: access token]"),
        ("(AKIAIOSFODNN7EXAMPLE)", "([redacted: API key])"),
        ("xoxb-123456789012-abc.", "[redacted: access token]."),
        ("SSN: 078-05-1120.", "SSN: [redacted: social security number]."),
        ("078-05-1120 and 219-09-9999", "[redacted: social security number] and [redacted: social security number]"),
        ("Card 4111 1111 1111 1111, 12/28", "Card [redacted: card number], 12/28"),
        ("4111-1111-1111-1111", "[redacted: card number]"),
        ("378282246310005 2026", "[redacted: card number] 2026"),
        ("2026 5555555555554444", "2026 [redacted: card number]"),
        ("Grüße 4111111111111111 ünd", "Grüße [redacted: card number] ünd"),
        // Similar texts that are something else.
        ("sk-learn and the task-list-of-everything-we-do", "sk-learn and the task-list-of-everything-we-do"),
        ("risk-abc123def456ghi789jkl012", "risk-abc123def456ghi789jkl012"),
        ("4111 1111 1111 1112", "4111 1111 1111 1112"),
        ("order 12345678901234567890", "order 12345678901234567890"),
        ("000-12-3456, 666-12-3456, 912-12-3456", "000-12-3456, 666-12-3456, 912-12-3456"),
        ("call 555-12-345 or 1-800-555-0100", "call 555-12-345 or 1-800-555-0100"),
        ("on 2026-02-18 at 14:05", "on 2026-02-18 at 14:05"),
        ("0.4111111111111111", "0.4111111111111111"),
        ("eyJ is how JSON begins in Base64.", "eyJ is how JSON begins in Base64."),
        (
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        ),
        ("a - b -- c --- d", "a - b -- c --- d"),
    ]
    .map(|(text, want)| (text.to_owned(), want.to_owned()))
    .into_iter()
    .chain([
        (format!("Here:\n{KEY}\nDone."), "Here:\n[redacted: private key]\nDone.".to_owned()),
        (format!("Cut: {}", &KEY[..40]), "Cut: [redacted: private key]".to_owned()),
        (format!("Bearer {web_token}."), "Bearer [redacted: access token].".to_owned()),
    ])
    .collect()
}

#[test]
fn redaction_replaces_secrets_and_numbers_and_nothing_else() {
    for (text, want) in cases() {
        assert_eq!(redacted(&text, &ALL, ""), want);
    }
}

#[test]
fn redaction_of_drafts_is_the_beginning_of_the_redacted_text_for_every_split() {
    for (text, want) in cases() {
        for size in 1..12 {
            let mut redactor = DraftRedactor::new(&ALL, "").expect("something is redacted");
            let chars: Vec<char> = text.chars().collect();
            let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
            let shown: String = pieces.map(|piece| redactor.push(&piece)).collect();
            assert!(want.starts_with(&shown), "{text:?} in pieces of {size}: {shown:?}");
            let mut followed = shown.clone();
            followed.push_str(&redactor.push("\n.\n"));
            let cut = text.contains("Cut: ");
            assert!(cut || followed == format!("{want}\n.\n"), "{text:?} in pieces of {size}: {followed:?}");
        }
    }
}

#[test]
fn redaction_spares_what_the_user_wrote_and_what_is_switched_off() {
    let text = "Is 078-05-1120 yours? The key sk-abc123def456ghi789jkl is.";
    assert_eq!(redacted(text, &ALL, "mine is 078-05-1120"), "Is 078-05-1120 yours? The key [redacted: API key] is.");
    assert_eq!(redacted(text, &[Redaction::Secrets], ""), "Is 078-05-1120 yours? The key [redacted: API key] is.");
    assert_eq!(
        redacted(text, &[Redaction::Pii], ""),
        "Is [redacted: social security number] yours? The key sk-abc123def456ghi789jkl is."
    );
    assert_eq!(redacted(text, &[], ""), text);
    assert!(DraftRedactor::new(&[], "").is_none());
}

#[test]
fn redaction_names_the_kinds_in_their_order() {
    let mut text = "078-05-1120 ghp_abcdefghijklmnopqrstuvwxyz0123456789 4111111111111111".to_owned();
    let kinds = [RedactedKind::SocialSecurityNumber, RedactedKind::AccessToken, RedactedKind::CardNumber];
    assert_eq!(redact(&mut text, &ALL, ""), kinds);
}

#[test]
fn draft_redactor_withholds_a_bounded_part_of_a_text() {
    let mut redactor = DraftRedactor::new(&ALL, "").expect("something is redacted");
    redactor.push("-----BEGIN PRIVATE KEY-----\n");
    for _ in 0..20_000 {
        redactor.push("abc\n");
        assert!(redactor.pending.len() <= 17 * 1024);
    }
}
