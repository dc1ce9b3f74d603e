//! Faults of the data store: PostgreSQL is killed, its connections are cut in the middle of a transfer, and a small disk
//! is filled.

use std::{
    fs::{OpenOptions, Permissions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use annie_testkit::postgres::{Options, Server};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::broadcast,
    task::JoinSet,
};

use super::pace::pause;

/// The byte limit while no cut is requested: far away.
const NEVER: i64 = i64::MAX / 2;

/// The parts of the data store that can fail.
#[derive(Default)]
pub struct Database {
    pub postgres: Option<Postgres>,
    pub disk: Option<SmallDisk>,
}

impl Database {
    pub async fn kill_and_start(&self) {
        let Some(server) = self.postgres.as_ref().map(|p| p.server.clone()) else { return };
        let done = tokio::task::spawn_blocking(move || {
            server.kill();
            server.start_again();
        });
        done.await.expect("PostgreSQL starts again");
    }

    /// Freezes PostgreSQL for a while: connections stay open, and no query is answered.
    pub async fn freeze(&self, hold: Duration) {
        let Some(server) = self.postgres.as_ref().map(|p| &p.server) else { return };
        server.pause();
        pause(hold).await;
        server.go_on();
    }

    /// Cuts every connection after so many more bytes: sent to the database, or for an odd number received from it.
    pub async fn cut_after(&self, bytes: i64) {
        let Some(cutter) = self.postgres.as_ref().map(|p| p.cutter.clone()) else { return };
        let mut cut = cutter.cut.subscribe();
        let way = if bytes % 2 == 0 { &cutter.to } else { &cutter.from };
        way.store(bytes, SeqCst);
        // Without traffic nothing is cut.
        let _ = tokio::time::timeout(Duration::from_secs(5), cut.recv()).await;
    }

    /// Fills the disk, and frees the space after a while.
    pub async fn fill(&self, hold: Duration) {
        let Some(disk) = &self.disk else { return };
        disk.fill();
        pause(hold).await;
        disk.free_space();
    }
}

/// A PostgreSQL server for this soak alone, behind a proxy.
pub struct Postgres {
    server: Arc<Server>,
    cutter: Arc<Cutter>,
    /// The address for Annie: that of the proxy.
    pub url: String,
}

impl Postgres {
    /// Returns nothing without a PostgreSQL installation, which is reported. The tables are on the small disk, if there
    /// is one. PostgreSQL's own log is not, because PostgreSQL stops when it cannot write that.
    pub async fn start(tasks: &mut JoinSet<()>, disk: Option<&SmallDisk>) -> Option<Self> {
        let server = Server::start(Options { fsync: true }).await?;
        let url = server.database().await;
        if let Some(disk) = disk {
            let folder = disk.folder_for_postgres();
            let name = url.split('?').next().and_then(|u| u.rsplit('/').next()).expect("a name").to_owned();
            let space = format!("CREATE TABLESPACE small LOCATION '{}'", folder.display());
            server.run_sql("postgres", &[&space, &format!("ALTER DATABASE {name} SET TABLESPACE small")]);
        }
        let url = server.tcp(&url);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        let at = listener.local_addr().expect("an address");
        let (before, path) = url.rsplit_once('/').expect("a path");
        let (credentials, target) = before.rsplit_once('@').expect("a host");
        let cutter = Arc::new(Cutter {
            to: AtomicI64::new(NEVER),
            from: AtomicI64::new(NEVER),
            cut: broadcast::channel(16).0,
            target: target.to_owned(),
        });
        tasks.spawn(serve(listener, cutter.clone()));
        let url = format!("{credentials}@{at}/{path}");
        Some(Self { server, cutter, url })
    }
}

/// When connections are cut.
struct Cutter {
    /// Bytes to the database until the cut.
    to: AtomicI64,
    /// Bytes from the database until the cut.
    from: AtomicI64,
    cut: broadcast::Sender<()>,
    target: String,
}

impl Cutter {
    /// How many bytes of this piece may still pass. If not all of them, the connections are cut.
    fn pass(&self, way: &AtomicI64, bytes: usize) -> usize {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let left = way.fetch_sub(bytes, SeqCst);
        if left >= bytes {
            return usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        way.store(NEVER, SeqCst);
        usize::try_from(left.max(0)).unwrap_or(0)
    }
}

async fn serve(listener: TcpListener, cutter: Arc<Cutter>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(client, cutter.clone()));
    }
}

async fn connection(client: TcpStream, cutter: Arc<Cutter>) {
    let mut cut = cutter.cut.subscribe();
    let Ok(server) = TcpStream::connect(&cutter.target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = cut.recv() => {}
        () = carry(from_client, to_server, &cutter, &cutter.to) => {}
        () = carry(from_server, to_client, &cutter, &cutter.from) => {}
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    cutter: &Cutter,
    way: &AtomicI64,
) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut piece).await {
        let allowed = cutter.pass(way, n);
        if to.write_all(piece.get(..allowed).unwrap_or_default()).await.is_err() {
            return;
        }
        if allowed < n {
            let _ = cutter.cut.send(());
            return;
        }
    }
}

/// A disk in memory that can be filled. Only root may mount one.
pub struct SmallDisk {
    pub folder: PathBuf,
}

impl SmallDisk {
    /// Returns nothing if it cannot be mounted.
    pub fn mount(folder: &Path, megabytes: u32) -> Option<Self> {
        std::fs::create_dir_all(folder).ok()?;
        let size = format!("size={megabytes}m,mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|out| out.status.success()).then(|| Self { folder: folder.to_owned() })
    }

    /// A folder on the disk, owned by the user as whom PostgreSQL runs.
    fn folder_for_postgres(&self) -> PathBuf {
        let folder = self.folder.join("postgres");
        std::fs::create_dir_all(&folder).expect("a folder");
        let _ = std::fs::set_permissions(&self.folder, Permissions::from_mode(0o711));
        let owned =
            |user: &str| Command::new("chown").arg(user).arg(&folder).output().is_ok_and(|out| out.status.success());
        assert!(owned("postgres") || owned("nobody"), "the folder can be given away");
        folder
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }

    pub fn fill(&self) {
        let Ok(mut file) = OpenOptions::new().create(true).append(true).open(self.ballast()) else { return };
        let piece = vec![0_u8; 64 * 1024];
        while file.write_all(&piece).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
    }

    pub fn free_space(&self) {
        let _ = std::fs::remove_file(self.ballast());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.free_space();
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).output();
    }
}
