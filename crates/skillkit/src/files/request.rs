//! `request:` and `response:` of a command skill: an HTTP request with places for arguments, and how its response is read.

use crate::egress::Url;
use annie_core::{
    ports::{EgressMethod, SecretHeader},
    skill::{ArgSpec, Effect},
};
use serde_json::Value as Json;
use serde_yaml_ng::{Mapping, Value};

use super::{
    arguments,
    frontmatter::{Frontmatter, scalar, truth},
    problem::Report,
    response,
    script::placeholders,
};
use crate::request::{Body, IDEMPOTENCY_HEADER, RequestTemplate, with_letters};

const KEYS: [&str; 8] = ["method", "url", "query", "headers", "json", "form", "text", "idempotency_header"];
/// The keys of the body, of which at most one may be given.
const BODIES: [&str; 3] = ["json", "form", "text"];
/// The most entries of `query`, `headers` and `form`.
const ENTRIES_MAX: usize = 64;
/// Headers that the client sets, or that change the connection.
const OWN_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The request of a file, with its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestFile {
    pub(crate) template: RequestTemplate,
    pub(crate) args: Vec<ArgSpec>,
    /// The effect unless the file says otherwise: a request that is no `GET` must not be repeated.
    pub(crate) effect: Effect,
}

/// The request of a file; `None` if the file has none, or it is not valid. Every problem is reported.
pub(crate) fn read(front: &Frontmatter, effect: Option<Effect>, report: &mut Report) -> Option<RequestFile> {
    let Some(value) = front.get("request") else {
        if front.get("response").is_some() {
            let fix = "write `request:` with `method` and `url`, or leave it out";
            report.lenient(front.line_of("response"), "`response` has a meaning only beside `request`", fix);
        }
        return None;
    };
    let line = front.line_of("request");
    let args = arguments::read(front, report);
    if front.get("external").and_then(truth) == Some(false) {
        report.error(front.line_of("external"), "the request reaches another machine", "write `external: true`");
    }
    let Some(map) = value.as_mapping() else {
        report.error(line, "`request` must be a mapping", "write `method: GET` and `url: https://…` below it");
        return None;
    };
    let mut parts = Parts { map, line, args: &args, report };
    parts.check_keys();
    let method = parts.method();
    let url = parts.url();
    let query = parts.texts("query");
    let (headers, secret_headers) = parts.headers();
    let body = parts.body(method, &headers);
    let idempotency_header = parts.idempotency_header(effect);
    let response = response::read(front, report);
    let template = RequestTemplate {
        method: method?,
        url: url?,
        query,
        headers,
        secret_headers,
        body,
        idempotency_header,
        response,
    };
    let effect = if method == Some(EgressMethod::Get) { Effect::Read } else { Effect::Once };
    Some(RequestFile { template, args, effect })
}

struct Parts<'a> {
    map: &'a Mapping,
    line: Option<u32>,
    args: &'a [ArgSpec],
    report: &'a mut Report,
}

impl Parts<'_> {
    fn wrong(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.report.error(self.line, what, fix);
    }

    fn check_keys(&mut self) {
        let keys = self.map.keys().map(|key| scalar(key).unwrap_or_default());
        for key in keys.filter(|key| !KEYS.contains(&key.as_str())).collect::<Vec<_>>() {
            self.wrong(format!("`request` has the unknown key `{key}`"), format!("known are {}", KEYS.join(", ")));
        }
    }

    fn method(&mut self) -> Option<EgressMethod> {
        let word = self.map.get("method").map_or_else(|| Some("GET".to_owned()), scalar).unwrap_or_default();
        let all = [EgressMethod::Get, EgressMethod::Post, EgressMethod::Put, EgressMethod::Patch, EgressMethod::Delete];
        let found = all.into_iter().find(|method| method.as_str() == word);
        if found.is_none() {
            self.wrong(format!("`method: {word}` is unknown"), "write GET, POST, PUT, PATCH or DELETE");
        }
        found
    }

    /// The URL. Its scheme, host and port are fixed, and an argument in its path must be present.
    fn url(&mut self) -> Option<String> {
        let url = self.map.get("url").and_then(scalar).unwrap_or_default().trim().to_owned();
        let fix = "write the whole address: `url: https://api.example.org/v1/{city}`";
        if url.is_empty() {
            self.wrong("`url` is missing in `request`", fix);
            return None;
        }
        let host = url.split_once("://").map_or("", |(_, rest)| rest).split(['/', '?', '#']).next().unwrap_or_default();
        let scheme = url.split("://").next().unwrap_or_default();
        if host.contains(['{', '}']) || scheme.contains(['{', '}']) {
            self.wrong("the host of `url` comes from an argument", "name one host: each host is a skill of its own");
            return None;
        }
        let parsed = Url::parse(&with_letters(&url)).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(parsed) = parsed.filter(|url| url.host_str().is_some()) else {
            self.wrong(format!("`{url}` is no address with http:// or https://"), fix);
            return None;
        };
        if !parsed.username().is_empty() || parsed.password().is_some() {
            self.wrong("`url` has a user name or a password", "store a secret and send it in a header");
        }
        if parsed.fragment().is_some() {
            self.wrong("`url` has a part behind `#`, which is never sent", "leave it out");
        }
        self.check_places("url", &url);
        let path = url.split('?').next().unwrap_or_default();
        for name in placeholders(path).collect::<Vec<_>>() {
            if self.args.iter().any(|arg| arg.name == name && !arg.required && arg.default.is_null()) {
                let fix = format!("write `required: true` or a default for `{name}`");
                self.wrong(format!("`{{{name}}}` in the path of `url` may be absent"), fix);
            }
        }
        Some(url)
    }

    /// Reports places of arguments that are not declared.
    fn check_places(&mut self, key: &str, text: &str) {
        for name in placeholders(text).collect::<Vec<_>>() {
            if !self.args.iter().any(|arg| arg.name == name) {
                let fix = "declare it below `arguments:`";
                self.wrong(format!("`{{{name}}}` in `{key}` of `request` is no argument"), fix);
            }
        }
        if text.contains("{secret:") && key != "headers" {
            self.wrong(format!("`{key}` of `request` names a secret"), "secrets are sent in headers only");
        }
    }

    /// A mapping of names to texts.
    fn texts(&mut self, key: &str) -> Vec<(String, String)> {
        let Some(value) = self.map.get(key).filter(|value| !value.is_null()) else { return Vec::new() };
        let fix = format!("write `{key}: {{name: value}}`, each value a text or a number");
        let Some(map) = value.as_mapping().filter(|map| map.len() <= ENTRIES_MAX) else {
            self.wrong(format!("`{key}` of `request` must be a mapping of at most {ENTRIES_MAX} entries"), fix);
            return Vec::new();
        };
        let mut texts = Vec::new();
        for (name, value) in map {
            match (scalar(name), scalar(value)) {
                (Some(name), Some(value)) => {
                    self.check_places(key, &value);
                    texts.push((name, value));
                }
                (name, _) => {
                    let name = name.unwrap_or_default();
                    self.wrong(format!("`{name}` in `{key}` of `request` is no text"), fix.clone());
                }
            }
        }
        texts
    }

    fn headers(&mut self) -> (Vec<(String, String)>, Vec<SecretHeader>) {
        let (mut plain, mut secret) = (Vec::new(), Vec::new());
        for (name, value) in self.texts("headers") {
            if !is_header(&name) {
                self.wrong(format!("`{name}` cannot be the name of a header"), "use letters, digits and hyphens");
            } else if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
                self.wrong(format!("the header `{name}` is set by Annie"), "leave it out");
            } else if !value.contains("{secret:") {
                plain.push((name, value));
            } else if let Some(header) = secret_header(&name, &value) {
                secret.push(header);
            } else {
                let fix = "write one secret and no argument: `Authorization: \"Bearer {secret:name}\"`";
                self.wrong(format!("the header `{name}` names its secret in a wrong way"), fix);
            }
        }
        (plain, secret)
    }

    fn body(&mut self, method: Option<EgressMethod>, headers: &[(String, String)]) -> Body {
        let given: Vec<&str> = BODIES.into_iter().filter(|key| self.map.get(*key).is_some()).collect();
        if given.len() > 1 {
            self.wrong(format!("`request` has {}", given.join(" and ")), "keep one of them");
        }
        if method == Some(EgressMethod::Get) && !given.is_empty() {
            self.wrong(format!("a GET has no body, and `request` has `{}`", given[0]), "write another method");
        }
        match given.first().copied() {
            Some("json") => self.json().map_or(Body::Nothing, Body::Json),
            Some("form") => Body::Form(self.texts("form")),
            Some(_) => {
                let text = self.map.get("text").and_then(scalar);
                if text.is_none() {
                    self.wrong("`text` of `request` is no text", "write `text: \"{content}\"`");
                }
                let text = text.unwrap_or_default();
                self.check_places("text", &text);
                let is_json = |(name, value): &(String, String)| {
                    name.eq_ignore_ascii_case("content-type") && value.to_ascii_lowercase().contains("json")
                };
                if headers.iter().any(is_json) && placeholders(&text).next().is_some() {
                    let fix = "write `json:` with a mapping, in which an argument stays one value";
                    self.wrong("an argument in `text` could change the structure of JSON", fix);
                }
                Body::Text(text)
            }
            None => Body::Nothing,
        }
    }

    fn json(&mut self) -> Option<Json> {
        let value = self.map.get("json")?;
        let Ok(json) = serde_json::to_value(value) else {
            self.wrong("`json` of `request` cannot be written as JSON", "use texts as keys");
            return None;
        };
        let mut texts = Vec::new();
        collect_texts(&json, &mut texts);
        for text in texts {
            self.check_places("json", &text);
        }
        Some(json)
    }

    fn idempotency_header(&mut self, effect: Option<Effect>) -> String {
        let Some(value) = self.map.get("idempotency_header") else { return IDEMPOTENCY_HEADER.to_owned() };
        let name = scalar(value).unwrap_or_default();
        if !is_header(&name) || OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            self.wrong(format!("`{name}` cannot be the name of a header"), "write `idempotency_header: X-Request-Id`");
        }
        if effect != Some(Effect::Idempotent) {
            let fix = "write `effect: idempotent`, or leave it out";
            self.wrong("`idempotency_header` has a meaning only with `effect: idempotent`", fix);
        }
        name
    }
}

/// Whether a text is the name of a header. Only the usual characters are accepted.
fn is_header(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// A header with exactly one secret and no argument.
fn secret_header(header: &str, value: &str) -> Option<SecretHeader> {
    let (before, rest) = value.split_once("{secret:")?;
    let (secret, after) = rest.split_once('}')?;
    let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    let is_name = (1..=64).contains(&secret.len()) && secret.bytes().all(is_part);
    let is_plain = |text: &str| !text.contains(['{', '}']);
    let [header, before, secret, after] = [header, before, secret, after].map(str::to_owned);
    (is_name && is_plain(&before) && is_plain(&after)).then_some(SecretHeader { header, before, secret, after })
}

fn collect_texts(value: &Json, texts: &mut Vec<String>) {
    match value {
        Json::String(text) => texts.push(text.clone()),
        Json::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Json::Object(map) => map.values().for_each(|value| collect_texts(value, texts)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// The value of a key as a whole number within bounds; the default if it is absent. Anything else is reported.
pub(super) fn bounded(
    map: &Mapping,
    key: &str,
    (least, default, most): (usize, usize, usize),
    wrong: &mut dyn FnMut(String, String),
) -> usize {
    let Some(value) = map.get(key) else { return default };
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    match number.filter(|number| (least..=most).contains(number)) {
        Some(number) => number,
        None => {
            wrong(format!("`{key}` is out of range"), format!("write a number from {least} to {most}"));
            default
        }
    }
}

/// The scalar value of a key.
pub(super) fn word(map: &Mapping, key: &str) -> Option<String> {
    map.get(key).and_then(|value: &Value| scalar(value))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::super::validate::validate;

    fn problems(head: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), head);
        validate(folder.path()).unwrap().iter().map(ToString::to_string).collect()
    }

    fn write(folder: &Path, head: &str) {
        fs::create_dir(folder.join("weather")).unwrap();
        let text = format!("---\nname: weather.now\ndescription: d\n{head}---\nx\n");
        fs::write(folder.join("weather/now.md"), text).unwrap();
    }

    #[test]
    fn request_errors_are_reported_all_at_once() {
        let head = "effect: read\nexternal: false\nhandler: web.fetch\narguments:\n  city: text\nrequest:\n  method: FETCH\n  \
                    url: \"https://api.test/{city}/{none}?key={secret:k}\"\n  headers: {Host: x, \"a b\": y, X-Key: \
                    \"{secret:a}{secret:b}\"}\n  json: {a: \"{b}\"}\n  form: {a: b}\n  idempotency_header: X-Id\n  bodi: \
                    x\nresponse:\n  type: xml\n  pointer: results\n  fields: {a: b}\n  items_max: 0\n  status: {99: success, \
                    404: fine}\n  colour: red\n";
        let found = problems(head).join("\n");
        for wanted in [
            "the request reaches another machine; write `external: true`",
            "`handler` and `request` exclude each other",
            "`request` has the unknown key `bodi`",
            "`method: FETCH` is unknown; write GET, POST",
            "`{none}` in `url` of `request` is no argument",
            "`url` of `request` names a secret",
            "`{city}` in the path of `url` may be absent; write `required: true`",
            "the header `Host` is set by Annie",
            "`a b` cannot be the name of a header",
            "the header `X-Key` names its secret in a wrong way",
            "`{b}` in `json` of `request` is no argument",
            "`request` has json and form",
            "`idempotency_header` has a meaning only with `effect: idempotent`",
            "`type: xml` is unknown; write json, text, html or none",
            "`results` is no JSON Pointer",
            "`b` is no JSON Pointer",
            "`items_max` is out of range",
            "`99` is no status",
            "`fine` is unknown",
            "`response` has the unknown key `colour`",
        ] {
            assert!(found.contains(wanted), "{wanted} is missing in:\n{found}");
        }
    }

    #[test]
    fn request_whose_host_comes_from_an_argument_is_refused() {
        for url in ["https://{city}.test/", "https://{city}/x", "{city}://api.test/", "https://u@{city}/", "{city}"] {
            let head = format!(
                "effect: read\nexternal: true\narguments: {{city: {{required: true}}}}\nrequest: {{url: \"{url}\"}}\n"
            );
            let found = problems(&head).join("\n");
            assert!(found.contains("comes from an argument") || found.contains("is no address"), "{url}: {found}");
        }
        for (url, part) in [
            ("ftp://api.test/", "is no address"),
            ("/v1", "is no address"),
            ("https://ann:pass@api.test/", "a user name or a password"),
            ("https://api.test/#part", "behind `#`"),
            ("", "`url` is missing"),
        ] {
            let found = problems(&format!("effect: read\nexternal: true\nrequest: {{url: \"{url}\"}}\n")).join("\n");
            assert!(found.contains(part), "{url}: {found}");
        }
    }

    #[test]
    fn request_without_mistakes_is_valid() {
        let head = "effect: idempotent\nexternal: true\narguments:\n  city: {required: true}\n  days: {type: integer, \
                    default: 3}\nrequest:\n  method: POST\n  url: https://api.test:8443/v1/{city}/forecast?units=metric\n  \
                    query: {days: \"{days}\"}\n  headers: {Accept: application/json, X-Key: \"{secret:weather}\"}\n  json: \
                    {city: \"{city}\", tags: [\"{city}\", 1]}\n  idempotency_header: X-Request-Id\nresponse:\n  pointer: \
                    /list\n  fields: {temperature: /main/temp}\n  items_max: 5\n  status: {404: empty_result}\n";
        assert_eq!(problems(head), Vec::<String>::new());
    }
}
