//! Skill folders as they are found in the wild: other editors, other clients, other languages, and folders that hold much more than
//! skills.

use super::*;

/// Files as authors write them, and the name and the beginning of the description under which each is used.
fn corpus() -> Vec<(&'static str, String, &'static str, &'static str)> {
    let long = "Use this skill whenever the user mentions a spreadsheet, a table or a csv file. ".repeat(30);
    vec![
        ("pdf/SKILL.md", "---\nname: pdf\ndescription: Read PDF: text, tables, forms. Use it: always.\n---\n# PDF\n".into(), "pdf", "Read PDF: text"),
        ("bom/SKILL.md", "\u{feff}---\r\nname: bom\r\ndescription: \"From Windows\"\r\n---\r\n\r\nDo it.\r\n".into(), "bom", "From Windows"),
        ("long/SKILL.md", format!("---\nname: long\ndescription: {long}\n---\nx\n"), "long", "Use this skill whenever"),
        (
            "folded/SKILL.md",
            "---\nname: folded\ndescription: >-\n  One sentence\n  over two lines.\nlicense: MIT\n---\nx\n".into(),
            "folded",
            "One sentence over two lines.",
        ),
        ("deep/tools/lint/SKILL.md", "---\nname: lint\ndescription: In a nested folder.\n---\nx\n".into(), "lint", "In a nested"),
        ("übersetzen/SKILL.md", "---\nname: translate\ndescription: Übersetzt Texte – höflich 日本語.\n---\nx\n".into(), "translate", "Übersetzt"),
        ("lower/skill.md", "---\nname: lower\ndescription: The file name in lower case.\n---\nx\n".into(), "lower", "The file name"),
        (
            "tools/SKILL.md",
            "---\nname: tools\ndescription: d\nallowed-tools: Bash(git:*), Read, Grep\nversion: 1.2.0\nauthor: somebody\nmodel: opus\n\
             tags:\n  - a\n  - b\n---\nx\n"
                .into(),
            "tools",
            "d",
        ),
        ("rule/SKILL.md", "---\nname: rule\ndescription: 'It''s --- quoted'\n---\n\n---\n\nA rule in the body.\n".into(), "rule", "It's --- quoted"),
        ("emoji/SKILL.md", "---\nname: emoji\ndescription: 🚀 Ship it\n---\nx\n".into(), "emoji", "🚀 Ship it"),
        ("yes/SKILL.md", "---\nname: yes\ndescription: Yes\nuser-invocable: yes\n---\nx\n".into(), "yes", "Yes"),
        ("spaces/SKILL.md", "---   \nname:   spaces   \ndescription:   d  \n---  \nx\n".into(), "spaces", "d"),
    ]
}

#[test]
fn catalog_uses_skill_files_in_the_shapes_found_in_the_wild() {
    let folder = tempfile::tempdir().unwrap();
    for (path, text, _, _) in corpus() {
        put(folder.path(), path, &text);
    }
    for junk in [".DS_Store", "deep/tools/lint/.git/SKILL.md", "pdf/node_modules/x/SKILL.md", "README.md", "LICENSE"] {
        put(folder.path(), junk, "junk");
    }
    let catalog = FileCatalog::open(folder.path().to_owned());
    let skills = catalog.skills();
    for (path, _, name, description) in corpus() {
        let skill = skills.get(name).unwrap_or_else(|| panic!("{path} is not used: {:?}", problem_texts(&catalog)));
        assert!(skill.description.starts_with(description), "{path}: {}", skill.description);
        assert!(!skill.body.is_empty(), "{path}");
    }
}

#[test]
fn skill_file_does_not_take_the_place_of_a_skill_of_the_kernel_by_a_program_or_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let head = "name: system.help\ndescription: d\neffect: read\nexternal: true\n";
    put(folder.path(), "system/help.md", &format!("---\n{head}request: {{url: \"https://x.test/\"}}\n---\nx\n"));
    let catalog = FileCatalog::open(folder.path().to_owned()).reaching_out();
    let skills = catalog.skills();
    assert_eq!(skills.get("system.help").map(|skill| skill.source.as_str()), Some("bundled"));
    let problems = problem_texts(&catalog);
    assert!(problems.iter().any(|p| p.contains("the domain `system` is the kernel's")), "{problems:?}");
}

#[test]
fn catalog_with_a_skill_folder_of_very_many_files_keeps_the_others() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a/SKILL.md", "---\nname: a\ndescription: d\n---\nx\n");
    put(folder.path(), "huge/SKILL.md", "---\nname: huge\ndescription: d\n---\nx\n");
    fs::create_dir(folder.path().join("huge/data")).unwrap();
    for n in 0..50_100 {
        fs::File::create(folder.path().join(format!("huge/data/{n}"))).unwrap();
    }
    let catalog = FileCatalog::open(folder.path().to_owned());
    assert!(catalog.skills().get("a").is_some() && catalog.skills().get("tasks.create").is_some());
    let problems = problem_texts(&catalog);
    assert!(problems.iter().any(|p| p.contains("more than 50000 files")), "{problems:?}");
}
