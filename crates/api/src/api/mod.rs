//! The part that HTTP and gRPC share: the handle to the kernel, limits, the rules for incoming messages, the feed of every
//! stream, and the history of a conversation. It depends on neither HTTP nor gRPC.

mod attempts;
mod board;
mod feed;
mod history;
mod intake;
mod limits;
mod live;
mod log_level;
mod notices;
pub mod page;
mod queue;
mod settings;
mod shown;
mod slots;
mod tree;
mod warnings;

use std::sync::Arc;

use annie_actors::Kernel;
use annie_chaos::Chaos;
use annie_core::time::Micros;
use annie_mcp::McpSource;
use annie_skillkit::Router;
pub(crate) use attempts::{Attempts, Fingerprint};
pub(crate) use board::{Board, Minute, Overview, Summary};
pub(crate) use feed::{Feed, FeedItem, FeedOptions};
pub(crate) use history::{AgentLine, AgentStatus, History, HistoryMessage, SkillLine, history};
pub use intake::check_key;
pub(crate) use intake::{ConversationRef, Message, MessageOptions, submission};
pub use limits::ApiLimits;
pub(crate) use live::{Hello, LiveFeed, LiveItem, LiveOptions, Topic, TreeDiff, TreeFilter};
pub use log_level::{LogControl, LogLevel};
use metrics_exporter_prometheus::PrometheusHandle;
pub(crate) use notices::{NoticeFeed, NoticeItem};
pub(crate) use queue::QueueView;
pub use settings::Setting;
pub use shown::{is_cut_off, read_event, shown_event};
pub(crate) use slots::{Slot, Slots};
use tokio::sync::{Semaphore, watch};
use tonic_health::{ServingStatus, server::HealthReporter};
pub(crate) use tree::{TreePage, actor_path};
pub use warnings::{Feature, Warning};

use crate::{
    auth::{Auth, Caller, Rates},
    error::ApiError,
    folder::{NotesProblem, NotesWatch},
    grpc,
};

/// The version that the front ends report.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The state of every handler. Cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// The kernel.
    pub kernel: Kernel,
    /// Authentication and the table of API keys.
    pub auth: Arc<Auth>,
    /// The limits of the front ends.
    pub limits: Arc<ApiLimits>,
    /// The metrics recorder; without it `/metrics` reports that nothing is recorded.
    pub metrics: Option<PrometheusHandle>,
    /// The fault injection, if this server was started with it.
    pub chaos: Option<Chaos>,
    /// The state of the notes folder, if this process keeps notes in a folder.
    pub notes: Option<Arc<NotesWatch>>,
    /// The sources of the skills, if the status reports their problems.
    pub skills: Option<Arc<Router>>,
    /// The MCP servers whose tools are skills.
    pub mcp: Arc<[Arc<McpSource>]>,
    /// The settings with which this server runs.
    pub settings: Arc<[Setting]>,
    /// The log of the process, whose level operators may set.
    pub log: Option<Arc<dyn LogControl>>,
    /// Whether the kernel accepts no more messages when this server stops.
    pub(crate) drains_kernel: bool,
    pub(crate) shared: Arc<Shared>,
}

/// State that the front ends of one server share.
pub(crate) struct Shared {
    pub started_at: Micros,
    pub slots: Slots,
    pub rates: Rates,
    /// Rates of wrong keys, by the network that they come from.
    pub wrong_keys: Rates,
    pub requests: Arc<Semaphore>,
    pub attempts: Attempts,
    pub board: Board,
    pub health: HealthReporter,
    closing: watch::Sender<bool>,
}

impl AppState {
    /// The state of a server that starts now.
    #[must_use]
    pub fn new(kernel: Kernel, auth: Arc<Auth>, limits: ApiLimits, metrics: Option<PrometheusHandle>) -> Self {
        let shared = Arc::new(Shared::new(kernel.now(), &limits));
        let limits = Arc::new(limits);
        let mcp: Arc<[Arc<McpSource>]> = Arc::new([]);
        let settings: Arc<[Setting]> = Arc::new([]);
        Self {
            kernel,
            auth,
            limits,
            metrics,
            chaos: None,
            notes: None,
            skills: None,
            mcp,
            settings,
            log: None,
            drains_kernel: true,
            shared,
        }
    }

    /// The same front ends for the admin plane. Requests to the other server take no place from it, and its end does not stop the
    /// kernel.
    #[must_use]
    pub fn of_admin_plane(self) -> Self {
        let shared = Arc::new(Shared::new(self.shared.started_at, &self.limits));
        Self { drains_kernel: false, shared, ..self }
    }

    /// Adds fault injection.
    #[must_use]
    pub fn with_chaos(self, chaos: Option<Chaos>) -> Self {
        Self { chaos, ..self }
    }

    /// Adds the state of the notes folder, which the status reports.
    #[must_use]
    pub fn with_notes(self, notes: Arc<NotesWatch>) -> Self {
        Self { notes: Some(notes), ..self }
    }

    /// Adds the sources of the skills, whose problems the status reports.
    #[must_use]
    pub fn with_skills(self, skills: Arc<Router>) -> Self {
        Self { skills: Some(skills), ..self }
    }

    /// Adds the MCP servers, which the front ends list.
    #[must_use]
    pub fn with_mcp(self, mcp: &[Arc<McpSource>]) -> Self {
        Self { mcp: mcp.into(), ..self }
    }

    /// Adds the settings, which operators see.
    #[must_use]
    pub fn with_settings(self, settings: Vec<Setting>) -> Self {
        Self { settings: settings.into(), ..self }
    }

    /// Adds the log of the process, whose level operators may set.
    #[must_use]
    pub fn with_log(self, log: Option<Arc<dyn LogControl>>) -> Self {
        Self { log, ..self }
    }

    /// Takes a slot for a stream or a waiting request of the caller.
    ///
    /// # Errors
    /// If all slots, or all slots of the caller, are in use.
    pub(crate) fn slot(&self, caller: &Caller) -> Result<Slot, ApiError> {
        self.shared.slots.take(&caller.user, &self.limits)
    }

    /// Features that do not work although messages are accepted. The texts contain paths of this machine, so they are only for
    /// callers that may read the server's status.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let skills = self.skills.as_ref().map_or_else(Vec::new, |skills| skills.problems());
        let skills = skills.into_iter().map(|text| Warning { about: Feature::Skills, text });
        let orders = self.kernel.orders().into_iter();
        let orders = orders.map(|order| Warning { about: Feature::Orders, text: order.sentence() });
        self.notes_warning().into_iter().chain(skills).chain(orders).collect()
    }

    /// The warning about the notes skills, if they do not work.
    pub(crate) fn notes_warning(&self) -> Option<Warning> {
        let NotesProblem { what, fix } = self.notes.as_ref()?.problem()?;
        Some(Warning { about: Feature::Notes, text: format!("{what}; {fix}") })
    }
}

impl Shared {
    fn new(started_at: Micros, limits: &ApiLimits) -> Self {
        Self {
            started_at,
            slots: Slots::default(),
            rates: Rates::default(),
            wrong_keys: Rates::default(),
            requests: Arc::new(Semaphore::new(limits.requests_max.clamp(1, Semaphore::MAX_PERMITS))),
            attempts: Attempts::default(),
            board: Board::default(),
            health: HealthReporter::new(),
            closing: watch::channel(false).0,
        }
    }

    /// Ends every stream, and stops accepting messages if a kernel is given.
    pub async fn close(&self, kernel: Option<&Kernel>) {
        for service in grpc::SERVICES {
            self.health.set_service_status(service, ServingStatus::NotServing).await;
        }
        kernel.into_iter().for_each(Kernel::drain);
        self.closing.send_replace(true);
    }

    /// Whether the server is stopping and accepts nothing new.
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Whether the server is stopping, as a value that can be awaited.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }
}
