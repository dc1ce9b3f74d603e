//! Measures the catalogue with 10,000 skill files: the time of a load, of the first search, and of later searches. Run with
//! optimisation: `cargo run --release -p annie-skillkit --example many_skills`.
#![expect(clippy::print_stdout, reason = "an example that prints its measurements")]

use std::{error::Error, fs, time::Instant};

use annie_core::ports::Catalog;
use annie_skillkit::FileCatalog;

const SKILLS: usize = 10_000;
/// Every other skill is a prompt skill with a folder of its own, the others are requests, of which a domain has this many.
const DOMAIN_SKILLS: usize = 50;
const SEARCHES: u32 = 1_000;
/// Words from which the texts are made.
const WORDS: [&str; 24] = [
    "weather", "invoice", "letter", "meeting", "report", "customer", "travel", "garden", "music", "recipe", "budget",
    "photo", "calendar", "contract", "network", "server", "backup", "school", "doctor", "train", "market", "river",
    "window", "paper",
];

fn text(n: usize, words: usize) -> String {
    let word = |k: usize| WORDS[(n * 7 + k * k + k) % WORDS.len()];
    (0..words)
        .map(|k| format!("{}{}", word(k), if k % 5 == 0 { (n % 97).to_string() } else { String::new() }))
        .collect::<Vec<_>>()
        .join(" ")
}

fn write(root: &std::path::Path, n: usize) -> std::io::Result<()> {
    let (path, head) = if n.is_multiple_of(2) {
        (format!("skill-{n}/SKILL.md"), format!("name: skill-{n}\ndescription: {}.", text(n, 12)))
    } else {
        let domain = n / 2 / DOMAIN_SKILLS;
        let request = "request: {url: \"https://api.example.org/v1/{topic}\"}\narguments: {topic: {required: true}}";
        let head =
            format!("name: d{domain}.s{n}\ndescription: {}.\neffect: read\nexternal: true\n{request}", text(n, 12));
        (format!("d{domain}/s{n}.md"), head)
    };
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap_or(root))?;
    fs::write(path, format!("---\n{head}\n---\n\n{}\n", text(n + 1, 120)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("annie-many-skills-{}", std::process::id()));
    for n in 0..SKILLS {
        write(&folder, n)?;
    }
    let catalog = FileCatalog::open(folder.clone()).reaching_out();
    let start = Instant::now();
    catalog.reload();
    println!("load of {SKILLS} skill files: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let skills = catalog.skills();
    let start = Instant::now();
    let found = skills.search("weather report").len();
    println!("first search, which builds the index: {:.0} ms ({found} found)", start.elapsed().as_secs_f64() * 1e3);
    for query in ["invoice42", "weather report", "skill-4711", "nothing at all"] {
        let start = Instant::now();
        let mut found = 0;
        for _ in 0..SEARCHES {
            found = skills.search(query).len();
        }
        let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(SEARCHES);
        println!("search {query:?}: {each:.0} us ({found} found)");
    }
    fs::remove_dir_all(folder)?;
    Ok(())
}
