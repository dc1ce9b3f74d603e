//! Requests of skill files: the places of arguments, and the outcomes of responses.

use crate::egress::Url;
use annie_core::{
    outcome::{Outcome, Status},
    ports::{EgressReply, EgressRequest},
    skill::{Effect, SkillSpec},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::files::{Entry, Item, Kind, load_text};

/// The skill of a file with this head.
fn skill(head: &str) -> (SkillSpec, RequestTemplate) {
    let text = format!("---\nname: api.call\ndescription: d\nexternal: true\n{head}---\nx\n");
    let (item, problems) = load_text("api/call.md", &text);
    let Some(Item::Skill(Entry { spec, kind: Kind::Request(template), .. })) = item else { panic!("{problems:?}") };
    ((*spec).clone(), (*template).clone())
}

fn filled(head: &str, arguments: Value) -> Result<EgressRequest, String> {
    let (spec, template) = skill(head);
    fill::request(&template, &spec, "intent-1", arguments).map_err(|error| error.to_string())
}

const PATH: &str = "arguments:\n  a: {required: true}\n  q: text\n  n: {type: integer, default: 7}\n  tags: \
                    list\nrequest:\n  url: https://api.test:8443/v1/{a}/end\n  query: {q: \"{q}\", n: \"{n}\", all: \"{tags}\", both: \"{q}-{n}\"}\n";

#[test]
fn request_arguments_are_encoded_for_their_place() {
    let url = |arguments| filled(PATH, arguments).unwrap().url;
    assert_eq!(url(json!({"a": "Bad Homburg"})), "https://api.test:8443/v1/Bad%20Homburg/end?n=7&both=-7");
    assert_eq!(
        url(json!({"a": "a/b?c#d%2e@e:f\\g", "q": "x&n=9 ü", "tags": ["1", "2"]})),
        "https://api.test:8443/v1/a%2Fb%3Fc%23d%252e%40e%3Af%5Cg/end?q=x%26n%3D9%20%C3%BC&n=7&all=1&all=2&both=x%26n%3D9%20%C3%BC-7"
    );
    for a in ["", ".", ".."] {
        let error = filled(PATH, json!({"a": a})).unwrap_err();
        assert!(error.contains("--a would change the path"), "{a}: {error}");
    }
}

proptest! {
    #[test]
    fn request_of_any_argument_keeps_its_host_and_the_structure_of_its_path(a in "\\PC{0,20}|(\\.|/|%2e|%2f|\\\\|@|:|#|\\?|&){0,8}", q in "\\PC{0,20}") {
        let Ok(request) = filled(PATH, json!({"a": a, "q": q, "n": 1})) else { return Ok(()) };
        let url = Url::parse(&request.url).unwrap();
        prop_assert_eq!(url.origin().ascii_serialization(), "https://api.test:8443");
        let segments: Vec<&str> = url.path_segments().unwrap().collect();
        prop_assert!(matches!(segments[..], ["v1", _, "end"]), "{}", url);
        let names: Vec<String> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
        prop_assert_eq!(names, ["q", "n", "both"]);
        prop_assert!(url.fragment().is_none());
    }
}

#[test]
fn request_bodies_keep_the_types_and_the_structure_of_their_template() {
    let head = "effect: idempotent\narguments: {a: text, n: integer, tags: list}\nrequest:\n  method: POST\n  url: \
                https://api.test/\n  json: {title: \"{a}\", note: \"see {a}\", count: \"{n}\", tags: \"{tags}\", fixed: [1, true]}\n";
    let request = filled(head, json!({"a": "x\", \"admin\": true", "n": 3})).unwrap();
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let text = "x\", \"admin\": true";
    assert_eq!(body, json!({"title": text, "note": format!("see {text}"), "count": 3, "fixed": [1, true]}));
    let headers: Vec<(&str, &str)> = request.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(headers, [("Idempotency-Key", "intent-1"), ("Content-Type", "application/json")]);

    let head = "arguments: {a: text}\nrequest:\n  method: PUT\n  url: https://api.test/\n  headers: {X-A: \"{a}\"}\n  form: \
                {a: \"{a}\", b: c}\n";
    let request = filled(head, json!({"a": "1&b=2"})).unwrap();
    assert_eq!(String::from_utf8(request.body).unwrap(), "a=1%26b%3D2&b=c");
    assert_eq!(request.method, EgressMethod::Put);
    assert!(request.headers.contains(&("X-A".to_owned(), "1&b=2".to_owned())));
    assert!(!request.headers.iter().any(|(name, _)| name == "Idempotency-Key"), "the effect is once");

    let head = "arguments: {a: text}\nrequest: {method: PATCH, url: \"https://api.test/\", text: \"to {a}\"}\n";
    let request = filled(head, json!({"a": "you"})).unwrap();
    assert_eq!((request.body, request.method), (b"to you".to_vec(), EgressMethod::Patch));
}

#[test]
fn request_that_is_no_get_must_not_be_repeated_unless_its_file_says_so() {
    for (method, effect) in [("GET", Effect::Read), ("POST", Effect::Once), ("DELETE", Effect::Once)] {
        let (spec, _) = skill(&format!("request: {{method: {method}, url: \"https://api.test/\"}}\n"));
        assert_eq!((spec.effect, spec.external), (effect, true), "{method}");
    }
    let (spec, _) = skill("effect: read\nrequest: {method: POST, url: \"https://api.test/\"}\n");
    assert_eq!(spec.effect, Effect::Read);
}

fn outcome(head: &str, status: u16, body: &str) -> Outcome {
    outcome_with(head, status, body, &[("retry-after", "30")])
}

fn outcome_with(head: &str, status: u16, body: &str, headers: &[(&str, &str)]) -> Outcome {
    let (spec, template) = skill(head);
    let reply = EgressReply {
        status,
        content_type: "application/json".to_owned(),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: body.as_bytes().to_vec(),
        url: "https://api.test/x".to_owned(),
    };
    outcome::of(&reply, &template, &spec)
}

const READS: &str = "request: {url: \"https://api.test/\"}\n";
const POSTS: &str = "request: {method: POST, url: \"https://api.test/\"}\n";

#[test]
fn response_status_decides_the_outcome() {
    let of = |head: &str, status, body: &str| {
        let outcome = outcome(head, status, body);
        (outcome.status, outcome.error_type.unwrap_or_default())
    };
    for (status, body, expected) in [
        (200, "{\"a\": 1}", (Status::Success, "")),
        (200, "<html>", (Status::ErrorPermanent, "parse_error")),
        (204, "", (Status::ErrorPermanent, "empty_result")),
        (401, "", (Status::ErrorPermanent, "http_401")),
        (403, "no", (Status::ErrorPermanent, "http_403")),
        (404, "", (Status::ErrorPermanent, "http_404")),
        (429, "", (Status::ErrorTransient, "http_429")),
        (500, "", (Status::ErrorTransient, "http_500")),
    ] {
        assert_eq!(of(READS, status, body), (expected.0, expected.1.to_owned()), "{status}");
    }
    // The host may have done it before it failed.
    assert_eq!(of(POSTS, 500, "").0, Status::Unknown);
    assert_eq!(of(POSTS, 503, ""), (Status::ErrorTransient, "http_503".to_owned()));
    assert_eq!(of(POSTS, 201, "").0, Status::Success);
    assert_eq!(of(POSTS, 200, "<html>").0, Status::Partial, "it was done");
    let mapped = "request: {url: \"https://api.test/\"}\nresponse: {status: {404: empty_result, 403: blocked, 500: \
                  permanent, 418: success}}\n";
    assert_eq!(of(mapped, 404, ""), (Status::ErrorPermanent, "empty_result".to_owned()));
    assert_eq!(of(mapped, 403, ""), (Status::ErrorBlocked, "http_403".to_owned()));
    assert_eq!(of(mapped, 500, ""), (Status::ErrorPermanent, "http_500".to_owned()));
    assert_eq!(of(mapped, 418, "[1]").0, Status::Success);
    let refused = outcome(READS, 429, "{\"message\": \"slow down\"}").data;
    assert!(refused.contains("slow down") && refused.contains("tried again in 30 s"), "{refused}");
}

#[test]
fn response_that_does_not_deny_an_effect_leaves_it_in_doubt() {
    // Post, redirect, get: the redirect answers a request that was carried out.
    for status in [301, 302, 303, 307, 408, 503] {
        assert_eq!(outcome_with(POSTS, status, "", &[]).status, Status::Unknown, "{status}");
        assert_ne!(outcome_with(READS, status, "", &[]).status, Status::Unknown, "{status} of a read");
    }
    let mapped =
        "request: {method: POST, url: \"https://api.test/\"}\nresponse: {status: {303: success, 503: transient}}\n";
    assert_eq!(outcome_with(mapped, 303, "", &[]).status, Status::Success, "the file says what the status means");
    assert_eq!(
        outcome_with(mapped, 503, "", &[]).status,
        Status::ErrorTransient,
        "the file says what the status means"
    );
}

#[test]
fn response_shows_the_selected_fields_within_its_limits() {
    let head = "request: {url: \"https://api.test/\"}\nresponse: {pointer: /list, fields: {name: /n, wind: /w/speed}, items_max: 2}\n";
    let body = r#"{"list": [{"n": "a", "w": {"speed": 3.5}}, {"n": "b"}, {"x": 1}, {"n": "c"}, {"n": "d"}]}"#;
    let shown = outcome(head, 200, body).data;
    let from = "Response of api.test. It is from outside and not by the user:\n\n";
    assert_eq!(shown, format!("{from}- name: a\n  wind: 3.5\n- name: b\n(2 more)"));
    for empty in ["{\"list\": []}", "{}", "{\"list\": null}", "{\"list\": [{\"x\": 1}]}"] {
        assert_eq!(outcome(head, 200, empty).error_type.as_deref(), Some("empty_result"), "{empty}");
    }
    let head = "request: {url: \"https://api.test/\"}\nresponse: {type: text, chars_max: 3}\n";
    assert!(outcome(head, 200, "abcdef").data.ends_with("[the first 3 of 6 characters]\n\nabc"));
    let head = "request: {url: \"https://api.test/\"}\nresponse: {type: html}\n";
    assert_eq!(outcome(head, 200, "x").data, format!("{from}x"));
    let head = "request: {method: POST, url: \"https://api.test/\"}\nresponse: {type: none}\n";
    assert_eq!(outcome(head, 200, "secret").data, "api.call succeeded. The response says nothing more.");
}

#[test]
fn request_preview_shows_what_would_be_sent_and_names_secrets() {
    let (spec, template) = skill(
        "arguments: {a: {required: true}}\nrequest:\n  method: POST\n  url: https://api.test/{a}\n  headers: {Authorization: \
         \"Bearer {secret:token}\"}\n  json: {a: \"{a}\"}\n",
    );
    let text = preview(&template, &spec, json!({"a": "x y"})).unwrap();
    assert_eq!(
        text,
        "POST https://api.test/x%20y\nContent-Type: application/json\nAuthorization: Bearer <secret token>\n\n{\"a\":\"x y\"}\n"
    );
}
