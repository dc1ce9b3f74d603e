//! Approvals of skill files that a conversation wrote (ADR 0050). Such a file is run only if a person approved exactly its
//! present content, unless it is a prompt skill, which neither executes nor reaches out. The approvals are documents of the
//! installation's user, whose folder the skill files are in.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use annie_core::{
    ids::{AgentId, ConversationId, IntentId, TaskId, UserId},
    ports::{
        Decide, Document, DocumentChange, DocumentQuery, DocumentWrite, Documents, Namespace, Seen, StoreError,
        StoreErrorKind,
    },
    time::Micros,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    error::SkillError,
    files::{Built, Entry, Kind, Script, hash_of},
    runner::{Tools, run_blocking},
};

/// The decisions about skill files, one document for each skill. Stored documents have these fields: an old one must stay
/// readable.
static DECISIONS: Namespace = Namespace { texts: &["name"], ..Namespace::named("skillapprovals") };
/// Decisions that a list reads, at most: one for each skill.
const DECISIONS_MAX: u32 = 1_000;
/// Size limit for one file that a script names, in bytes.
const SCRIPT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The last decision about one skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Decision {
    name: String,
    /// The content that was approved, or whose approval was withdrawn.
    hash: String,
    approved: bool,
    by: String,
    at: Micros,
}

impl Decision {
    fn of(document: &Document) -> Result<Self, StoreError> {
        Self::deserialize(&document.body).map_err(|error| StoreError {
            kind: StoreErrorKind::Corrupt,
            what: "reading the approval of a skill",
            detail: error.to_string(),
        })
    }
}

/// Whether a skill file of a conversation may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalState {
    /// It is a prompt skill, which needs no approval.
    NotNeeded,
    /// A person has not approved its present content.
    Awaiting,
    /// A person approved its present content.
    Approved,
}

impl ApprovalState {
    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotNeeded => "not_needed",
            Self::Awaiting => "awaiting_approval",
            Self::Approved => "approved",
        }
    }
}

/// A skill whose file a conversation wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltSkill {
    /// The name of the skill.
    pub name: String,
    /// `prompt`, `request` or `script`.
    pub kind: &'static str,
    /// The path of the file below the data folder.
    pub source: String,
    /// The user in whose conversation the file was written.
    pub by: UserId,
    /// That conversation.
    pub conversation: ConversationId,
    /// The task that wrote it.
    pub task: TaskId,
    /// When it was written.
    pub at: Micros,
    /// The SHA-256 of the present content: the text, and the files that a script names.
    pub hash: String,
    /// The text of the file, or of the program behind it, as a person must see it before the approval.
    pub text: String,
    /// Whether it may run.
    pub state: ApprovalState,
    /// Who decided last, if there is a decision.
    pub decided_by: Option<String>,
    /// When that was.
    pub decided_at: Option<Micros>,
}

/// Why a decision about a skill was not made.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// The user is not the one whose folder the skill files are in.
    #[error("only {0}, whose skills these are, decides about them")]
    NotTheOwner(UserId),
    /// No skill of this name was written by a conversation.
    #[error("no conversation has written a skill `{0}`")]
    Unknown(String),
    /// A prompt skill.
    #[error("`{0}` is a prompt skill, which needs no approval")]
    NotNeeded(String),
    /// The content is not what the person saw.
    #[error(
        "the content of `{name}` has the hash {hash}, and not the one that was named: read it again with `annie skills show {name}`"
    )]
    Changed {
        /// The skill.
        name: String,
        /// The hash of its present content.
        hash: String,
    },
    /// The file or the store cannot be read.
    #[error(transparent)]
    Failed(#[from] SkillError),
}

/// Refuses a run of a file that a conversation wrote and no person approved with its present content. The one place where this is
/// decided: each run of a skill file comes through here.
pub(crate) async fn admit(tools: &Tools, entry: &Entry) -> Result<(), SkillError> {
    let Some(built) = entry.built.as_ref().filter(|_| needs_approval(&entry.kind)) else { return Ok(()) };
    let name = &entry.spec.name;
    let (hash, _) = content(entry, built).await?;
    let decision = decision(&*tools.documents, &tools.owner, name).await?;
    if decision.is_some_and(|decision| decision.approved && decision.hash == hash) {
        return Ok(());
    }
    Err(SkillError::AwaitsApproval(format!(
        "`{name}` was not run: a conversation wrote it, and a person must approve its present content first. The user can read \
         it with `annie skills show {name}` or on the page of skills, and approve it there or with `annie skills approve {name} \
         --hash {hash}`."
    )))
}

fn needs_approval(kind: &Kind) -> bool {
    match kind {
        // A handler does what the installation's own skill does.
        Kind::Prompt { .. } | Kind::Command(_) => false,
        Kind::Script(_) | Kind::Request(_) => true,
    }
}

fn kind_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Prompt { .. } => "prompt",
        Kind::Command(_) => "handler",
        Kind::Script(_) => "script",
        Kind::Request(_) => "request",
    }
}

/// The hash of what a run would execute, and the texts of the programs.
async fn content(entry: &Entry, built: &Built) -> Result<(String, String), SkillError> {
    match &entry.kind {
        Kind::Script(script) => {
            let (script, text_hash) = (Arc::clone(script), built.text_hash.clone());
            run_blocking(move || content_of_script(&script, &text_hash)).await
        }
        Kind::Command(_) | Kind::Request(_) | Kind::Prompt { .. } => Ok((built.text_hash.clone(), String::new())),
    }
}

fn content_of_script(script: &Script, text_hash: &str) -> Result<(String, String), SkillError> {
    let (mut parts, mut texts) = (text_hash.to_owned(), String::new());
    for item in &script.run {
        let (own, path) = match item.strip_prefix("./") {
            Some(own) => (own, script.folder.join(own)),
            None if is_in_skills(script, item) => (item.as_str(), PathBuf::from(item)),
            None => continue,
        };
        let failed = |error| SkillError::Setup { what: format!("cannot read {own}"), source: error };
        let found = std::fs::metadata(&path).map_err(failed)?;
        if !found.is_file() || found.len() > SCRIPT_BYTES_MAX {
            return Err(SkillError::TooLarge(format!("{own} is no file of at most {SCRIPT_BYTES_MAX} bytes.")));
        }
        let bytes = std::fs::read(&path).map_err(failed)?;
        parts.push_str(&format!("\n{own} {}", hash_of(&bytes)));
        texts.push_str(&format!("\n--- {own} ---\n{}", String::from_utf8_lossy(&bytes)));
    }
    Ok((hash_of(parts.as_bytes()), texts))
}

/// Whether an item names a file in the folder of skills by its absolute path: conversations may change files there.
fn is_in_skills(script: &Script, item: &str) -> bool {
    let root = script.folder.parent().and_then(|root| root.canonicalize().ok());
    let file = Path::new(item).is_absolute().then(|| Path::new(item).canonicalize().ok()).flatten();
    file.zip(root).is_some_and(|(file, root)| file.starts_with(root) && file.is_file())
}

fn of_skill(name: &str) -> DocumentQuery {
    DocumentQuery { texts: [vec![name.to_owned()], Vec::new(), Vec::new()], limit: 1, ..DocumentQuery::default() }
}

async fn decision(documents: &dyn Documents, owner: &UserId, name: &str) -> Result<Option<Decision>, StoreError> {
    let found = documents.find_documents(owner.clone(), &DECISIONS, of_skill(name)).await?;
    found.first().map(|hit| Decision::of(&hit.document)).transpose()
}

/// All skills that conversations wrote, by name, also those that the configuration does not allow at present.
pub(crate) async fn list(tools: &Tools) -> Result<Vec<BuiltSkill>, SkillError> {
    let query = DocumentQuery { limit: DECISIONS_MAX, ..DocumentQuery::default() };
    let found = tools.documents.find_documents(tools.owner.clone(), &DECISIONS, query).await?;
    let decisions: Vec<Decision> =
        found.iter().map(|hit| Decision::of(&hit.document)).collect::<Result<_, StoreError>>()?;
    let snapshot = tools.catalog.snapshot();
    let mut all = Vec::new();
    for entry in snapshot.built().values() {
        let Some(built) = &entry.built else { continue };
        // A program that cannot be read is no reason to hide the others. Its skill does not run.
        let (hash, programs) = content(entry, built).await.unwrap_or_else(|error| (String::new(), error.to_string()));
        let decision = decisions.iter().find(|decision| decision.name == entry.spec.name);
        all.push(shown(entry, built, hash, &programs, decision));
    }
    Ok(all)
}

fn shown(entry: &Entry, built: &Built, hash: String, programs: &str, decision: Option<&Decision>) -> BuiltSkill {
    let is_approved = decision.is_some_and(|decision| decision.approved && decision.hash == hash);
    let state = match (needs_approval(&entry.kind), is_approved) {
        (false, _) => ApprovalState::NotNeeded,
        (true, true) => ApprovalState::Approved,
        (true, false) => ApprovalState::Awaiting,
    };
    let (text, provenance) = (&built.text, &built.provenance);
    BuiltSkill {
        name: entry.spec.name.clone(),
        kind: kind_of(&entry.kind),
        source: entry.spec.source.clone(),
        by: provenance.by.clone(),
        conversation: provenance.conversation,
        task: provenance.task,
        at: provenance.at,
        hash,
        text: format!("{text}{programs}"),
        state,
        decided_by: decision.map(|decision| decision.by.clone()),
        decided_at: decision.map(|decision| decision.at),
    }
}

/// What a person decides about a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillDecision {
    /// The content with this hash may run.
    Approve {
        /// The hash of the content that the person saw.
        hash: String,
    },
    /// No content may run until the next approval.
    Withdraw,
}

/// Stores the decision of a person about a skill, and returns the skill as it then is.
pub(crate) async fn decide(
    tools: &Tools,
    user: &UserId,
    by: &str,
    name: &str,
    decision: SkillDecision,
    at: Micros,
) -> Result<BuiltSkill, DecisionError> {
    if *user != tools.owner {
        return Err(DecisionError::NotTheOwner(tools.owner.clone()));
    }
    let found = |all: Vec<BuiltSkill>| all.into_iter().find(|skill| skill.name == name);
    let unknown = || DecisionError::Unknown(name.to_owned());
    let skill = found(list(tools).await?).ok_or_else(unknown)?;
    if skill.state == ApprovalState::NotNeeded {
        return Err(DecisionError::NotNeeded(name.to_owned()));
    }
    let approved = match &decision {
        SkillDecision::Approve { hash } if *hash != skill.hash || hash.is_empty() => {
            return Err(DecisionError::Changed { name: name.to_owned(), hash: skill.hash });
        }
        SkillDecision::Approve { .. } => true,
        SkillDecision::Withdraw => false,
    };
    let new = Decision { name: name.to_owned(), hash: skill.hash, approved, by: by.to_owned(), at };
    write(tools, new).await.map_err(SkillError::from)?;
    found(list(tools).await?).ok_or_else(unknown)
}

async fn write(tools: &Tools, new: Decision) -> Result<(), StoreError> {
    let Decision { name, hash, approved, by, at } = new;
    // Each decision is one of its own: the time makes it different from an equal one of before.
    let key = format!("skill {name} {hash} {approved} {}", at.0);
    let task = TaskId::from_uuid(ConversationId::for_key(&tools.owner, &key).uuid());
    let intent = IntentId::for_call(task, &AgentId::orchestrator(), &key);
    let seen = Seen::Query(of_skill(&name));
    let body = json!({"name": name, "hash": hash, "approved": approved, "by": by, "at": at});
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        Ok(match seen.first() {
            Some(document) => DocumentChange::Replace { number: document.number, body: body.clone() },
            None => DocumentChange::Insert(body.clone()),
        })
    });
    let user = tools.owner.clone();
    tools.documents.write_document(DocumentWrite { user, namespace: &DECISIONS, intent, seen, decide, at }).await?;
    Ok(())
}
