//! The node id of this process among the processes that share a database. The id is stored in the data folder, and the lock of
//! the folder admits one process. A process that finds an id therefore knows that the process before it is dead, and takes its
//! conversations over at once.

use std::{io::Write, path::Path};

use annie_core::{ids::NodeId, ports::Env};

/// The name of the file in a data folder.
const NODE_FILE: &str = "node.id";

/// The node id of a data folder. If it cannot be stored, the next process has to wait until the lease of this one expires.
pub fn node_of(folder: &Path, env: &Env) -> NodeId {
    let path = folder.join(NODE_FILE);
    let known = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    known.unwrap_or_else(|| {
        let fresh = NodeId::from_uuid(env.uuid());
        if let Err(error) = store_id(folder, fresh) {
            tracing::warn!(%error, "the node id could not be stored in the data folder");
        }
        fresh
    })
}

fn store_id(folder: &Path, node: NodeId) -> std::io::Result<()> {
    let draft = folder.join("node.id.tmp");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&draft)?;
    writeln!(file, "{node}")?;
    file.sync_all()?;
    std::fs::rename(draft, folder.join(NODE_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system;

    #[test]
    fn node_id_is_stable_while_its_file_is_readable() {
        let (one, other, env) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), system::env());
        let node = node_of(one.path(), &env);
        assert_eq!(node_of(one.path(), &env), node);
        assert_ne!(node_of(other.path(), &env), node);
        std::fs::write(one.path().join(NODE_FILE), "half").unwrap();
        let fresh = node_of(one.path(), &env);
        assert_ne!(fresh, node);
        assert_eq!(node_of(one.path(), &env), fresh);
        assert_ne!(node_of(&one.path().join("not there"), &env), fresh);
    }
}
