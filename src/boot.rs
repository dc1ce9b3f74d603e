//! Assembles store, skills, models and kernel. Used by `serve` and by commands that run the kernel in their own process.

mod mcp;
mod node;
mod telemetry;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use annie_actors::{Backend, ErasureChore, Extensions, Kernel, KernelError, Parts, Profile, Profiles, SealChore};
pub(crate) use annie_api::folder::Mark;
pub use annie_api::folder::{NOTES_KEPT_AS, NotesFolder, NotesPace, NotesProblem, NotesWatch};
use annie_chaos::Chaos;
use annie_core::{
    hooks::Hooks,
    ids::{NodeId, UserId},
    ports::{
        Catalog, Chore, Clock, Documents, Egress, EgressError, Env, LogSubscriber, Model, Secrets, SkillSource,
        Storage, Store, StoreError,
    },
    route::{BackendFacts, RouteTableError},
    skill::SkillSet,
};
use annie_llm::{CommandConfig, CommandModel, LlmError, OpenAiModel, ProgramHook};
use annie_mcp::McpSource;
use annie_planner::OfflinePlanner;
use annie_skillkit::{
    EgressParts, FileCatalog, HttpEgress, MemoryDecay, Router, Runner, RunnerParts, SystemLookup, WorkflowFolder,
    context_sources,
};
use annie_store::{FolderLock, PostgresStore, SqliteStore};
use annie_telemetry::{Exporter, TelemetryError};
use tokio::sync::Semaphore;

use crate::{
    config::{BackendConfig, ChannelError, ClientConfig, Config, ConfigError, Environment, Loaded, Location},
    secrets::StoredSecrets,
    system,
};

/// Programs of hooks that run at a time. Sub-agents and users ask hooks in parallel, and each program is a process.
const HOOK_PROGRAMS_MAX: usize = 8;

/// The parts cannot be assembled.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A backend cannot be built.
    #[error(transparent)]
    Model(#[from] LlmError),
    /// A channel cannot be built.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The routing rules are not valid.
    #[error(transparent)]
    Routes(#[from] RouteTableError),
    /// The path of this executable cannot be determined. Programs are started through it.
    #[error("cannot tell where this program is: {0}")]
    Shim(#[source] std::io::Error),
    /// The data folder cannot be used.
    #[error("cannot use the data folder {}: {source}", folder.display())]
    Store {
        /// The data folder.
        folder: PathBuf,
        /// The error of the store.
        source: StoreError,
    },
    /// The configured PostgreSQL database cannot be used.
    #[error("cannot use the database {address}: {source}")]
    Database {
        /// The address without the password.
        address: String,
        /// The error of the store.
        source: StoreError,
    },
    /// The database is empty, but the mark of the data folder says that it was not.
    #[error("the database has no {missing}, and {} says that it had: it was lost, emptied or replaced", folder.display())]
    Emptied {
        /// The data folder with the mark.
        folder: PathBuf,
        /// What is missing.
        missing: &'static str,
    },
    /// The exporter of traces cannot be built.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The client of requests to other machines cannot be built.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// A folder of files that skills may use overlaps the data folder.
    #[error("files.folder {} and the data folder {} overlap, so skills could change the data of all users", path.display(), folder.display())]
    FilesInData {
        /// The folder of files.
        path: PathBuf,
        /// The data folder.
        folder: PathBuf,
    },
    /// The kernel does not start.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// The minimum time between two writes of the mark. A write of the mark costs two reads and one fsync, and no commit waits for
/// it. Therefore a loss of at most the last second of the log can go unnoticed.
const MARK_PAUSE: Duration = Duration::from_secs(1);
/// How long a stop waits for the database while it reads the data for the mark.
const MARK_WAIT: Duration = Duration::from_secs(1);

/// A running kernel and its parts.
pub struct Assembled {
    /// The kernel.
    pub kernel: Kernel,
    /// The skills of all sources.
    pub skills: Arc<Router>,
    /// The fault injection, if the configuration enables it.
    pub chaos: Option<Chaos>,
    /// The state of the notes folder.
    pub notes: Arc<NotesWatch>,
    /// The MCP servers whose tools are skills.
    pub mcp: Vec<Arc<McpSource>>,
    runner: Arc<Runner>,
    telemetry: Option<Arc<Exporter>>,
    /// The user of this machine, for whom the schedules of skill files run.
    user: UserId,
    folder: PathBuf,
    _lock: Option<FolderLock>,
}

/// The configured data folder.
///
/// # Errors
/// If no folder is configured and there is no home folder for the default.
pub fn data_folder(loaded: &Loaded) -> Result<PathBuf, ConfigError> {
    loaded.config.data.folder.clone().or_else(|| loaded.environment.data_folder()).ok_or_else(|| {
        let fix = "name one with --data, or set HOME";
        ConfigError::new(Location::Default, "`data.folder` is not set and there is no home folder", fix)
    })
}

/// Opens the configured store: SQLite in the data folder, which is created if missing, or a PostgreSQL database.
///
/// # Errors
/// If the folder or the database cannot be used, or another process uses the folder.
pub async fn open_store(
    config: &Config,
    environment: &Environment,
    folder: &Path,
) -> Result<Arc<dyn Storage>, BootError> {
    if let Some(address) = config.store.address(environment)? {
        let failed = |source| BootError::Database { address: address.to_string(), source };
        return Ok(Arc::new(PostgresStore::open(&address, config.store.postgres()).await.map_err(failed)?));
    }
    let failed = |source| BootError::Store { folder: folder.to_owned(), source };
    Ok(Arc::new(SqliteStore::open(folder, config.store.sqlite()).await.map_err(failed)?))
}

/// The lock of a data folder whose database is PostgreSQL: one process at a time may use the folder, because notes, skills and
/// the server's address are in it.
fn lock_beside(config: &Config, environment: &Environment, folder: &Path) -> Result<Option<FolderLock>, BootError> {
    // The SQLite store takes the lock itself.
    if config.store.address(environment)?.is_none() {
        return Ok(None);
    }
    let failed = |source| BootError::Store { folder: folder.to_owned(), source };
    FolderLock::take(folder).map(Some).map_err(failed)
}

/// The configured backends, or the offline planner if there are none.
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

/// A model and its own limit for a round in milliseconds, if it has one.
type Endpoint = (Arc<dyn Model>, Option<u64>);

/// How long a stopped program backend may take to exit, in milliseconds.
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

/// The configured hooks: rules, services, and programs that are started like those of backends.
fn hooks(config: &Config, environment: &Environment, clock: &Arc<dyn Clock>) -> Result<Hooks, BootError> {
    let mut outside = Vec::new();
    let slots = Arc::new(Semaphore::new(HOOK_PROGRAMS_MAX));
    for hook in &config.hook {
        if let Some(service) = hook.webhook(config.limits.message_bytes_max, environment, clock.clone())? {
            outside.push(hook.outside(Arc::new(service)));
            continue;
        }
        let Some(command) = hook.command(config.limits.message_bytes_max) else { continue };
        let shim = Some(std::env::current_exe().map_err(BootError::Shim)?);
        let lookup = |name: &str| environment.get(name).map(str::to_owned);
        let program = ProgramHook::new(CommandConfig { shim, ..command }, slots.clone(), lookup)?;
        outside.push(hook.outside(Arc::new(program)));
    }
    Ok(Hooks { inside: config.hooks(), outside, approval: config.approval_policy() })
}

/// Names and time zones of the users.
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

/// The catalogue of the skill files in a data folder. Skills that send requests to other machines, and some that start programs,
/// are listed only if the configuration allows them.
#[must_use]
pub fn catalog(config: &Config, folder: &Path) -> FileCatalog {
    allowed(config, FileCatalog::open(folder.join("skills")).building())
}

/// The catalogue with the skills that the configuration allows.
#[must_use]
pub fn allowed(config: &Config, catalog: FileCatalog) -> FileCatalog {
    let backends = config.facts().into_iter().map(|facts| facts.name);
    let catalog = catalog.knowing_backends(backends).running_programs(config.program_skills());
    let catalog = if config.egress.enabled { catalog.reaching_out() } else { catalog };
    let catalog = if config.file_rules().folders.is_empty() { catalog } else { catalog.with_folders() };
    if config.web_search.rules().is_some() { catalog.searching() } else { catalog }
}

/// The client of requests to other machines, if the configuration enables them.
///
/// # Errors
/// If the client cannot be built.
pub(crate) fn egress(config: &Config, secrets: Option<Arc<dyn Secrets>>) -> Result<Option<Arc<dyn Egress>>, BootError> {
    let Some(mut rules) = config.egress.rules() else { return Ok(None) };
    rules.grants.extend(config.web_search.grant());
    let (client, lookup) = (annie_llm::http_client, Arc::new(SystemLookup));
    let parts = EgressParts { rules, client, lookup, secrets };
    Ok(Some(Arc::new(HttpEgress::new(parts)?)))
}

/// Starts a kernel on a data folder. Work that was open in this folder is resumed.
///
/// # Errors
/// If a part is missing or does not start; then nothing is left running.
pub async fn assemble(loaded: &Loaded, folder: &Path) -> Result<Assembled, BootError> {
    assemble_with(loaded, folder, Vec::new()).await
}

/// Like [`assemble`], with these sources of skills in addition to the files.
///
/// # Errors
/// If a part is missing or does not start; then nothing is left running.
pub async fn assemble_with(
    loaded: &Loaded,
    folder: &Path,
    mut sources: Vec<Arc<dyn SkillSource>>,
) -> Result<Assembled, BootError> {
    let env = system::env();
    let Loaded { config, environment, .. } = loaded;
    let backends = backends(config, environment, &env)?;
    if let Some(path) = config.files_in_data(folder) {
        return Err(BootError::FilesInData { path: path.to_owned(), folder: folder.to_owned() });
    }
    let channels = config.channels(environment, &env.clock)?;
    let key = config.secrets.key(environment)?;
    let lock = lock_beside(config, environment, folder)?;
    let chaos = config.chaos.enabled.then(|| Chaos::new(env.clock.clone(), folder));
    let store = open_store(config, environment, folder).await?;
    check_mark(config, &*store, folder).await?;
    let store = if let Some(chaos) = &chaos { chaos.store(store) } else { store };
    let secrets: Arc<dyn Secrets> = Arc::new(StoredSecrets::new(store.clone(), key));
    let mcp = mcp::sources(config, environment, &secrets)?;
    sources.extend(mcp.iter().map(|source| Arc::clone(source) as Arc<dyn SkillSource>));
    let egress = egress(config, Some(secrets.clone()))?;
    let catalog = Arc::new(catalog(config, folder));
    let notes = notes_folder(config, &*store, &env, folder.join("notes")).await?;
    let own = (catalog, notes.is_home());
    let runner = Arc::new(runner(config, folder, own, store.clone(), (egress, secrets.clone()))?);
    let skills = Arc::new(Router::new(runner.clone(), sources));
    warn_of_idle_hooks(config, &skills.skills());
    let table = config.route_table(&config.facts())?;
    // With SQLite the lock of the folder takes the place of the node lease.
    let node = if store.is_shared() { node::node_of(folder, &env) } else { NodeId::from_uuid(env.uuid()) };
    let hooks = hooks(config, environment, &env.clock)?;
    let telemetry = telemetry::exporter(config, store.clone(), env.clock.clone(), secrets, node)?;
    let subscribers = telemetry.iter().map(|exporter| Arc::clone(exporter) as Arc<dyn LogSubscriber>).collect();
    let mut parts = Parts {
        extensions: Extensions { channels, chores: chores(config, &runner, &store), subscribers },
        env,
        node,
        context_sources: context_sources(store.clone(), MemoryDecay::of_days(config.memory.halved_after_days)),
        documents: store.clone(),
        store,
        catalog: skills.clone(),
        runner: skills.clone(),
        workflows: Arc::new(WorkflowFolder::new(folder.join("workflows"), config.workflows.clone())),
        backends,
        profiles: profiles(config, environment),
        limits: config.kernel_limits(),
        routing: (table, config.routing.mode),
        hooks,
    };
    if let Some(chaos) = &chaos {
        parts.env = chaos.env(parts.env);
        parts.runner = chaos.runner(parts.runner);
        parts.catalog = chaos.catalog(parts.catalog);
        for backend in &mut parts.backends {
            backend.model = chaos.model(&backend.name, backend.model.clone());
        }
    }
    let notes = Arc::new(NotesWatch::of(notes, parts.env.clock.clone()));
    let kernel = Kernel::start(parts).await?;
    telemetry.iter().for_each(|exporter| telemetry::run(&kernel, exporter));
    let (user, folder) = (config.server.user.clone(), folder.to_owned());
    let assembled = Assembled { kernel, skills, chaos, notes, mcp, runner, telemetry, user, folder, _lock: lock };
    assembled.keep_mark();
    Ok(assembled)
}

/// The runner of the skills of files. It has the catalogue, and knows whether the notes are in the data folder.
fn runner(
    config: &Config,
    folder: &Path,
    (catalog, are_notes_here): (Arc<FileCatalog>, bool),
    documents: Arc<dyn Documents>,
    (egress, secrets): (Option<Arc<dyn Egress>>, Arc<dyn Secrets>),
) -> Result<Runner, BootError> {
    Ok(Runner::new(RunnerParts {
        memory_decay: MemoryDecay::of_days(config.memory.halved_after_days),
        documents,
        catalog,
        notes_folder: folder.join("notes"),
        are_notes_here,
        respects_robots: config.egress.robots,
        files: config.file_rules(),
        search: config.web_search.rules(),
        owner: config.server.user.clone(),
        untrusted: config.approval_policy().untrusted,
        egress,
        secrets: Some(secrets),
        programs: Some(config.program_rules(folder, std::env::current_exe().map_err(BootError::Shim)?)),
    }))
}

/// The work outside of the kernel that becomes due at times of its own.
fn chores(config: &Config, runner: &Runner, store: &Arc<dyn Storage>) -> Vec<Arc<dyn Chore>> {
    let erasure = ErasureChore::chore(store.clone(), store.clone(), config.retention.rules());
    let mut chores = vec![runner.purge(), erasure];
    if config.audit.seal_ms > 0 {
        chores.push(SealChore::chore(store.clone(), store.clone(), config.audit.seal_ms));
    }
    chores
}

/// Follows the changes of each source of skills by a resource of the actor tree, `skills:NAME`, which is restarted if it fails.
/// The resource `skills:files` fails if the skill folder was removed or its watcher failed. The resource `skill_schedules` makes the
/// schedules of `user` those that the files ask for.
pub fn watch_skills(kernel: &Kernel, skills: &Router, user: &UserId) {
    for source in skills.sources() {
        let (name, source) = (format!("skills:{}", source.name()), source.clone());
        let follow = move || {
            let source = source.clone();
            async move { source.changes().await }
        };
        kernel.run_resource(&name, Arc::new(move || Box::pin(follow())));
    }
    let (own, files, user) = (kernel.clone(), skills.files(), user.clone());
    let follow = move || {
        let (kernel, files, user) = (own.clone(), files.clone(), user.clone());
        let mut versions = files.versions();
        async move {
            loop {
                versions.mark_unchanged();
                kernel.follow_file_schedules(&user, &files.schedules()).await.map_err(|error| error.to_string())?;
                if versions.changed().await.is_err() {
                    return Ok(());
                }
            }
        }
    };
    kernel.run_resource("skill_schedules", Arc::new(move || Box::pin(follow())));
}

/// Logs the patterns of hooks that match no skill. Such a hook never applies, and a hook that protects must not do so silently.
fn warn_of_idle_hooks(config: &Config, skills: &SkillSet) {
    let names: Vec<String> = skills.iter().map(|skill| skill.name.clone()).collect();
    for (hook, pattern) in config.idle_hooks(&names) {
        tracing::warn!(hook, pattern, "no skill matches this pattern of a hook");
    }
}

/// The notes folder. If the notes skills cannot use it, the log says how to fix that.
async fn notes_folder(config: &Config, store: &dyn Store, env: &Env, path: PathBuf) -> Result<NotesFolder, BootError> {
    let failed = |source| BootError::Store { folder: path.clone(), source };
    let found = NotesFolder::find(config.data.separate_notes, store, env.entropy.as_ref(), path.clone());
    let found = found.await.map_err(failed)?;
    if let Some(NotesProblem { what, fix }) = found.problem() {
        tracing::warn!(fix, "{what}");
    }
    Ok(found)
}

/// Refuses a database that has lost its data: without its keys the server would accept every caller on this machine.
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

/// Writes the mark on a blocking thread, so that no actor waits for the disk.
async fn advance_mark(mark: Mark, folder: &Path) {
    let folder = folder.to_owned();
    // Fails only if writing panicked; then the mark is unchanged.
    let _ = tokio::task::spawn_blocking(move || mark.advance(&folder)).await;
}

impl Assembled {
    /// Follows the changes of all skills, such as those of their files.
    pub fn watch_skills(&self) {
        watch_skills(&self.kernel, &self.skills, &self.user);
    }

    /// Keeps the mark behind the log, so that a lost end of the log is noticed after a crash. The mark is written after a
    /// commit, at most once per [`MARK_PAUSE`]. Without commits this task waits.
    fn keep_mark(&self) {
        let (kernel, folder) = (self.kernel.clone(), self.folder.clone());
        let follow = move || {
            let (kernel, folder) = (kernel.clone(), folder.clone());
            let mut commits = kernel.commits();
            // An earlier run may have ended between a commit and its mark.
            commits.mark_changed();
            async move {
                while commits.changed().await.is_ok() {
                    match Mark::of(kernel.store().as_ref()).await {
                        Ok(found) => advance_mark(found, &folder).await,
                        // The store is unavailable: the last commits are still to be marked.
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

    /// Stops in order: open work is resumed after the next start.
    pub async fn stop(self) {
        self.kernel.drain();
        self.runner.settle().await;
        if let Some(exporter) = &self.telemetry {
            exporter.settle(telemetry::SETTLE_MS_MAX).await;
        }
        // If the database is unavailable now, the mark written at the start remains valid.
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
    fn profiles_use_configured_name_and_zone_else_system_zone() {
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
    fn backends_are_the_planner_only_without_configured_backend() {
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
    fn data_folder_is_configured_one_else_below_home() {
        let named = loaded(&[("ANNIE__DATA__FOLDER", "/srv/annie"), ("HOME", "/home/ann")]);
        assert_eq!(data_folder(&named).unwrap(), Path::new("/srv/annie"));
        let own = loaded(&[("HOME", "/home/ann")]);
        assert_eq!(data_folder(&own).unwrap(), Path::new("/home/ann/.local/share/annie"));
        assert!(data_folder(&loaded(&[])).unwrap_err().fix.contains("--data"));
    }
}
