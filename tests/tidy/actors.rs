//! Structure of `actors/`: import cycles between its files, and the number of message kinds of an actor.
//!
//! An import depends on the file that defines the imported name. A re-export (`pub use child::Name`) is no dependency of the
//! file that re-exports the name, unless that file also uses it.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    lexer::{block_after, enclosed_items},
    tree::{Source, all_well, sources},
};

/// Most files in one import cycle.
const CYCLE_FILES_MAX: usize = 4;
/// Most message kinds of an actor. Kinds that belong together are one kind with a message type of their own, which has the
/// same limit.
const MESSAGE_KINDS_MAX: usize = 12;

const FOLDER: &str = "actors/src/";

/// The path of a module below the crate, such as `["engine", "record"]`; empty for the crate itself.
type Module = Vec<String>;

struct Import {
    path: Vec<String>,
    is_re_export: bool,
}

/// What one file imports.
struct Imports {
    file: String,
    imports: Vec<Import>,
    /// The code outside of `use` statements.
    rest: String,
}

fn words(path: &str) -> Vec<String> {
    path.split("::").map(|part| part.trim().to_owned()).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((start, group)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or(tree);
        return vec![name.trim().to_owned()];
    };
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let items = enclosed_items(group).into_iter();
    items.flat_map(expand).map(|path| format!("{}{path}", start.trim())).collect()
}

/// The beginnings of `word` that are not the end of a longer word or path.
fn starts_of(code: &str, word: &str) -> Vec<usize> {
    let is_start = |at: &usize| !code[..*at].ends_with(|c| is_word(c) || c == ':');
    code.match_indices(word).map(|(at, _)| at).filter(is_start).collect()
}

fn imports_of(source: &Source) -> Imports {
    let code = source.shipped();
    let (mut imports, mut rest, mut last) = (Vec::new(), String::new(), 0);
    for at in starts_of(&code, "use ") {
        let Some(len) = code[at..].find(';') else { continue };
        let line = code[..at].rsplit('\n').next().unwrap_or_default();
        let is_re_export = line.trim_start().starts_with("pub");
        let paths = expand(&code[at + "use ".len()..at + len]).into_iter();
        imports.extend(paths.map(|path| Import { path: words(&path), is_re_export }));
        rest.push_str(&code[last..at]);
        last = at + len;
    }
    rest.push_str(&code[last..]);
    let children = starts_of(&rest, "mod ").into_iter().filter_map(|at| {
        let name = rest[at + "mod ".len()..].split(';').next()?;
        name.chars().all(is_word).then(|| format!("{name}::"))
    });
    let roots = ["crate::", "super::", "self::"].map(str::to_owned);
    for root in children.chain(roots).collect::<Vec<_>>() {
        for at in starts_of(&rest, &root) {
            let end = rest[at..].find(|c| !is_word(c) && c != ':').map_or(rest.len(), |len| at + len);
            imports.push(Import { path: words(rest[at..end].trim_end_matches(':')), is_re_export: false });
        }
    }
    Imports { file: source.path.clone(), imports, rest }
}

fn modules() -> BTreeMap<Module, Imports> {
    let ours = sources().iter().filter(|s| s.path.starts_with(FOLDER) && !s.is_for_tests());
    let module = |source: &Source| {
        let path = source.path.trim_start_matches(FOLDER).trim_end_matches(".rs");
        let mut module: Module = path.split('/').map(str::to_owned).collect();
        module.pop_if(|last| last == "mod" || last == "lib");
        module
    };
    ours.map(|source| (module(source), imports_of(source))).collect()
}

/// The module that defines what a path in `from` names, if it is in this crate. Names that a module imports or re-exports
/// are followed to their definition.
fn defining(all: &BTreeMap<Module, Imports>, from: &Module, path: &[String], depth: usize) -> Option<Module> {
    let first = path.first()?.as_str();
    let mut at = from.clone();
    let mut rest = path;
    match first {
        "crate" => (at, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while let Some(up) = rest.strip_prefix(&["super".to_owned()]) {
                at.pop();
                rest = up;
            }
        }
        child => all.contains_key(&[from.as_slice(), &[child.to_owned()]].concat()).then_some(())?,
    }
    while let Some((name, behind)) = rest.split_first() {
        let child = [at.as_slice(), std::slice::from_ref(name)].concat();
        if !all.contains_key(&child) {
            break;
        }
        (at, rest) = (child, behind);
    }
    if let Some((name, behind)) = rest.split_first()
        && depth > 0
        && let Some(import) = all.get(&at)?.imports.iter().find(|i| i.path != path && i.path.last() == Some(name))
    {
        let path = [&import.path, behind].concat();
        return defining(all, &at, &path, depth - 1).or(Some(at));
    }
    Some(at)
}

/// The modules that each module depends on.
fn dependencies(all: &BTreeMap<Module, Imports>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let of = |module: &Module, imports: &Imports| {
        let uses = |import: &&Import| {
            let name = import.path.last().map_or("", String::as_str);
            !import.is_re_export
                || starts_of(&imports.rest, name).iter().any(|at| !imports.rest[at + name.len()..].starts_with(is_word))
        };
        let used = imports.imports.iter().filter(uses);
        let found: BTreeSet<Module> = used.filter_map(|import| defining(all, module, &import.path, 10)).collect();
        found.into_iter().filter(|to| to != module && !to.is_empty()).collect()
    };
    all.iter().map(|(module, imports)| (module, of(module, imports))).collect()
}

/// All modules that can be reached from a module.
fn reachable(from: &Module, edges: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = open.pop() {
        for to in edges.get(&module).into_iter().flatten() {
            if found.insert(to.clone()) {
                open.push(to.clone());
            }
        }
    }
    found
}

#[test]
fn import_cycles_of_actors_have_few_files() {
    let all = modules();
    let edges = dependencies(&all);
    let reach: BTreeMap<&Module, BTreeSet<Module>> = all.keys().map(|from| (from, reachable(from, &edges))).collect();
    let cycle_of = |module: &Module| -> BTreeSet<&str> {
        let others = reach[module].iter().filter(|to| reach[*to].contains(module));
        others.map(|module| all[module].file.as_str()).collect()
    };
    let cycles: BTreeSet<BTreeSet<&str>> = all.keys().map(cycle_of).collect();
    let wrong: Vec<String> = cycles
        .iter()
        .filter(|cycle| cycle.len() > CYCLE_FILES_MAX)
        .map(|cycle| format!("{} files: {}", cycle.len(), cycle.iter().copied().collect::<Vec<_>>().join(", ")))
        .collect();
    all_well("move what these files share into a file that imports none of them", &wrong);
}

/// The variants of an enum, by name, wherever in `actors/` it is defined.
fn variants(name: &str) -> Option<Vec<String>> {
    let head = format!("enum {name} ");
    let source = sources().iter().find(|s| s.path.starts_with(FOLDER) && s.code.contains(&head))?;
    let body = block_after(&source.code, source.code.find(&head)?)?;
    let items = enclosed_items(&source.code[body]).into_iter();
    Some(items.map(|item| item.trim().chars().take_while(|c| is_word(*c)).collect()).collect())
}

#[test]
fn actors_have_few_message_kinds() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|s| s.path.starts_with(FOLDER) && !s.is_for_tests()) {
        let code = source.shipped();
        for (at, found) in code.match_indices("impl Named for ") {
            let name: String = code[at + found.len()..].chars().take_while(|c| is_word(*c)).collect();
            let Some(variants) = variants(&name) else { continue };
            if variants.len() > MESSAGE_KINDS_MAX {
                wrong.push(format!("{}: {name} has {} kinds: {}", source.path, variants.len(), variants.join(", ")));
            }
        }
    }
    all_well("split the actor, or give messages of one responsibility a type of their own", &wrong);
}

#[test]
fn import_trees_expand_to_their_paths() {
    assert_eq!(expand("a::b as c"), ["a::b"]);
    assert_eq!(expand("a::{self, b::{c, d}, e as f,}"), ["a::self", "a::b::c", "a::b::d", "a::e"]);
}
