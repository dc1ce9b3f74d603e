//! What the doors share: the handle to the kernel, limits, the rules of a message that comes in, the feed that every stream
//! is made of, and the history of a conversation. Knows neither HTTP nor gRPC.

mod attempts;
mod feed;
mod history;
mod intake;
mod jobs;
mod letters;
mod limits;
mod notices;
mod operate;
pub(crate) mod page;
mod shown;
mod slots;
mod tree;

use std::sync::Arc;

use annie_actors::Kernel;
use annie_core::time::Micros;
pub(crate) use attempts::{Attempts, Fingerprint};
pub(crate) use feed::{Feed, FeedItem, FeedWish};
pub(crate) use history::{AgentLine, HistoryMessage, SkillLine, history};
pub(crate) use intake::{Message, Where, Wish, check_key, submission};
pub(crate) use jobs::{set_priority, status_of, told};
pub(crate) use letters::{LetterWish, scope_of};
pub use limits::DoorLimits;
use metrics_exporter_prometheus::PrometheusHandle;
pub(crate) use notices::{NoticeFeed, NoticeItem};
pub(crate) use operate::{
    BreakerLine, Target, hold_gate, list_breakers, operate_actor, release_gate, reset_breaker, resume_conversation,
    unknown_skill,
};
pub(crate) use shown::{is_cut_off, read_event, shown_event};
pub(crate) use slots::{Slot, Slots};
use tokio::sync::{Semaphore, watch};
use tonic_health::{ServingStatus, server::HealthReporter};
pub(crate) use tree::{TreePage, actor_path};

use crate::{
    auth::{Auth, Caller, Rates},
    boot::{NotesProblem, NotesWatch},
    chaos::Chaos,
    error::Fault,
    grpc,
};

/// The version that the doors name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What every handler is given. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// The kernel.
    pub kernel: Kernel,
    /// The keeper of the keys.
    pub auth: Arc<Auth>,
    /// The doors' numbers.
    pub limits: Arc<DoorLimits>,
    /// Where `/metrics` comes from; without it the route says that nothing is recorded.
    pub metrics: Option<PrometheusHandle>,
    /// Where faults are injected, if this server was started for that.
    pub chaos: Option<Chaos>,
    /// The state of the notes folder, if notes are kept in a folder of this process.
    pub notes: Option<Arc<NotesWatch>>,
    pub(crate) doors: Arc<Doors>,
}

/// What the doors of one server hold in common.
pub(crate) struct Doors {
    pub started_at: Micros,
    pub slots: Slots,
    pub rates: Rates,
    /// Wrong keys, by the network that they come from.
    pub wrong_keys: Rates,
    pub requests: Arc<Semaphore>,
    pub attempts: Attempts,
    pub health: HealthReporter,
    closing: watch::Sender<bool>,
}

impl AppState {
    /// The state of a server that starts now.
    #[must_use]
    pub fn new(kernel: Kernel, auth: Arc<Auth>, limits: DoorLimits, metrics: Option<PrometheusHandle>) -> Self {
        let doors = Doors {
            started_at: kernel.now(),
            slots: Slots::default(),
            rates: Rates::default(),
            wrong_keys: Rates::default(),
            requests: Arc::new(Semaphore::new(limits.requests_max.clamp(1, Semaphore::MAX_PERMITS))),
            attempts: Attempts::default(),
            health: HealthReporter::new(),
            closing: watch::channel(false).0,
        };
        Self { kernel, auth, limits: Arc::new(limits), metrics, chaos: None, notes: None, doors: Arc::new(doors) }
    }

    /// With a way to inject faults.
    #[must_use]
    pub fn with_chaos(self, chaos: Option<Chaos>) -> Self {
        Self { chaos, ..self }
    }

    /// With the state of the notes folder, which is reported with the server's.
    #[must_use]
    pub fn with_notes(self, notes: Arc<NotesWatch>) -> Self {
        Self { notes: Some(notes), ..self }
    }

    /// A place for a stream or a waiting request of the caller.
    ///
    /// # Errors
    /// If all places, or all of the caller's, are taken.
    pub(crate) fn slot(&self, caller: &Caller) -> Result<Slot, Fault> {
        self.doors.slots.take(&caller.user, &self.limits)
    }

    /// What does not work, though messages are taken. Names paths of this machine: for callers that may read its state.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let notes = self.notes.as_ref().and_then(|notes| notes.problem());
        notes.into_iter().map(|NotesProblem { what, fix }| format!("{what}; {fix}")).collect()
    }
}

impl Doors {
    /// Nothing new is taken from here on, and every stream is told to end.
    pub async fn close(&self, kernel: &Kernel) {
        for service in grpc::SERVICES {
            self.health.set_service_status(service, ServingStatus::NotServing).await;
        }
        kernel.drain();
        self.closing.send_replace(true);
    }

    /// Whether the server is stopping: nothing new is taken.
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Whether the server is stopping, and a way to wait for it.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}
