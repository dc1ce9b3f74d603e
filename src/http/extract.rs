//! What a handler is given of a request, checked: a JSON body, a query, ids in the path. What does not fit is explained with
//! the name of the part that is wrong.

use std::{str::FromStr, time::Duration};

use annie_actors::PAGE_MAX;
use annie_core::time::Micros;
use axum::{
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use serde::de::DeserializeOwned;

use crate::{
    auth::Caller,
    door::{AppState, page_limit},
    error::{Code, Fault},
};

/// A JSON body. Unknown fields are refused where the type says so.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Fault> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if !is_json(kind) {
            let why = format!("send the body as `content-type: application/json`, not {kind:?}");
            return Err(Fault::new(Code::UnsupportedMediaType, why));
        }
        let max = state.limits.body_bytes_max;
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|n| n > max) {
            return Err(too_large(max));
        }
        let reading = to_bytes(request.into_body(), max);
        let bytes = match tokio::time::timeout(Duration::from_millis(state.limits.body_ms_max), reading).await {
            Ok(Ok(bytes)) => bytes,
            // The only other way to fail is a connection that breaks, and then nobody reads the answer.
            Ok(Err(_)) => return Err(too_large(max)),
            Err(_) => {
                let why = format!("the body did not arrive within {} ms", state.limits.body_ms_max);
                return Err(Fault::new(Code::RequestTimeout, why));
            }
        };
        parse(&bytes).map(Self)
    }
}

fn too_large(max: usize) -> Fault {
    Fault::new(Code::TooLarge, format!("the body has more than {max} bytes, which is the most"))
}

/// Reads JSON and says which field is wrong.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Fault> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(Fault::invalid(format!("the body is not UTF-8: byte {} is wrong", error.valid_up_to())));
    }
    // An array would be taken for the fields in their order, which nobody means.
    if bytes.trim_ascii_start().first().is_some_and(|b| *b != b'{') {
        return Err(Fault::invalid("expected an object at the top level of the JSON"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let fault = Fault::invalid(without_type_names(&error.into_inner().to_string()));
        // Where the JSON itself breaks off, there is no path to tell.
        if path == "." || path.contains('?') { fault } else { fault.at(path) }
    })?;
    json.end().map_err(|e| Fault::invalid(format!("there is something behind the JSON: {e}")))?;
    Ok(value)
}

/// Serde names our types; whoever sent the body knows them as objects.
fn without_type_names(text: &str) -> String {
    match text.split_once("expected struct ") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
            format!("{before}expected an object{rest}")
        }
        None => text.to_owned(),
    }
}

/// Whether a content type is JSON: `application/json` or `application/…+json`, with or without parameters.
fn is_json(kind: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The query.
pub struct Args<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Args<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Fault> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(args)) => Ok(Self(args)),
            Err(error) => Err(wrong_query(&error.body_text())),
        }
    }
}

/// What does not fit in a query: the framework's sentence ends with the parameter and what is wrong with it.
fn wrong_query(said: &str) -> Fault {
    let said = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(said);
    match said.split_once(": ") {
        Some((name, what)) if !name.contains(' ') => Fault::invalid(what).at(name),
        _ => Fault::invalid(said),
    }
}

/// A page of things that are listed by time: before which instant, and how many. 50 unless said otherwise.
pub fn page_of(before: Option<i64>, limit: Option<u32>) -> (Micros, u32) {
    (Micros(before.unwrap_or(i64::MAX)), page_limit(limit.unwrap_or(0), 50, PAGE_MAX))
}

/// The one parameter of the path, as an id.
pub struct Id<T>(pub T);

impl<T> FromRequestParts<AppState> for Id<T>
where
    T: FromStr + Send,
    T::Err: Into<Fault>,
{
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Fault> {
        let Name(text) = Name::from_request_parts(parts, state).await?;
        text.parse().map(Self).map_err(|e: T::Err| e.into().at("id"))
    }
}

/// The one parameter of the path, as it is.
pub struct Name(pub String);

impl FromRequestParts<AppState> for Name {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Fault> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(text)) => Ok(Self(text)),
            Err(error) => Err(Fault::invalid(error.body_text())),
        }
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Fault> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| Fault::new(Code::Unauthenticated, "this route needs a caller"))
    }
}

/// A header's text.
pub fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Fault> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match value.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Fault::invalid("the header is not visible ASCII").at(name)),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

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

    fn fault(text: &[u8]) -> Fault {
        parse::<Outer>(text).unwrap_err()
    }

    #[test]
    fn what_is_wrong_with_a_body_is_said_with_its_place() {
        assert_eq!(parse::<Outer>(br#"{"inner":[{"n":1}]}"#).unwrap(), Outer { inner: vec![Inner { n: 1 }] });
        let wrong = fault(br#"{"inner":[{"n":1},{"n":"x"}]}"#);
        assert_eq!(wrong.field.as_deref(), Some("inner[1].n"));
        let unknown = fault(br#"{"inner":[{"n":1,"m":2}]}"#);
        assert!(unknown.detail.contains("unknown field `m`"), "{unknown:?}");
        assert!(fault(b"{\"inner\":[]} x").detail.contains("behind"));
        assert!(fault(b"{\"inner\":\"\xff\"}").detail.contains("UTF-8"));
        assert!(fault(b"").detail.contains("EOF"));
        assert_eq!(fault(b"{").field, None, "a broken JSON has no field to name");
        assert!(fault(b"[[]]").detail.contains("expected an object at"));
        assert!(fault(b"7").detail.contains("expected an object at"), "{:?}", fault(b"7"));
    }

    #[test]
    fn what_is_wrong_with_a_query_is_said_with_its_parameter() {
        let fault = wrong_query("Failed to deserialize query string: limit: invalid digit found in string");
        assert_eq!((fault.field.as_deref(), fault.detail.as_str()), (Some("limit"), "invalid digit found in string"));
        let unknown = wrong_query("Failed to deserialize query string: opne: unknown field `opne`, expected `open`");
        assert_eq!((unknown.field.as_deref(), unknown.detail.contains("`opne`")), (Some("opne"), true));
        assert_eq!(wrong_query("missing field `path`").field, None);
    }

    #[test]
    fn json_goes_by_several_names() {
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
