//! The table of operations: its rules, and the agreement of its JSON with the protobuf messages.

use std::collections::{BTreeMap, BTreeSet};

use annie_core::{
    dead_letter::{DeadLetter, DeadLetterState},
    event::{EVENT_KINDS, Priority},
    ids::{AgentId, ConversationId, IntentId, OperationId, TaskId, UserId},
    ports::{Address, DeadLetterRow, OperationRow},
    reminder::{RemindedTodo, Reminder},
    schedule::{NumberedSchedule, Schedule},
    time::Micros,
};
use annie_testkit::openapi::properties;
use prost::{
    Message,
    encoding::{DecodeContext, decode_key, skip_field},
};
use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};
use serde_json::Value;
use uuid::Uuid;

use super::{ALL, RULES, dead_letters, need, operations, reminders, row::Verb, schedules};
use crate::{
    auth::{
        KeyScope,
        Need::{AnyKey, OperationKey, Scope},
        OTHER_RULES,
    },
    grpc::{DESCRIPTOR, v1},
    http::document,
};

#[test]
fn search_of_events_accepts_every_kind_that_is_stored() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/golden/event_v1");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let stored = files.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let stored: BTreeSet<String> = stored.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(stored, EVENT_KINDS.map(str::to_owned).into_iter().collect());
}

#[test]
fn unlisted_route_has_no_rule() {
    assert_eq!(need("GET", "/api/v1/keys"), Some(Scope(KeyScope::Admin)));
    assert_eq!(need("HEAD", "/api/v1/keys"), Some(Scope(KeyScope::Admin)));
    assert_eq!(need("DELETE", "/api/v1/keys"), None);
    assert_eq!(need("GET", "/api/v1/everything"), None);
}

#[test]
fn rules_are_unique_and_every_post_needs_authorisation() {
    for (n, (method, path, need)) in RULES.iter().enumerate() {
        assert!(!RULES[..n].iter().any(|(m, p, _)| m == method && p == path), "{method} {path}");
        // Over MCP the scopes decide about each tool.
        let is_authorised = matches!(need, Scope(_) | OperationKey) || (*path == "/mcp" && *need == AnyKey);
        assert!(*method != "POST" || is_authorised, "{path}");
    }
}

#[test]
fn operations_have_names_and_texts() {
    let mut names = BTreeSet::new();
    for about in ALL.iter().map(|operation| &operation.about) {
        assert!(names.insert(about.name) && !about.name.is_empty(), "{} has no name of its own", about.path);
        assert!(!about.tag.is_empty() && about.summary.ends_with('.'), "{} is not described", about.name);
    }
}

/// Operations that a front end does not have, and why.
const NOT_OVER_GRPC: &[(&str, &str)] =
    &[("list_crashes", "for people; a gRPC client sees new incarnations in `Watch`")];
const NOT_ON_THE_COMMAND_LINE: &[(&str, &str)] = &[
    ("get_conversation", "`conversations list` shows all of it"),
    ("get_events", "`tasks show` and `ask` read them for their answer"),
];

/// Routes outside of the table, and why. A path that ends with a slash means all routes below it.
const NOT_IN_THE_TABLE: &[(&str, &str)] = &[
    ("/", "a page for people"),
    ("/page/", "the files of the page"),
    ("/healthz", "for service managers"),
    ("/readyz", "for load balancers"),
    ("/metrics", "for Prometheus"),
    ("/api/openapi.json", "describes HTTP"),
    ("/api/v1/messages", "waits for the answer, and has an idempotency header"),
    ("/api/v1/conversations/{id}/stream", "a stream of server-sent events"),
    ("/api/v1/notifications/stream", "a stream of server-sent events"),
    ("/api/v1/live", "a stream of server-sent events"),
    ("/api/v1/resume/{id}", "has no caller, but the key of an operation"),
    ("/api/v1/status", "gRPC has the standard health service"),
    ("/api/v1/keys", "keys are administered over HTTP only"),
    ("/api/v1/keys/{id}/revoke", "keys are administered over HTTP only"),
    ("/mcp", "the Model Context Protocol"),
    ("/v1/", "OpenAI's API"),
    ("/annie.v1.Chat/", "messages, and a stream"),
    ("/annie.v1.Operations/Finish", "has no caller, but the key of an operation"),
    ("/annie.v1.Notifications/Follow", "a stream"),
    ("/annie.v1.Actors/Watch", "a stream"),
    ("/annie.v1.Events/Follow", "a stream"),
    ("/annie.v1.Chaos/", "fault injection, for tests only"),
    ("/grpc.", "services that gRPC defines"),
];

fn names(list: &[(&'static str, &str)]) -> BTreeSet<&'static str> {
    list.iter().map(|(name, _)| *name).collect()
}

#[test]
fn every_operation_is_on_all_front_ends() {
    let protobuf = Protobuf::read();
    let (mut not_over_grpc, mut not_on_the_command_line) = (BTreeSet::new(), BTreeSet::new());
    for operation in ALL.iter() {
        let name = operation.about.name;
        match operation.method() {
            Some(method) => assert!(protobuf.methods.contains_key(method), "{name}: there is no method {method}"),
            None => assert!(not_over_grpc.insert(name)),
        }
        if operation.about.cli.is_empty() {
            assert!(not_on_the_command_line.insert(name));
        }
    }
    assert_eq!(not_over_grpc, names(NOT_OVER_GRPC));
    assert_eq!(not_on_the_command_line, names(NOT_ON_THE_COMMAND_LINE));

    let is_of = |path: &str, known: &str| match known {
        "/" => path == "/",
        known if known.ends_with(['/', '.']) => path.starts_with(known),
        known => path == known,
    };
    for (method, path, _) in OTHER_RULES {
        let reasons = NOT_IN_THE_TABLE.iter().filter(|(known, _)| is_of(path, known)).count();
        assert_eq!(reasons, 1, "{method} {path}: an operation of all front ends belongs into the table of operations");
    }
    for (known, _) in NOT_IN_THE_TABLE {
        assert!(OTHER_RULES.iter().any(|(_, path, _)| is_of(path, known)), "no route has the path {known}");
    }
}

/// Fields and properties that only one of the two forms has, and why.
const DIFFERENCES: &[(&str, &str)] = &[
    ("Event.json", "the whole event, whose other fields depend on its kind"),
    ("QueueResponse lacks backends", "the whole reply is one field, `queue_json`"),
    ("QueueResponse lacks orders", "as `backends`"),
    ("QueueResponse lacks running", "as `backends`"),
    ("QueueResponse lacks waiting", "as `backends`"),
    ("QueueResponse.queue_json", "as `backends`"),
    ("ReplayResponse lacks check", "the reply is one field, `json`, because its parts depend on the request"),
    ("ReplayResponse lacks differences", "as `check`"),
    ("ReplayResponse lacks event", "as `check`"),
    ("ReplayResponse lacks state", "as `check`"),
    ("ReplayResponse.agrees", "the result of the check, for programs that read no JSON"),
    ("ReplayResponse.json", "as `check`"),
    ("Skill lacks source", "the source is of interest to the operator of the files, who uses the command line"),
    ("Skill.help", "only of one skill"),
    ("Skill.schema_json", "only of one skill"),
    ("SubmitResponse lacks answer", "only HTTP can wait for the end of a turn"),
    ("SubmitResponse lacks error", "as `answer`"),
    ("SubmitResponse lacks not_waited", "as `answer`"),
    ("SubmitResponse lacks outcome", "as `answer`"),
    ("SubmitResponse lacks paused", "as `answer`"),
    ("SubmitResponse lacks status", "as `answer`"),
    ("SubmitResponse lacks usage", "as `answer`"),
];

/// Fields with another name in JSON.
const RENAMED: &[(&str, &str)] = &[
    ("Task.state", "status"),
    ("Job.state", "status"),
    ("ChatMessage.state", "status"),
    ("ListEventsRequest.after_seq", "after"),
    ("ForkRequest.at_seq", "at"),
    ("ReplayRequest.from_seq", "from"),
    ("ReplayRequest.until_seq", "until"),
];

/// The protobuf messages and methods by name.
struct Protobuf {
    messages: BTreeMap<String, DescriptorProto>,
    /// Request and reply of each method.
    methods: BTreeMap<String, (String, String)>,
}

impl Protobuf {
    fn read() -> Self {
        let (mut messages, mut methods) = (BTreeMap::new(), BTreeMap::new());
        for file in FileDescriptorSet::decode(DESCRIPTOR).unwrap().file {
            for service in &file.service {
                for method in &service.method {
                    let types = (method.input_type().to_owned(), method.output_type().to_owned());
                    methods.insert(format!("/{}.{}/{}", file.package(), service.name(), method.name()), types);
                }
            }
            let package = file.package().to_owned();
            messages.extend(file.message_type.into_iter().map(|m| (format!(".{package}.{}", m.name()), m)));
        }
        Self { messages, methods }
    }

    /// Compares a message with a schema and adds the differences.
    fn compare(&self, document: &Value, name: &str, schema: &Value, differences: &mut BTreeSet<String>) {
        let properties = properties(document, schema);
        // An object without described properties has any.
        if properties.is_empty() {
            return;
        }
        let mut missing: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        for (message, field) in self.fields(name, &properties) {
            match property(&message, &field, &properties) {
                Some(property) => {
                    missing.remove(property);
                    if field.r#type() == Type::Message {
                        let schema = &properties[property];
                        let schema = schema.get("items").unwrap_or(schema);
                        self.compare(document, field.type_name(), schema, differences);
                    }
                }
                None => {
                    differences.insert(format!("{message}.{}", field.name()));
                }
            }
        }
        let message = self.messages[name].name();
        differences.extend(missing.into_iter().map(|property| format!("{message} lacks {property}")));
    }

    /// The fields of a message. A part without a property of its own has its fields in the same JSON object.
    fn fields(&self, name: &str, properties: &BTreeMap<String, Value>) -> Vec<(String, FieldDescriptorProto)> {
        let message = &self.messages[name];
        let mut fields = Vec::new();
        for field in &message.field {
            let is_part = field.r#type() == Type::Message && field.label() != Label::Repeated;
            if is_part && property(message.name(), field, properties).is_none() {
                fields.extend(self.fields(field.type_name(), properties));
            } else {
                fields.push((message.name().to_owned(), field.clone()));
            }
        }
        fields
    }
}

/// The property of a field: times end with `_us` and JSON with `_json` in protobuf only.
fn property<'a>(
    message: &str,
    field: &FieldDescriptorProto,
    properties: &'a BTreeMap<String, Value>,
) -> Option<&'a str> {
    let (name, whole) = (field.name(), format!("{message}.{}", field.name()));
    let renamed = RENAMED.iter().find(|(from, _)| *from == whole).map(|(_, to)| *to);
    let names = [renamed, Some(name), name.strip_suffix("_us"), name.strip_suffix("_json")];
    names.into_iter().flatten().find_map(|name| properties.get_key_value(name)).map(|(name, _)| name.as_str())
}

#[test]
fn operations_have_the_same_fields_over_http_and_grpc() {
    let (document, protobuf) = (document(), Protobuf::read());
    let mut differences = BTreeSet::new();
    for operation in ALL.iter() {
        let about = &operation.about;
        let Some(method) = operation.method() else { continue };
        let (request, reply) = &protobuf.methods[method];
        let verb = match about.verb {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Delete => "delete",
        };
        let described = &document["paths"][about.path][verb];
        let schema = &described["responses"]["200"]["content"]["application/json"]["schema"];
        protobuf.compare(&document, reply, schema, &mut differences);

        let body = &described["requestBody"]["content"]["application/json"]["schema"];
        let mut asked = properties(&document, body);
        let parameters = described["parameters"].as_array().into_iter().flatten();
        let query = parameters.filter(|parameter| parameter["in"] == "query");
        asked.extend(query.map(|parameter| (parameter["name"].as_str().unwrap().to_owned(), Value::Null)));
        let mut missing: BTreeSet<&str> = asked.keys().map(String::as_str).collect();
        let message = &protobuf.messages[request];
        // The id in a path is the first field of the message.
        let is_id = |field: &&FieldDescriptorProto| about.path.contains('{') && field.number() == 1;
        for field in message.field.iter().filter(|field| !is_id(field)) {
            let is_known = property(message.name(), field, &asked).is_some_and(|property| missing.remove(property));
            if !is_known {
                differences.insert(format!("{}.{}", message.name(), field.name()));
            }
        }
        differences.extend(missing.into_iter().map(|property| format!("{} lacks {property}", message.name())));
    }
    let known: BTreeSet<String> = DIFFERENCES.iter().map(|(what, _)| (*what).to_owned()).collect();
    assert_eq!(differences, known, "the left side is what was found, the right side is the list of known differences");
}

/// Checks that an encoded message has every field of its type.
fn assert_full<M: Message + std::fmt::Debug>(protobuf: &Protobuf, name: &str, message: &M) {
    let bytes = message.encode_to_vec();
    let (mut rest, mut found) = (bytes.as_slice(), BTreeSet::new());
    while !rest.is_empty() {
        let (number, wire_type) = decode_key(&mut rest).unwrap();
        skip_field(wire_type, number, &mut rest, DecodeContext::default()).unwrap();
        found.insert(number.cast_signed());
    }
    let fields = &protobuf.messages[&format!(".annie.v1.{name}")].field;
    assert_eq!(found, fields.iter().map(FieldDescriptorProto::number).collect(), "{name}: {message:?}");
}

#[test]
fn grpc_messages_of_full_rows_have_every_field() {
    let protobuf = Protobuf::read();
    let (task, at) = (TaskId::from_uuid(Uuid::from_u128(1)), Micros(1_234_567));
    let conversation = ConversationId::from_uuid(Uuid::from_u128(2));
    let intent = IntentId::for_call(task, &AgentId::orchestrator(), "x");
    let row = DeadLetterRow {
        task,
        user: UserId::local(),
        conversation,
        title: "call Bob".to_owned(),
        priority: Priority::High,
        code: "model_unavailable".to_owned(),
        text: "It failed.".to_owned(),
        detail: "the model is away".to_owned(),
        dead_letter: DeadLetter { tried: vec!["one".to_owned()], since: at, retry_at: Some(at) },
        state: DeadLetterState::Retried,
        retried_by: Some(task),
        failed_at: at,
        changed_at: at,
    };
    let message = dead_letters::wire(row);
    assert_eq!(message.since_us, 1_234_567, "gRPC has times in full, HTTP in milliseconds");
    assert_full(&protobuf, "DeadLetter", &message);
    let row = OperationRow {
        id: OperationId::for_intent(intent),
        user: UserId::local(),
        conversation,
        task,
        intent,
        skill: "test.put".to_owned(),
        opened_at: at,
        expires_at: at,
        closed_by: None,
        closed_at: Some(at),
    };
    let closed = operations::wire(OperationRow { closed_by: Some(task), ..row.clone() });
    let operation = v1::Operation { closed_by: closed.closed_by, ..operations::wire(row) };
    assert_full(&protobuf, "Operation", &operation);
    let schedule = Schedule {
        id: Uuid::from_u128(3),
        text: "digest".to_owned(),
        when: "every weekday at 8".to_owned(),
        timezone: "UTC".to_owned(),
        conversation,
        reply_to: Some(Address { channel: "hook".to_owned(), to: "ann".to_owned() }),
        due_at: Some(at),
        claimed: None,
        paused: Some("by its user".to_owned()),
        runs: 1,
        missed: 2,
        skipped: 3,
        last_at: Some(at),
        last_task: Some(task),
        file: Some("digest".to_owned()),
    };
    let schedule = schedules::message_of(NumberedSchedule { number: 1, schedule, created_at: at });
    assert_full(&protobuf, "Schedule", &schedule);
    let reminder = Reminder {
        id: Uuid::from_u128(3),
        conversation,
        task,
        timezone: "UTC".to_owned(),
        claimed: None,
        reminded_at: None,
    };
    let due = Some("2026-02-18T13:00".to_owned());
    let (title, origins) = ("stretch".to_owned(), Vec::new());
    let todo = RemindedTodo { number: 1, title, due, remind_at: Some(at), reminder, origins };
    assert_full(&protobuf, "Reminder", &reminders::message_of(todo));
}
