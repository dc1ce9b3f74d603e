//! The picture: the waiting times of each class under each policy, on a logarithmic scale. It has its own background and
//! supports light and dark mode.

use std::fmt::Write as _;

use annie_core::event::Priority;

use crate::{Row, Spread, ways::Way};

const WIDTH: u32 = 1_000;
const TOP: u32 = 86;
const ROW: u32 = 16;
const GAP: u32 = 20;
const PANEL_X: [u32; 2] = [180, 600];
const PANEL_WIDTH: u32 = 376;
/// The limits of the scale, in seconds.
const SCALE_S: [f64; 2] = [1.0, 21_600.0];
const TICKS: [(f64, &str); 6] =
    [(1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3_600.0, "1 h"), (18_000.0, "5 h")];

const STYLE: &str = "\
text{font-family:sans-serif;font-size:12px;fill:#222}\
.ground{fill:#fff}.title{font-size:16px;font-weight:bold}.class{font-weight:bold}.small{font-size:11px;fill:#555}\
.grid{stroke:#ddd}.rule{stroke:#bbb}.edge{fill:#222}\
.w0{fill:#8a8f98;stroke:#8a8f98}.w1{fill:#d1495b;stroke:#d1495b}.w2{fill:#e09f3e;stroke:#e09f3e}\
.w3{fill:#3a86c8;stroke:#3a86c8}.w4{fill:#2a9d6f;stroke:#2a9d6f}\
@media (prefers-color-scheme:dark){text{fill:#e6e6e6}.ground{fill:#16181c}.small{fill:#a8adb5}.grid{stroke:#2e3238}\
.rule{stroke:#4a4f57}.edge{fill:#fff}}";

/// The complete picture as SVG text.
pub fn draw(rows: &[Row], seed: u64) -> String {
    let groups = u32::try_from(Priority::ALL.len()).unwrap_or(0);
    let ways = u32::try_from(Way::ALL.len()).unwrap_or(0);
    let bottom = TOP + groups * (ways * ROW + GAP);
    let height = bottom + 66;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"Waiting times of one day on one GPU, by class and way of scheduling\">\n\
         <style>{STYLE}</style>\n<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n"
    );
    text(&mut out, 20, 30, "title", &format!("One simulated day on one GPU (seed {seed})"));
    for (x, what) in PANEL_X.into_iter().zip(["waits for its first round", "from arrival to finished"]) {
        axis(&mut out, x, bottom, what);
    }
    for (group_index, group) in (0..).zip(rows.chunks(Way::ALL.len())) {
        let y = TOP + group_index * (ways * ROW + GAP);
        if let Some(first) = group.first() {
            text(&mut out, 20, y + ROW - 4, "class", first.class.as_str());
            text(&mut out, 20, y + 2 * ROW - 4, "small", &format!("{} tasks", first.tasks));
        }
        rule(&mut out, y + ways * ROW + GAP / 2 - 1);
        for (n, row) in (0..).zip(group) {
            let middle = y + n * ROW + ROW / 2;
            let _ = writeln!(
                out,
                "<text class=\"small\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{}</text>",
                PANEL_X[0] - 8,
                middle + 4,
                row.way.name().replace("aging, whole tasks", "aging, whole")
            );
            bar(&mut out, PANEL_X[0], middle, n, row.first);
            bar(&mut out, PANEL_X[1], middle, n, row.finish);
        }
    }
    legend(&mut out, bottom + 44);
    out.push_str("</svg>\n");
    out
}

fn text(out: &mut String, x: u32, y: u32, class: &str, words: &str) {
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>");
}

fn rule(out: &mut String, y: u32) {
    let _ = writeln!(out, "<line class=\"rule\" x1=\"20\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>", WIDTH - 20);
}

/// The position of a duration on the scale of a panel.
fn x_of(panel: u32, seconds: f64) -> f64 {
    let [from, to] = SCALE_S.map(f64::ln);
    f64::from(panel) + f64::from(PANEL_WIDTH) * ((seconds.max(SCALE_S[0]).ln() - from) / (to - from)).min(1.0)
}

fn axis(out: &mut String, panel: u32, bottom: u32, what: &str) {
    text(out, panel, TOP - 30, "class", what);
    for (seconds, label) in TICKS {
        let x = x_of(panel, seconds);
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>\
             <text class=\"small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{}\">{label}</text>\
             <text class=\"small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{}\">{label}</text>",
            TOP - 6,
            bottom - 8,
            TOP - 12,
            bottom + 8,
        );
    }
}

/// Median to 95th percentile as a bar; 99th percentile and maximum as a line with a marked end.
fn bar(out: &mut String, panel: u32, y: u32, way: u32, spread: Spread) {
    #[expect(clippy::cast_precision_loss, reason = "lengths of time within a few days")]
    let [median, p95, p99, max] =
        [spread.median, spread.p95, spread.p99, spread.max].map(|ms| x_of(panel, ms as f64 / 1_000.0));
    let _ = writeln!(
        out,
        "<g class=\"w{way}\"><rect stroke=\"none\" x=\"{median:.1}\" y=\"{}\" width=\"{:.1}\" height=\"10\"/>\
         <line stroke-width=\"2\" x1=\"{p95:.1}\" x2=\"{max:.1}\" y1=\"{y}\" y2=\"{y}\"/>\
         <line stroke-width=\"2\" x1=\"{p99:.1}\" x2=\"{p99:.1}\" y1=\"{}\" y2=\"{}\"/>\
         <circle stroke=\"none\" cx=\"{max:.1}\" cy=\"{y}\" r=\"3.5\"/></g>\
         <rect class=\"edge\" x=\"{:.1}\" y=\"{}\" width=\"2\" height=\"12\"/>",
        y - 5,
        (p95 - median).max(1.0),
        y - 4,
        y + 4,
        median - 1.0,
        y - 6,
    );
}

fn legend(out: &mut String, y: u32) {
    let words = "Edge: median. Bar: to the 95th percentile. Stroke: 99th. Dot: the longest. Up to 1 s is drawn at 1 s.";
    text(out, PANEL_X[0], y, "small", words);
}
