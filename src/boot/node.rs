//! Which node this process is among those that share a database. The name is kept in the data folder, whose lock lets one
//! process in: whoever finds it there knows that the process before it is dead, and takes over at once what that one had open.

use std::{io::Write, path::Path};

use annie_core::{ids::NodeId, ports::Env};

/// The file in a data folder.
const NODE_FILE: &str = "node.id";

/// The node of a data folder. Where its name cannot be kept, the next process waits for this one's lease to expire.
pub fn node_of(folder: &Path, env: &Env) -> NodeId {
    let path = folder.join(NODE_FILE);
    let known = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    known.unwrap_or_else(|| {
        let fresh = NodeId::from_uuid(env.uuid());
        if let Err(error) = keep(folder, fresh) {
            tracing::warn!(%error, "the name of this process could not be kept in the data folder");
        }
        fresh
    })
}

fn keep(folder: &Path, node: NodeId) -> std::io::Result<()> {
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
    fn node_of_a_folder_is_the_same_as_long_as_its_file_can_be_read() {
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
