//! Finds what is redacted, in one pass and without backtracking over more than one candidate.

use std::ops::Range;

use super::{RedactedKind, Redaction};

/// How much of a secret is examined, in bytes. A private key of 8,192 bits is about 6.4 KiB of PEM.
const SECRET_BYTES_MAX: usize = 16 * 1024;
const KEY_BEGINS: &str = "-----BEGIN ";
const KEY_ENDS: &str = "-----END ";
const DASHES: &str = "-----";
/// The longest label of a PEM block that is examined, in bytes: `ENCRYPTED PRIVATE KEY`, with room.
const LABEL_BYTES_MAX: usize = 64;
/// Numbers of payment cards have 13 to 19 digits (ISO/IEC 7812).
const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// The first thing of interest in a text.
pub(super) enum Found {
    /// This range is redacted.
    Match { range: Range<usize>, kind: RedactedKind },
    /// From here on, more text is needed to decide.
    Open(usize),
    /// There is nothing.
    Nothing,
}

/// What stands at one position.
enum At {
    Match(usize, RedactedKind),
    Open,
    Nothing,
}

/// Secrets with a prefix of their issuer.
struct Issued {
    prefix: &'static str,
    kind: RedactedKind,
    /// The length behind the prefix, at least, in bytes.
    rest_bytes_min: usize,
    fits: fn(&str) -> bool,
}

const fn issued(prefix: &'static str, rest_bytes_min: usize) -> Issued {
    Issued { prefix, kind: RedactedKind::ApiKey, rest_bytes_min, fits: has_digit }
}

const fn token(prefix: &'static str, rest_bytes_min: usize) -> Issued {
    Issued { prefix, kind: RedactedKind::AccessToken, rest_bytes_min, fits: has_digit }
}

/// The prefixes are those that the issuers document. The lengths are somewhat shorter than what they issue.
const ISSUED: [Issued; 17] = [
    issued("sk-", 20),
    issued("sk_live_", 16),
    issued("rk_live_", 16),
    issued("AIza", 30),
    Issued { prefix: "AKIA", kind: RedactedKind::ApiKey, rest_bytes_min: 16, fits: is_upper },
    Issued { prefix: "ASIA", kind: RedactedKind::ApiKey, rest_bytes_min: 16, fits: is_upper },
    token("ghp_", 30),
    token("gho_", 30),
    token("ghu_", 30),
    token("ghs_", 30),
    token("ghr_", 30),
    token("github_pat_", 22),
    token("glpat-", 20),
    token("xoxb-", 10),
    token("xoxp-", 10),
    token("xoxa-", 10),
    Issued { prefix: "eyJ", kind: RedactedKind::AccessToken, rest_bytes_min: 30, fits: is_web_token },
];

fn has_digit(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
}

fn is_upper(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
}

/// A JSON Web Token has three parts of Base64, of which the first two are JSON objects [RFC 7519].
fn is_web_token(text: &str) -> bool {
    let parts: Vec<&str> = text.trim_end_matches('.').split('.').collect();
    parts.len() == 3 && parts[1].starts_with("eyJ") && parts.iter().all(|part| part.len() >= 8)
}

/// The first match in a text, of which `last` is the character before, or the place from which more text may make a match. If
/// the text `is_whole`, nothing follows.
pub(super) fn find(text: &str, last: Option<char>, what: &[Redaction], is_whole: bool) -> Found {
    let (secrets, pii) = (what.contains(&Redaction::Secrets), what.contains(&Redaction::Pii));
    let mut before = last;
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        let is_first = before.is_none_or(|b| !is_of_token(b));
        let mut here = At::Nothing;
        if is_first && secrets && c.is_ascii_alphabetic() {
            here = secret(rest, is_whole);
        } else if secrets && c == '-' && before != Some('-') {
            here = private_key(rest, is_whole);
        } else if pii && c.is_ascii_digit() && before.is_none_or(|b| !b.is_alphanumeric() && !matches!(b, '_' | '.')) {
            here = number(rest, is_whole);
        }
        match here {
            At::Match(bytes, kind) => return Found::Match { range: at..at + bytes, kind },
            At::Open => return Found::Open(at),
            At::Nothing => before = Some(c),
        }
    }
    Found::Nothing
}

const fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

fn secret(rest: &str, is_whole: bool) -> At {
    for one in &ISSUED {
        let Some(behind) = rest.strip_prefix(one.prefix) else {
            if !is_whole && one.prefix.starts_with(rest) {
                return At::Open;
            }
            continue;
        };
        let behind = &behind[..behind.floor_char_boundary(SECRET_BYTES_MAX)];
        let has_dots = one.prefix == "eyJ";
        let ends = behind.find(|c: char| !(is_of_token(c) || (has_dots && c == '.'))).unwrap_or(behind.len());
        if ends == behind.len() && !is_whole && ends < SECRET_BYTES_MAX {
            return At::Open;
        }
        // A full stop at the end belongs to the sentence.
        let body = behind[..ends].trim_end_matches('.');
        if body.len() >= one.rest_bytes_min && (one.fits)(body) {
            return At::Match(one.prefix.len() + body.len(), one.kind);
        }
    }
    At::Nothing
}

/// A private key in PEM format [RFC 7468]. Without an end, it reaches to the end of the text.
fn private_key(rest: &str, is_whole: bool) -> At {
    let Some(behind) = rest.strip_prefix(KEY_BEGINS) else {
        return if !is_whole && KEY_BEGINS.starts_with(rest) { At::Open } else { At::Nothing };
    };
    let Some(label) = behind.find(DASHES) else {
        let is_short = behind.len() < LABEL_BYTES_MAX && !behind.contains('\n');
        return if !is_whole && is_short { At::Open } else { At::Nothing };
    };
    if !behind[..label].ends_with("PRIVATE KEY") {
        return At::Nothing;
    }
    let examined = &rest[..rest.floor_char_boundary(SECRET_BYTES_MAX)];
    let end = examined.find(KEY_ENDS).and_then(|at| {
        let label = at + KEY_ENDS.len();
        examined[label..].find(DASHES).map(|dashes| label + dashes + DASHES.len())
    });
    match end {
        Some(end) => At::Match(end, RedactedKind::PrivateKey),
        None if !is_whole && rest.len() < SECRET_BYTES_MAX => At::Open,
        None => At::Match(examined.len(), RedactedKind::PrivateKey),
    }
}

/// A number of a person that begins here. Groups of digits may be separated by one space or hyphen.
fn number(rest: &str, is_whole: bool) -> At {
    let (mut digits, mut ends, mut at) = (Vec::new(), Vec::new(), 0);
    let bytes = rest.as_bytes();
    while at < bytes.len() && digits.len() <= *CARD_DIGITS.end() {
        match bytes[at] {
            b'0'..=b'9' => digits.push(bytes[at] - b'0'),
            b' ' | b'-' if bytes[at - 1].is_ascii_digit() => ends.push((at, digits.len())),
            _ => break,
        }
        at += 1;
    }
    let is_cut = at == bytes.len();
    if is_cut && !is_whole && digits.len() <= *CARD_DIGITS.end() {
        return At::Open;
    }
    // Behind more digits than a card has, the number is another one.
    if digits.len() <= *CARD_DIGITS.end() && at > 0 && bytes[at - 1].is_ascii_digit() {
        let is_joined = bytes.get(at).is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
        ends.extend((!is_joined).then_some((at, digits.len())));
    }
    if let Some((end, _)) = ends.iter().find(|(end, _)| is_social_security_number(&rest[..*end])) {
        return At::Match(*end, RedactedKind::SocialSecurityNumber);
    }
    let card = ends.iter().rev().find(|(_, count)| is_card(&digits[..*count]));
    card.map_or(At::Nothing, |(end, _)| At::Match(*end, RedactedKind::CardNumber))
}

/// `AAA-GG-SSSS`; the area is not 000, 666 or above 899, and no other part is zero.
fn is_social_security_number(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [area, group, serial] = parts[..] else { return false };
    let has_form = (area.len(), group.len(), serial.len()) == (3, 2, 4) && !text.contains(' ');
    has_form && !matches!(area, "000" | "666") && !area.starts_with('9') && group != "00" && serial != "0000"
}

/// The prefix of a large issuer, its length, and a correct check digit.
fn is_card(digits: &[u8]) -> bool {
    if !CARD_DIGITS.contains(&digits.len()) {
        return false;
    }
    let prefix = digits[..4].iter().fold(0_u32, |number, digit| number * 10 + u32::from(*digit));
    let has_prefix = matches!(
        (prefix, digits.len()),
        (4000..=4999, 13 | 16 | 19)
            | (3400..=3499 | 3700..=3799, 15)
            | (2221..=2720 | 3528..=3589 | 5100..=5599 | 6011 | 6440..=6599, 16)
            | (3000..=3059 | 3600..=3699 | 3800..=3999, 14)
    );
    has_prefix && has_check_digit(digits)
}

/// The Luhn check (ISO/IEC 7812-1).
fn has_check_digit(digits: &[u8]) -> bool {
    let sum: u32 = digits.iter().rev().enumerate().fold(0, |sum, (at, digit)| {
        let digit = u32::from(*digit);
        sum + match (at % 2, digit * 2) {
            (0, _) => digit,
            (_, twice) => twice / 10 + twice % 10,
        }
    });
    sum.is_multiple_of(10)
}
