//! What is done to the data's keeper: PostgreSQL is killed, its connections are cut in the middle of what they carry, and a
//! small disk is filled.

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

/// A cut that nobody ordered is far away.
const NEVER: i64 = i64::MAX / 2;

/// What can be done to the data's keeper.
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

    /// Freezes PostgreSQL for a while: connections stay open and nobody answers.
    pub async fn freeze(&self, hold: Duration) {
        let Some(server) = self.postgres.as_ref().map(|p| &p.server) else { return };
        server.pause();
        pause(hold).await;
        server.go_on();
    }

    /// Cuts every connection when so many more bytes have gone: to the database, or for an odd number from it.
    pub async fn cut_after(&self, bytes: i64) {
        let Some(cutter) = self.postgres.as_ref().map(|p| p.cutter.clone()) else { return };
        let mut cut = cutter.cut.subscribe();
        let way = if bytes % 2 == 0 { &cutter.to } else { &cutter.from };
        way.store(bytes, SeqCst);
        // Where nothing moves nothing is cut.
        let _ = tokio::time::timeout(Duration::from_secs(5), cut.recv()).await;
    }

    /// Fills the disk, and makes room again after a while.
    pub async fn fill(&self, hold: Duration) {
        let Some(disk) = &self.disk else { return };
        disk.fill();
        pause(hold).await;
        disk.make_room();
    }
}

/// A server of PostgreSQL of its own, behind a proxy.
pub struct Postgres {
    server: Arc<Server>,
    cutter: Arc<Cutter>,
    /// Where Annie finds it: at the proxy.
    pub url: String,
}

impl Postgres {
    /// None where there is no PostgreSQL, which was said. Its tables lie on the small disk, if there is one; its own log
    /// does not, since PostgreSQL ends when that cannot be written.
    pub async fn start(tasks: &mut JoinSet<()>, disk: Option<&SmallDisk>) -> Option<Self> {
        let server = Server::start(Options { fsync: true }).await?;
        let url = server.database().await;
        if let Some(disk) = disk {
            let place = disk.folder_for_postgres();
            let name = url.split('?').next().and_then(|u| u.rsplit('/').next()).expect("a name").to_owned();
            let space = format!("CREATE TABLESPACE small LOCATION '{}'", place.display());
            server.run_sql("postgres", &[&space, &format!("ALTER DATABASE {name} SET TABLESPACE small")]);
        }
        let url = server.tcp(&url);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
        let at = listener.local_addr().expect("an address");
        let (before, path) = url.rsplit_once('/').expect("a path");
        let (who, target) = before.rsplit_once('@').expect("a host");
        let cutter = Arc::new(Cutter {
            to: AtomicI64::new(NEVER),
            from: AtomicI64::new(NEVER),
            cut: broadcast::channel(16).0,
            target: target.to_owned(),
        });
        tasks.spawn(serve(listener, cutter.clone()));
        let url = format!("{who}@{at}/{path}");
        Some(Self { server, cutter, url })
    }
}

/// When connections are cut.
struct Cutter {
    /// Bytes to the database until then.
    to: AtomicI64,
    /// Bytes from the database until then.
    from: AtomicI64,
    cut: broadcast::Sender<()>,
    target: String,
}

impl Cutter {
    /// How much of this piece may still pass; cuts when it is not all of it.
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
        let may = cutter.pass(way, n);
        if to.write_all(piece.get(..may).unwrap_or_default()).await.is_err() {
            return;
        }
        if may < n {
            let _ = cutter.cut.send(());
            return;
        }
    }
}

/// A disk in memory that can be filled. Only root may have one.
pub struct SmallDisk {
    pub folder: PathBuf,
}

impl SmallDisk {
    /// None where it may not be had.
    pub fn mount(folder: &Path, megabytes: u32) -> Option<Self> {
        std::fs::create_dir_all(folder).ok()?;
        let size = format!("size={megabytes}m,mode=700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder).output();
        mounted.is_ok_and(|out| out.status.success()).then(|| Self { folder: folder.to_owned() })
    }

    /// A folder on it that the user owns as whom PostgreSQL runs.
    fn folder_for_postgres(&self) -> PathBuf {
        let place = self.folder.join("postgres");
        std::fs::create_dir_all(&place).expect("a folder");
        let _ = std::fs::set_permissions(&self.folder, Permissions::from_mode(0o711));
        let owned =
            |user: &str| Command::new("chown").arg(user).arg(&place).output().is_ok_and(|out| out.status.success());
        assert!(owned("postgres") || owned("nobody"), "the folder can be given away");
        place
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

    pub fn make_room(&self) {
        let _ = std::fs::remove_file(self.ballast());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.make_room();
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).output();
    }
}
