//! Extractors of validated request data: a JSON body, a query, ids in the path. An error names the part of the request that is
//! wrong.

use std::{str::FromStr, time::Duration};

use annie_core::{ports::Before, time::Micros};
use axum::{
    body::{Bytes, to_bytes},
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use chrono::DateTime;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::Number;
use sha2::{Digest, Sha256};

use crate::{
    api::{AppState, page},
    auth::Caller,
    error::{ApiError, Code},
    http::strict::Strict,
};

/// A JSON body. Unknown fields are refused if the type says so.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        parse(&json_of(request, state).await?).map(Self)
    }
}

/// A JSON body with the SHA-256 and the length in bytes of the original text.
pub struct Hashed<T>(pub T, pub [u8; 32], pub usize);

impl<T: DeserializeOwned> FromRequest<AppState> for Hashed<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let bytes = json_of(request, state).await?;
        Ok(Self(parse(&bytes)?, Sha256::digest(&bytes).into(), bytes.len()))
    }
}

/// Reads the bytes of a JSON body.
async fn json_of(request: Request, state: &AppState) -> Result<Bytes, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if !is_json(kind) {
        let why = format!("send the body as `content-type: application/json`, not {kind:?}");
        return Err(ApiError::new(Code::UnsupportedMediaType, why));
    }
    let max = state.limits.body_bytes_max;
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|n| n > max) {
        return Err(too_large(max));
    }
    let reading = to_bytes(request.into_body(), max);
    match tokio::time::timeout(Duration::from_millis(state.limits.body_ms_max), reading).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // The only other cause is a broken connection, on which the response cannot be delivered anyway.
        Ok(Err(_)) => Err(too_large(max)),
        Err(_) => {
            let why = format!("the body did not arrive within {} ms", state.limits.body_ms_max);
            Err(ApiError::new(Code::RequestTimeout, why))
        }
    }
}

/// Deserialises a whole number, which JSON may write as `2` or as `2.0`.
pub fn whole<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a small whole number")]
    let number = match Number::deserialize(from)? {
        number if number.is_f64() => match number.as_f64() {
            Some(n) if n.fract() == 0.0 && (0.0..=WHOLE_FLOAT_MAX).contains(&n) => Number::from(n as u64),
            _ => number,
        },
        number => number,
    };
    T::deserialize(number).map_err(Error::custom)
}

/// Like [`whole`], for an optional number.
pub fn whole_option<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    struct Whole<T>(T);
    impl<'de, T: DeserializeOwned> Deserialize<'de> for Whole<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            whole(from).map(Self)
        }
    }
    Ok(Option::<Whole<T>>::deserialize(from)?.map(|Whole(number)| number))
}

/// Deserialises an optional time from RFC 3339.
pub fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Micros>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    match DateTime::parse_from_rfc3339(&text) {
        Ok(at) => Ok(Some(Micros::from_utc(at.to_utc()))),
        Err(e) => Err(Error::custom(format!("it must be a time such as 2026-09-27T09:00:00Z: {e}"))),
    }
}

/// The largest value up to which a double represents every whole number exactly.
const WHOLE_FLOAT_MAX: f64 = 9_007_199_254_740_992.0;

fn too_large(max: usize) -> ApiError {
    ApiError::new(Code::TooLarge, format!("the body has more than {max} bytes, which is the most"))
}

/// Parses JSON; an error names the field that is wrong.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(ApiError::invalid(format!("the body is not UTF-8: byte {} is wrong", error.valid_up_to())));
    }
    // Serde would read an array as the fields in their order, which is never intended.
    if bytes.trim_ascii_start().first().is_some_and(|b| *b != b'{') {
        return Err(ApiError::invalid("expected an object at the top level of the JSON"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(Strict(&mut json)).map_err(|error| {
        let path = error.path().to_string();
        let error = ApiError::invalid(in_plain_words(&error.into_inner().to_string()));
        // A syntax error of the JSON has no path.
        if path == "." || path.contains('?') { error } else { error.at(path) }
    })?;
    json.end().map_err(|e| ApiError::invalid(format!("there is something behind the JSON: {e}")))?;
    Ok(value)
}

/// Phrases of Rust libraries, and their replacements in terms of JSON.
const PLAIN_WORDS: [(&str, &str); 20] = [
    ("invalid digit found in string", "it must be a whole number"),
    ("cannot parse integer from empty string", "it must be a whole number"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "it must be a number"),
    ("cannot parse float from empty string", "it must be a number"),
    ("provided string was not `true` or `false`", "it must be `true` or `false`"),
    ("expected a boolean", "expected `true` or `false`"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected an object"),
    ("expected usize", WHOLE),
    ("expected u64", WHOLE),
    ("expected u32", WHOLE),
    ("expected u8", WHOLE),
    ("expected i64", "expected a whole number"),
    ("expected i32", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("expected f32", "expected a number"),
    ("EOF while parsing", "the JSON ends (EOF) while parsing"),
    ("unknown variant", "unknown word"),
];
const WHOLE: &str = "expected a whole number that is not negative and not too large";

/// Replaces names of Rust types in an error text: the sender of the request knows JSON.
fn in_plain_words(text: &str) -> String {
    let mut text = match text.split_once("expected struct ") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
            format!("{before}expected an object{rest}")
        }
        None => text.to_owned(),
    };
    for (rust, plain) in PLAIN_WORDS {
        // Quoted parts of the request in the same sentence stay unchanged.
        let outside = text.rfind(rust).filter(|at| text[..*at].matches('"').count() % 2 == 0);
        if let Some(at) = outside {
            text.replace_range(at..at + rust.len(), plain);
        }
    }
    text
}

/// Whether a content type is JSON: `application/json` or `application/…+json`, with or without parameters.
fn is_json(kind: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The query parameters.
pub struct Args<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Args<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(args)) => Ok(Self(args)),
            Err(error) => Err(wrong_query(&error.body_text())),
        }
    }
}

/// The error of an invalid query. The framework's text ends with the parameter and its error.
fn wrong_query(message: &str) -> ApiError {
    let message = message.strip_prefix("Failed to deserialize query string: ").unwrap_or(message);
    match message.split_once(": ") {
        Some((name, what)) if !name.contains(' ') => ApiError::invalid(in_plain_words(what)).at(name),
        _ => ApiError::invalid(in_plain_words(message)),
    }
}

/// The start position and the size of a page of rows in descending order of time.
///
/// # Errors
/// If `next` is not a cursor, or `limit` is out of range.
pub fn page_of(next: Option<&str>, limit: Option<&str>) -> Result<(Before, u32), ApiError> {
    Ok((page::before(next)?, page::ROWS.of_text(limit)?))
}

/// The path parameter, parsed as an id.
pub struct Id<T>(pub T);

impl<T> FromRequestParts<AppState> for Id<T>
where
    T: FromStr + Send,
    T::Err: Into<ApiError>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let Name(text) = Name::from_request_parts(parts, state).await?;
        text.parse().map(Self).map_err(|e: T::Err| e.into().at("id"))
    }
}

/// The path parameter as text.
pub struct Name(pub String);

impl FromRequestParts<AppState> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(error) => Err(ApiError::invalid(error.body_text())),
        }
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::new(Code::Unauthenticated, "this route needs a caller"))
    }
}

/// The text of a header.
pub fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match value.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(ApiError::invalid("the header is not visible ASCII").at(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        n: u32,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        inner: Vec<Inner>,
    }

    fn error(text: &[u8]) -> ApiError {
        parse::<Outer>(text).unwrap_err()
    }

    #[test]
    fn body_error_names_the_field() {
        assert_eq!(parse::<Outer>(br#"{"inner":[{"n":1}]}"#).unwrap(), Outer { inner: vec![Inner { n: 1 }] });
        let wrong = error(br#"{"inner":[{"n":1},{"n":"x"}]}"#);
        assert_eq!(wrong.field.as_deref(), Some("inner[1].n"));
        let unknown = error(br#"{"inner":[{"n":1,"m":2}]}"#);
        assert!(unknown.detail.contains("unknown field `m`"), "{unknown:?}");
        assert!(error(b"{\"inner\":[]} x").detail.contains("behind"));
        assert!(error(b"{\"inner\":\"\xff\"}").detail.contains("UTF-8"));
        assert!(error(b"").detail.contains("EOF"));
        assert_eq!(error(b"{").field, None, "a broken JSON has no field to name");
        assert!(error(b"[[]]").detail.contains("expected an object at"));
        assert!(error(b"7").detail.contains("expected an object at"), "{:?}", error(b"7"));
    }

    #[test]
    fn query_error_names_the_parameter() {
        let error = wrong_query("Failed to deserialize query string: limit: invalid digit found in string");
        assert_eq!((error.field.as_deref(), error.detail.as_str()), (Some("limit"), "it must be a whole number"));
        let unknown = wrong_query("Failed to deserialize query string: opne: unknown field `opne`, expected `open`");
        assert_eq!((unknown.field.as_deref(), unknown.detail.contains("`opne`")), (Some("opne"), true));
        assert_eq!(wrong_query("missing field `path`").field, None);
    }

    #[test]
    fn whole_number_accepts_trailing_zero_fraction_only() {
        #[derive(Debug, Deserialize)]
        struct Both {
            #[serde(deserialize_with = "whole")]
            n: u32,
            #[serde(default, deserialize_with = "whole_option")]
            m: Option<u64>,
        }
        let both: Both = parse(br#"{"n":2.0,"m":3.0}"#).unwrap();
        assert_eq!((both.n, both.m), (2, Some(3)));
        assert_eq!(parse::<Both>(br#"{"n":2,"m":null}"#).unwrap().m, None);
        for wrong in [&br#"{"n":2.5}"#[..], br#"{"n":-1}"#, br#"{"n":1e300}"#, br#"{"n":4294967296}"#, br#"{"n":"2"}"#]
        {
            assert_eq!(parse::<Both>(wrong).unwrap_err().field.as_deref(), Some("n"));
        }
    }

    #[test]
    fn parse_errors_contain_no_rust_type_names() {
        for (sent, message) in [
            (&br#"{"inner":[{"n":-1}]}"#[..], "expected a whole number"),
            (br#"{"inner":[{"n":"expected u32"}]}"#, "string \"expected u32\", expected a whole number"),
            (br#"{"inner":1}"#, "expected a list"),
            (br#"{"inner":[1]}"#, "expected an object"),
        ] {
            let detail = error(sent).detail;
            assert!(detail.contains(message), "{detail}");
        }
        let detail = wrong_query("Failed to deserialize query string: state: unknown variant `x`, expected `a`").detail;
        assert_eq!(detail, "unknown word `x`, expected `a`");
    }

    #[test]
    fn json_content_types_are_recognised() {
        for (kind, fine) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/problem+json", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            assert_eq!(is_json(kind), fine, "{kind}");
        }
    }
}
