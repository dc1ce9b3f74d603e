//! `[files]`: what reaches the skills, and the errors of invalid keys.

use std::path::Path;

use super::*;

#[test]
fn files_are_none_by_default_and_folders_reach_the_rules() {
    assert!(Config::default().file_rules().folders.is_empty());
    let text = "[files]\nread_bytes_max = 1\nwrite_bytes_max = 2\n[[files.folder]]\npath = \"/srv/docs\"\n[[files.folder]]\npath = \
                \"/srv/out\"\naccess = \"write\"\nname = \"results\"\nusers = [\"ann\"]\n";
    let rules = typed(text.parse().unwrap()).unwrap().file_rules();
    let shown: Vec<_> = rules.folders.iter().map(|f| (f.name.as_str(), f.writes, f.users.len())).collect();
    assert_eq!(shown, [("docs", false, 0), ("results", true, 1)]);
    assert_eq!((rules.read_bytes_max, rules.write_bytes_max), (1, 2));
}

#[test]
fn folder_of_files_that_overlaps_the_data_folder_is_found() {
    let data = tempfile::tempdir().unwrap();
    let inner = data.path().join("notes");
    fs::create_dir(&inner).unwrap();
    for (path, overlaps) in [
        (data.path(), true),
        (inner.as_path(), true),
        (data.path().parent().unwrap(), true),
        (Path::new("/usr"), false),
    ] {
        let text = format!("[[files.folder]]\npath = {path:?}\nname = \"x\"\n");
        let config = typed(text.parse().unwrap()).unwrap();
        assert_eq!(config.files_in_data(data.path()).is_some(), overlaps, "{path:?}");
    }
}

#[test]
fn config_refuses_invalid_files_with_their_location() {
    for (text, part) in [
        ("[[files.folder]]\npath = \"docs\"\n", "`files.folder`: \"docs\" is not a whole path"),
        ("[[files.folder]]\npath = \"/\"\n", "\"\" cannot be the name of a folder"),
        ("[[files.folder]]\npath = \"/a/x\"\n[[files.folder]]\npath = \"/b/x\"\n", "two folders have the name \"x\""),
        ("[[files.folder]]\npath = \"/a\"\nusers = [\"\"]\n", "\"\" cannot be a user"),
        ("[[files.folder]]\npath = \"/a\"\naccess = \"all\"\n", "all"),
        ("[files]\nread_bytes_max = 0\n", "`files.read_bytes_max`: it is 0"),
    ] {
        let error = error_text(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}
