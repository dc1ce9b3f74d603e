//! Rules for documents, for every store: the keys and the search text of a body, and the effect of a decision.

use annie_core::{
    ids::UserId,
    ports::{
        Document, DocumentChange, Find, NUMBER_KEYS_MAX, Namespace, StoreError, StoreErrorKind, TEXT_KEYS_MAX,
        WriteKind, Written,
    },
    projection::text_sha256,
    time::Micros,
};
use serde_json::Value;

const WHAT: &str = "writing a document";
/// The longest name of a namespace, in bytes.
const NAME_BYTES_MAX: usize = 40;

/// What a store keeps of a body beside the body.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Keys {
    pub(crate) texts: [Option<String>; TEXT_KEYS_MAX],
    pub(crate) numbers: [Option<f64>; NUMBER_KEYS_MAX],
    pub(crate) tags: Vec<String>,
    /// The contents in lower case. Folded here, because what a database folds depends on its version and locale.
    pub(crate) haystack: String,
    /// The text of the word index; empty if the document is not in it.
    pub(crate) words: String,
}

/// The keys of a body, as its namespace declares them.
pub(crate) fn keys_of(namespace: &Namespace, body: &Value) -> Result<Keys, StoreError> {
    check(namespace)?;
    if !body.is_object() {
        return Err(internal(format!("a document of `{}` is no JSON object", namespace.name)));
    }
    let wrong = |field: &str, wanted: &str| internal(format!("`{field}` of `{}` is {wanted}", namespace.name));
    let field = |name: &str| body.get(name).filter(|value| !value.is_null());
    let mut keys = Keys::default();
    for (key, name) in keys.texts.iter_mut().zip(namespace.texts) {
        let text = field(name).map(|value| value.as_str().ok_or_else(|| wrong(name, "no text"))).transpose()?;
        *key = text.map(str::to_owned);
    }
    for (key, name) in keys.numbers.iter_mut().zip(namespace.numbers) {
        *key = field(name).map(|value| value.as_f64().ok_or_else(|| wrong(name, "no number"))).transpose()?;
    }
    let texts = |names: &[&str]| -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for name in names {
            found.extend(texts_of(field(name)).ok_or_else(|| wrong(name, "neither a text nor a list of texts"))?);
        }
        Ok(found)
    };
    if !namespace.tags.is_empty() {
        keys.tags = texts(&[namespace.tags])?;
    }
    keys.haystack = texts(namespace.contents)?.join("\n").to_lowercase();
    keys.words = texts(namespace.words)?.join("\n");
    Ok(keys)
}

fn check(namespace: &Namespace) -> Result<(), StoreError> {
    let name = namespace.name;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !is_plain {
        return Err(internal(format!("`{name}` is no namespace: 1 to {NAME_BYTES_MAX} lower-case letters and digits")));
    }
    if namespace.texts.len() > TEXT_KEYS_MAX || namespace.numbers.len() > NUMBER_KEYS_MAX {
        let what = format!("`{name}` has more than {TEXT_KEYS_MAX} text keys or {NUMBER_KEYS_MAX} number keys");
        return Err(internal(what));
    }
    Ok(())
}

/// A text, or the texts of a list; `None` for any other value.
fn texts_of(value: Option<&Value>) -> Option<Vec<String>> {
    match value {
        None => Some(Vec::new()),
        Some(Value::String(text)) => Some(vec![text.clone()]),
        Some(Value::Array(list)) => list.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

/// A time as a number key has it. Times until the year 2255 are exact.
pub(crate) const fn due_until(until: Micros) -> f64 {
    until.0 as f64
}

/// The words of a query, all of which a haystack must contain.
pub(crate) fn needles(find: &Find) -> Vec<String> {
    match find {
        Find::Containing(text) => text.split_whitespace().map(str::to_lowercase).collect(),
        Find::All | Find::AnyWord(_) => Vec::new(),
    }
}

/// A user's documents of a namespace as one word of the full-text index, so that a search reads only their part of it.
pub(crate) fn owner_word(user: &UserId, namespace: &Namespace) -> String {
    let hash = text_sha256(user.as_str());
    hash[..8].iter().fold(String::from("u"), |word, byte| format!("{word}{byte:02x}")) + namespace.name
}

/// A decision as its effect on the table.
#[derive(Debug)]
pub(crate) enum Effect {
    None,
    Insert(Keys),
    Replace(Keys),
    Archive,
    Restore,
}

/// A decision with the result of its write.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) effect: Effect,
    /// What a repeated intent is answered with: the document, and what happened to it.
    pub(crate) document: Option<Document>,
    pub(crate) kind: WriteKind,
}

impl Decided {
    pub(crate) fn written(self) -> Written {
        Written { kind: self.kind, document: self.document }
    }
}

/// The effect of a decision; `next` is the number of a new document.
pub(crate) fn decided(
    namespace: &Namespace,
    change: DocumentChange,
    seen: &[Document],
    next: u64,
    at: Micros,
) -> Result<Decided, StoreError> {
    let old = |number: u64| {
        let found = seen.iter().find(|document| document.number == number).cloned();
        found.ok_or_else(|| internal(format!("the write has not seen document {number} of `{}`", namespace.name)))
    };
    Ok(match change {
        DocumentChange::Keep => Decided { effect: Effect::None, document: None, kind: WriteKind::Kept },
        DocumentChange::Insert(body) => {
            let keys = keys_of(namespace, &body)?;
            let document = Document { number: next, body, created_at: at, updated_at: at, accessed_at: None };
            Decided { effect: Effect::Insert(keys), document: Some(document), kind: WriteKind::Inserted }
        }
        DocumentChange::Replace { number, body } => {
            let keys = keys_of(namespace, &body)?;
            let document = Document { body, updated_at: at, ..old(number)? };
            Decided { effect: Effect::Replace(keys), document: Some(document), kind: WriteKind::Replaced }
        }
        DocumentChange::Archive(number) => {
            Decided { effect: Effect::Archive, document: Some(old(number)?), kind: WriteKind::Archived }
        }
        DocumentChange::Restore(number) => {
            let document = Document { updated_at: at, ..old(number)? };
            Decided { effect: Effect::Restore, document: Some(document), kind: WriteKind::Replaced }
        }
    })
}

/// The error for a wrong use of the port.
pub(crate) fn internal(detail: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Internal, what: WHAT, detail }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    static PAPERS: Namespace = Namespace {
        texts: &["shelf", "state"],
        numbers: &["pages"],
        tags: "tags",
        contents: &["title", "tags"],
        words: &["title", "notes"],
        ..Namespace::named("papers")
    };

    #[test]
    fn keys_are_the_declared_fields_of_a_body() {
        let body = json!({"title": "GRÜSSE", "shelf": "b", "pages": 3, "tags": ["X", "y"], "notes": ["one", "two"]});
        let keys = keys_of(&PAPERS, &body).unwrap();
        let wanted = Keys {
            texts: [Some("b".to_owned()), None, None],
            numbers: [Some(3.0), None],
            tags: vec!["X".to_owned(), "y".to_owned()],
            haystack: "grüsse\nx\ny".to_owned(),
            words: "GRÜSSE\none\ntwo".to_owned(),
        };
        assert_eq!(keys, wanted);
        assert_eq!(keys_of(&PAPERS, &json!({"shelf": null})).unwrap(), Keys::default());
    }

    #[test]
    fn keys_of_a_wrong_body_or_namespace_are_an_error_that_names_it() {
        let reason = |namespace: &Namespace, body: Value| keys_of(namespace, &body).unwrap_err().detail;
        assert!(reason(&PAPERS, json!([])).contains("a document of `papers` is no JSON object"));
        assert!(reason(&PAPERS, json!({"shelf": 1})).contains("`shelf` of `papers` is no text"));
        assert!(reason(&PAPERS, json!({"pages": "1"})).contains("`pages` of `papers` is no number"));
        assert!(reason(&PAPERS, json!({"tags": [1]})).contains("`tags` of `papers` is neither"));
        for name in ["", "Papers", "my_papers", &*"x".repeat(41)] {
            let named = Namespace { name: name.to_owned().leak(), ..PAPERS };
            assert!(reason(&named, json!({})).contains("is no namespace"), "{name}");
        }
        let many = Namespace { texts: &["a", "b", "c", "d"], ..PAPERS };
        assert!(reason(&many, json!({})).contains("more than 3 text keys"));
    }

    #[test]
    fn decision_about_a_document_that_was_not_seen_is_an_error() {
        let change = DocumentChange::Archive(7);
        let error = decided(&PAPERS, change, &[], 1, Micros(1)).unwrap_err();
        assert!(error.detail.contains("has not seen document 7"), "{error}");
    }
}
