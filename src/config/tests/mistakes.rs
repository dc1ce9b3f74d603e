//! Several errors in one table.

use super::*;

#[test]
fn config_reports_several_errors_of_one_table() {
    let backend = "[[backend]]\nbase_url = \"ftp://x\"\nmodel = \"m\"\nname = \"a b\"\n";
    for (text, lines) in [
        (
            format!("{backend}connect_ms_max = 0\ntemperature = -1.0\nslots = 0\ncontext_tokens_max = 0\n"),
            &[2, 4, 5, 6, 7, 8][..],
        ),
        (
            "[[backend]]\nkind = \"command\"\nname = \"p\"\nprogram = \"x\"\nfolder = \"y\"\nrun_ms_max = 0\n"
                .to_owned(),
            &[4, 5, 6],
        ),
        ("[turn]\nagent_calls_default = 9\nagent_calls_max = 3\ncontext_tokens_max = 10\n".to_owned(), &[2, 4]),
        ("[deadline]\nhigh = { soft_ms = 9, hard_ms = 9 }\nlow = { soft_ms = 0, hard_ms = 5 }\n".to_owned(), &[2, 3]),
        ("timezone = \"x\"\n[user.ann]\ntimezone = \"y\"\n[user.bob]\ntimezone = \"z\"\n".to_owned(), &[1, 3, 5]),
        ("[client]\nurl = \"x\"\n[log]\nlevel = \"=\"\n".to_owned(), &[2, 4]),
        ("[[hook]]\nnam = \"a\"\n[[hook]]\nkind = \"x\"\n".to_owned(), &[2, 4]),
        (
            "[[hook]]\nname = \"a b\"\npoint = \"before_turn\"\nkind = \"refuse\"\ntext = \"\"\n\
             when = { skills = [\"x\"], users = [\"\"], channels = [\"x\"], agents = \"sub\" }\n"
                .to_owned(),
            &[2, 5, 6, 6, 6, 6],
        ),
    ] {
        let error = error_text(&text);
        let line = |line: &str| line.split(':').nth(1).and_then(|n| n.parse::<usize>().ok());
        let found: Vec<usize> = error.lines().filter_map(line).collect();
        assert_eq!(found, lines, "{text}\n{error}");
    }
}
