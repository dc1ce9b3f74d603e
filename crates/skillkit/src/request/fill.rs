//! A request template with the values of arguments.

use crate::egress::Url;
use annie_core::{
    ports::EgressRequest,
    skill::{Effect, SkillSpec},
};
use serde_json::{Map, Value};

use super::{Body, RequestTemplate};
use crate::{
    error::SkillError,
    files::placeholders,
    template::{defaulted, filled, only_place, text_of},
};

/// The request for these arguments.
pub(super) fn request(
    template: &RequestTemplate,
    spec: &SkillSpec,
    intent: &str,
    arguments: Value,
) -> Result<EgressRequest, SkillError> {
    let arguments = defaulted(&spec.args, arguments);
    let mut request = EgressRequest::get(url(template, &arguments)?);
    request.method = template.method;
    let as_is = |value: String| value;
    let given = template.headers.iter();
    request.headers =
        given.filter_map(|(name, value)| Some((name.clone(), filled(value, &arguments, &as_is)?))).collect();
    request.secret_headers.clone_from(&template.secret_headers);
    if spec.effect == Effect::Idempotent {
        request.headers.push((template.idempotency_header.clone(), intent.to_owned()));
    }
    let (content_type, body) = match &template.body {
        Body::Nothing => (None, Vec::new()),
        Body::Json(json) => {
            let json = json_of(json, &arguments).unwrap_or(Value::Null);
            (Some("application/json"), json.to_string().into_bytes())
        }
        Body::Form(fields) => {
            (Some("application/x-www-form-urlencoded"), pairs(fields, &arguments).join("&").into_bytes())
        }
        Body::Text(text) => {
            (Some("text/plain; charset=utf-8"), filled(text, &arguments, &as_is).unwrap_or_default().into_bytes())
        }
    };
    request.body = body;
    let has_type = request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    if let Some(content_type) = content_type.filter(|_| !has_type) {
        request.headers.push(("Content-Type".to_owned(), content_type.to_owned()));
    }
    request.reply_bytes_max = Some(template.response.bytes_max);
    Ok(request)
}

/// The URL. Each value is one path segment or a part of one, or a part of the query.
fn url(template: &RequestTemplate, arguments: &Value) -> Result<String, SkillError> {
    let (address, own_query) = match template.url.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (template.url.as_str(), None),
    };
    let encode = |value: String| encoded(&value);
    let mut segments = Vec::new();
    for segment in address.split('/') {
        let text = filled(segment, arguments, &encode).unwrap_or_default();
        if let Some(name) = placeholders(segment).next()
            && matches!(text.as_str(), "" | "." | "..")
        {
            let what = "would change the path of the address: give a name, not an empty text or dots";
            return Err(SkillError::argument(name, what));
        }
        segments.push(text);
    }
    let own_query = own_query.map(|query| filled(query, arguments, &encode).unwrap_or_default());
    let query: Vec<String> = own_query.into_iter().chain(pairs(&template.query, arguments)).collect();
    let mut url = segments.join("/");
    if !query.is_empty() {
        url.push('?');
        url.push_str(&query.join("&"));
    }
    same_place(&template.url, &url)?;
    Ok(url)
}

/// Refuses a URL whose host or number of path segments is not that of the template. The encoding ensures this; a mistake in it must
/// not reach another host.
fn same_place(template: &str, url: &str) -> Result<(), SkillError> {
    let place = |text: &str| {
        let url = Url::parse(text).ok()?;
        let segments = url.path_segments()?.count();
        Some((url.scheme().to_owned(), url.host_str()?.to_owned(), url.port_or_known_default(), segments))
    };
    let of_template = place(&with_letters(template));
    if of_template.is_some() && of_template == place(url) {
        return Ok(());
    }
    Err(SkillError::Arguments("The arguments would change the address of the request.".to_owned()))
}

/// The template with a letter in each place.
pub(crate) fn with_letters(template: &str) -> String {
    placeholders(template).fold(template.to_owned(), |text, name| text.replace(&format!("{{{name}}}"), "x"))
}

/// `name=value` of each pair whose value is present. A list is repeated.
fn pairs(fields: &[(String, String)], arguments: &Value) -> Vec<String> {
    let mut pairs = Vec::new();
    for (name, value) in fields {
        let list = only_place(value).and_then(|argument| arguments[argument].as_array());
        let values: Vec<String> = match list {
            Some(items) => items.iter().filter_map(text_of).collect(),
            None => filled(value, arguments, &|value| value).into_iter().collect(),
        };
        pairs.extend(values.iter().map(|value| format!("{}={}", encoded(name), encoded(value))));
    }
    pairs
}

/// A JSON template with typed values; `None` if it is only the place of an absent argument.
fn json_of(template: &Value, arguments: &Value) -> Option<Value> {
    Some(match template {
        Value::String(text) => match only_place(text) {
            Some(name) => Some(arguments[name].clone()).filter(|value| !value.is_null())?,
            None => Value::String(filled(text, arguments, &|value| value)?),
        },
        Value::Array(items) => Value::Array(items.iter().filter_map(|item| json_of(item, arguments)).collect()),
        Value::Object(map) => {
            let filled = map.iter().filter_map(|(key, value)| Some((key.clone(), json_of(value, arguments)?)));
            Value::Object(filled.collect::<Map<_, _>>())
        }
        other => other.clone(),
    })
}

/// Percent-encodes everything but letters, digits, `-`, `_`, `.` and `~` (RFC 3986).
pub(crate) fn encoded(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
