//! Puts the parts together: store, skills, models, kernel. The same for `serve` and for commands that run the kernel in
//! their own process.

mod mark;
mod node;
mod notes;
mod notes_watch;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use annie_actors::{Backend, Kernel, KernelError, Parts, Profile, Profiles};
use annie_core::{
    ids::NodeId,
    ports::{Env, Model, Store, StoreError},
    route::{BackendFacts, RouteTableError},
};
use annie_llm::{CommandConfig, CommandModel, LlmError, OpenAiModel};
use annie_planner::OfflinePlanner;
use annie_skillkit::{FileCatalog, Runner, RunnerParts};
use annie_store::{FolderLock, PostgresStore, SqliteStore};
pub(crate) use mark::Mark;
pub use notes::{KEPT_AS as NOTES_KEPT_AS, NotesFolder, NotesProblem};
pub use notes_watch::{NotesPace, NotesWatch};

use crate::{
    chaos::Chaos,
    config::{BackendConfig, ClientConfig, Config, ConfigError, Environment, Loaded, Place},
    system,
};

/// Why the parts do not come together.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The configuration does not allow it.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A backend cannot be built.
    #[error(transparent)]
    Model(#[from] LlmError),
    /// The rules by which a backend is chosen do not fit.
    #[error(transparent)]
    Routes(#[from] RouteTableError),
    /// This program does not know where it is, and programs that are backends start through it.
    #[error("cannot tell where this program is: {0}")]
    Shim(#[source] std::io::Error),
    /// The data folder cannot be used.
    #[error("cannot use the data folder {}: {source}", folder.display())]
    Store {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// The configured PostgreSQL database cannot be used.
    #[error("cannot use the database {address}: {source}")]
    Database {
        /// Which, without the password.
        address: String,
        /// Why.
        source: StoreError,
    },
    /// The database holds nothing, and the folder says that it held something.
    #[error("the database has no {missing}, and {} says that it had: it was lost, emptied or replaced", folder.display())]
    Emptied {
        /// Whose mark says so.
        folder: PathBuf,
        /// What is missing.
        missing: &'static str,
    },
    /// The kernel does not start.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// The least time between two writes of the folder's mark. The mark costs two reads and one fsync, which a commit itself need
/// not wait for: so at most the last second of the log can be lost without being noticed.
const MARK_PAUSE: Duration = Duration::from_secs(1);
/// How long a stop waits for the database to say what it holds.
const MARK_WAIT: Duration = Duration::from_secs(1);

/// A kernel that runs, and what it runs on.
pub struct Assembled {
    /// The kernel.
    pub kernel: Kernel,
    /// The skills.
    pub catalog: Arc<FileCatalog>,
    /// Where faults are injected, if the configuration says so.
    pub chaos: Option<Chaos>,
    /// The state of the notes folder.
    pub notes: Arc<NotesWatch>,
    runner: Arc<Runner>,
    folder: PathBuf,
    _lock: Option<FolderLock>,
}

/// The data folder that is meant.
///
/// # Errors
/// If none is named and there is no home folder to put it into.
pub fn data_folder(loaded: &Loaded) -> Result<PathBuf, ConfigError> {
    loaded.config.data.folder.clone().or_else(|| loaded.environment.data_folder()).ok_or_else(|| {
        let fix = "name one with --data, or set HOME";
        ConfigError::new(Place::Default, "`data.folder` is not set and there is no home folder", fix)
    })
}

/// Opens the configured store: the data folder's own, which is made if it is not there, or a PostgreSQL database.
///
/// # Errors
/// If the folder or the database cannot be used, or another process uses the folder's.
pub async fn open_store(
    config: &Config,
    environment: &Environment,
    folder: &Path,
) -> Result<Arc<dyn Store>, BootError> {
    if let Some(address) = config.store.address(environment)? {
        let failed = |source| BootError::Database { address: address.to_string(), source };
        return Ok(Arc::new(PostgresStore::open(&address, config.store.postgres()).await.map_err(failed)?));
    }
    let failed = |source| BootError::Store { folder: folder.to_owned(), source };
    Ok(Arc::new(SqliteStore::open(folder, config.store.sqlite()).await.map_err(failed)?))
}

/// The lock of a data folder whose database is elsewhere: notes, skills and the server's address are still one process's.
fn lock_beside(config: &Config, environment: &Environment, folder: &Path) -> Result<Option<FolderLock>, BootError> {
    // SQLite's store takes it by itself.
    if config.store.address(environment)?.is_none() {
        return Ok(None);
    }
    let failed = |source| BootError::Store { folder: folder.to_owned(), source };
    FolderLock::take(folder).map(Some).map_err(failed)
}

/// The backends as configured, or the planner.
///
/// # Errors
/// If a secret is missing or a client cannot be built.
pub fn backends(config: &Config, environment: &Environment, env: &Env) -> Result<Vec<Backend>, BootError> {
    let models: Vec<Endpoint> = if config.backend.is_empty() {
        vec![(Arc::new(OfflinePlanner::new()), None)]
    } else {
        config.backend.iter().map(|backend| model(backend, environment, env)).collect::<Result<_, _>>()?
    };
    let with = |(facts, (model, round_ms_max)): (BackendFacts, Endpoint)| Backend {
        name: facts.name.clone(),
        slots: facts.slots,
        facts,
        model,
        round_ms_max,
    };
    Ok(config.facts().into_iter().zip(models).map(with).collect())
}

/// A model, and how long its rounds may take where that is its own affair, in milliseconds.
type Endpoint = (Arc<dyn Model>, Option<u64>);

/// How long a program that was stopped may take to end, in milliseconds.
const PROGRAM_ENDS_MS_MAX: u64 = 10_000;

fn model(backend: &BackendConfig, environment: &Environment, env: &Env) -> Result<Endpoint, BootError> {
    Ok(match backend.ready(environment)? {
        ClientConfig::Model(model) => (Arc::new(OpenAiModel::new(model, env.entropy.clone())?), None),
        ClientConfig::Command(command) => {
            let shim = Some(std::env::current_exe().map_err(BootError::Shim)?);
            let command = CommandConfig { shim, ..command };
            let round_ms_max = command.run_ms_max.saturating_add(PROGRAM_ENDS_MS_MAX);
            let model = CommandModel::new(command, |name| environment.get(name).map(str::to_owned))?;
            (Arc::new(model), Some(round_ms_max))
        }
    })
}

/// How users are addressed.
#[must_use]
pub fn profiles(config: &Config, environment: &Environment) -> Profiles {
    let zone = config.timezone.clone().unwrap_or_else(|| environment.timezone());
    let by_user: BTreeMap<String, Profile> = config
        .user
        .iter()
        .map(|(id, person)| {
            let timezone = person.timezone.clone().unwrap_or_else(|| zone.clone());
            (id.clone(), Profile { name: person.name.clone(), timezone })
        })
        .collect();
    Profiles { by_user, default: Profile { name: String::new(), timezone: zone } }
}

/// Starts a kernel on a data folder. What was open there goes on.
///
/// # Errors
/// If a part is missing or does not start; then nothing is left running.
pub async fn assemble(loaded: &Loaded, folder: &Path) -> Result<Assembled, BootError> {
    let env = system::env();
    let Loaded { config, environment, .. } = loaded;
    let backends = backends(config, environment, &env)?;
    let lock = lock_beside(config, environment, folder)?;
    let chaos = config.chaos.enabled.then(|| Chaos::new(env.clock.clone(), folder));
    let store = open_store(config, environment, folder).await?;
    check_mark(config, store.as_ref(), folder).await?;
    let store = match &chaos {
        Some(chaos) => chaos.store(store),
        None => store,
    };
    let catalog = Arc::new(FileCatalog::open(folder.join("skills")));
    let notes = notes_folder(config, store.as_ref(), &env, folder.join("notes")).await?;
    let runner = Arc::new(Runner::new(RunnerParts {
        todos: store.clone(),
        memories: store.clone(),
        catalog: catalog.clone(),
        notes_folder: folder.join("notes"),
        are_notes_here: notes.is_home(),
    }));
    let table = config.route_table(&config.facts())?;
    // The lock of the folder is the lease where the database is in it.
    let node = if store.is_shared() { node::node_of(folder, &env) } else { NodeId::from_uuid(env.uuid()) };
    let mut parts = Parts {
        env,
        node,
        store,
        catalog: catalog.clone(),
        runner: runner.clone(),
        backends,
        profiles: profiles(config, environment),
        limits: config.kernel_limits(),
        routing: (table, config.routing.mode),
    };
    if let Some(chaos) = &chaos {
        chaos.around(&mut parts);
    }
    let notes = Arc::new(NotesWatch::of(notes, parts.env.clock.clone()));
    let kernel = Kernel::start(parts).await?;
    let assembled = Assembled { kernel, catalog, chaos, notes, runner, folder: folder.to_owned(), _lock: lock };
    assembled.keep_mark();
    Ok(assembled)
}

/// The folder of notes. If the notes skills may not work on it, the operator is told how to mend that.
async fn notes_folder(config: &Config, store: &dyn Store, env: &Env, path: PathBuf) -> Result<NotesFolder, BootError> {
    let failed = |source| BootError::Store { folder: path.clone(), source };
    let found = NotesFolder::find(config.data.separate_notes, store, env.entropy.as_ref(), path.clone());
    let found = found.await.map_err(failed)?;
    if let Some(NotesProblem { what, fix }) = found.problem() {
        tracing::warn!(fix, "{what}");
    }
    Ok(found)
}

/// Refuses a database that has lost what it held: without its keys the server would be open to everybody on this machine.
async fn check_mark(config: &Config, store: &dyn Store, folder: &Path) -> Result<(), BootError> {
    let failed = |source| BootError::Store { folder: folder.to_owned(), source };
    let found = Mark::of(store).await.map_err(failed)?;
    if let Some(missing) = Mark::read(folder).missing_in(found)
        && !config.data.accept_empty_database
    {
        store.close().await;
        return Err(BootError::Emptied { folder: folder.to_owned(), missing });
    }
    if let Some(until) = Mark::read(folder).lost_until(found) {
        tracing::error!(%until, "the end of the log is lost: events up to this time were stored here; see docs/operating.md");
    }
    found.write(folder);
    Ok(())
}

/// Writes the mark on a thread where waiting for the disk holds up no actor.
async fn advance_mark(mark: Mark, folder: &Path) {
    let folder = folder.to_owned();
    // Fails only if writing panicked, which leaves the mark as it was.
    let _ = tokio::task::spawn_blocking(move || mark.advance(&folder)).await;
}

impl Assembled {
    /// Reads skills again whenever their files change. The watch is a part of the tree: it begins again when the folder was
    /// removed or the watcher broke.
    pub fn watch_skills(&self) {
        let catalog = self.catalog.clone();
        self.kernel.run_resource(
            "skills",
            Arc::new(move || {
                let watch = catalog.clone().watch();
                Box::pin(async move { watch.await.map_err(|e| e.to_string()) })
            }),
        );
    }

    /// Moves the folder's mark behind the log, so that a lost end of the log is noticed after a crash. The mark is written
    /// after a commit, at most once in [`MARK_PAUSE`]; without commits this sleeps.
    fn keep_mark(&self) {
        let (kernel, folder) = (self.kernel.clone(), self.folder.clone());
        let follow = move || {
            let (kernel, folder) = (kernel.clone(), folder.clone());
            let mut commits = kernel.commits();
            // A run before this one may have ended between a commit and its mark.
            commits.mark_changed();
            async move {
                while commits.changed().await.is_ok() {
                    match Mark::of(kernel.store().as_ref()).await {
                        Ok(found) => advance_mark(found, &folder).await,
                        // The store is away: what it stored last is still to be marked.
                        Err(_) => commits.mark_changed(),
                    }
                    tokio::time::sleep(MARK_PAUSE).await;
                }
                Ok(())
            }
        };
        self.kernel.run_resource("mark", Arc::new(move || Box::pin(follow())));
    }

    /// Checks the notes folder in the background.
    pub fn watch_notes(&self) {
        let notes = self.notes.clone();
        let run = move || {
            let notes = notes.clone();
            async move { notes.run().await }
        };
        self.kernel.run_resource("notes", Arc::new(move || Box::pin(run())));
    }

    /// Ends in good order: what is open goes on after the next start.
    pub async fn stop(self) {
        self.kernel.drain();
        self.runner.settle().await;
        // A database that is away now said at the start what it holds.
        let found = tokio::time::timeout(MARK_WAIT, Mark::of(self.kernel.store().as_ref())).await;
        if let Ok(Ok(found)) = found {
            found.advance(&self.folder);
        }
        self.kernel.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use annie_core::ids::UserId;

    use super::*;
    use crate::config::{OFFLINE, Sources};

    fn loaded(variables: &[(&str, &str)]) -> Loaded {
        Sources { environment: Environment::of(variables), ..Sources::default() }.load().unwrap()
    }

    #[test]
    fn users_are_addressed_as_configured_and_others_in_this_machines_time() {
        let loaded = loaded(&[
            ("TZ", "Asia/Tokyo"),
            ("ANNIE__USER__ANN__NAME", "Ann"),
            ("ANNIE__USER__BOB__TIMEZONE", "Europe/Prague"),
        ]);
        let profiles = profiles(&loaded.config, &loaded.environment);
        let of = |user: &str| profiles.of(&UserId::new(user).unwrap()).clone();
        assert_eq!(of("ann"), Profile { name: "Ann".into(), timezone: "Asia/Tokyo".into() });
        assert_eq!(of("bob"), Profile { name: String::new(), timezone: "Europe/Prague".into() });
        assert_eq!(of("eve").timezone, "Asia/Tokyo");
        let general = Config { timezone: Some("Africa/Cairo".into()), ..loaded.config };
        assert_eq!(super::profiles(&general, &loaded.environment).default.timezone, "Africa/Cairo");
    }

    #[test]
    fn without_a_backend_the_planner_answers_and_with_one_it_does_not() {
        let env = system::env();
        let none = loaded(&[]);
        let planner = backends(&none.config, &none.environment, &env).unwrap();
        assert_eq!((planner.len(), planner[0].name.as_str(), planner[0].slots), (1, OFFLINE, 8));
        let one = loaded(&[
            ("ANNIE_MODEL", "m"),
            ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1"),
            ("ANNIE__BACKEND__0__SLOTS", "1"),
            ("ANNIE__BACKEND__0__NAME", "gpu"),
        ]);
        let real = backends(&one.config, &one.environment, &env).unwrap();
        assert_eq!((real.len(), real[0].name.as_str(), real[0].slots, real[0].model.id()), (1, "gpu", 1, "m"));
    }

    #[test]
    fn the_data_folder_is_the_named_one_or_the_users_own() {
        let named = loaded(&[("ANNIE__DATA__FOLDER", "/srv/annie"), ("HOME", "/home/ann")]);
        assert_eq!(data_folder(&named).unwrap(), Path::new("/srv/annie"));
        let own = loaded(&[("HOME", "/home/ann")]);
        assert_eq!(data_folder(&own).unwrap(), Path::new("/home/ann/.local/share/annie"));
        assert!(data_folder(&loaded(&[])).unwrap_err().fix.contains("--data"));
    }
}
