//! Renders the report as `report.html`, a single page that loads nothing from the network.
//!
//! ```text
//! report ───► grid ──► headline, matrix, bars      success rates with intervals
//!        ├──► variations                           variants beside their controls
//!        ├──► latency                              success rates against latency, if jobs have one
//!        ├──► timeline                             what each rank did, and deaths
//!        ├──► failures, films                      errors by reason; videos of unsolved episodes
//!        └──► table, speed, settings, origin       results, speed, settings, command line
//! ```
//! Each list has a limit and tells how much it leaves out, so that a page of ten thousand jobs can
//! still be scrolled. The page depends on its arguments only: the same report gives the same bytes.
//!
//! Everything that comes from users is escaped by [`maud`], or is a path that [`link`] has made
//! safe. A content security policy allows the page's own style and script by their hashes, and
//! nothing from elsewhere.

use std::io;

use jobs::layout::{RunFolder, write_whole};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::Report;

mod bars;
mod clock;
mod failures;
mod films;
mod grid;
mod headline;
mod latency;
mod link;
mod matrix;
pub(crate) mod number;
mod origin;
mod settings;
mod sheet;
mod speed;
mod table;
mod timeline;
mod variations;

pub use clock::Zone;
use grid::TaskGrid;

/// The rules of `report.html`, which `watch.html` has, too.
pub(crate) const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Content security policy with the SHA-256 of [`STYLE`] and [`SCRIPT`] in base64, as `openssl dgst
/// -sha256 -binary FILE | base64` prints them. A test compares them.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; media-src 'self' file: data:; \
    style-src 'sha256-UXo95UUhzaBSUhynmMXY2JFCSgg9Gbso9FAU0/cyZdA='; \
    script-src 'sha256-Cjn78mLz4y82wuzSblTlkuR2bNkdgNN2d0Fz3b2k9YM='";

/// Writes `report.html` into a run folder, with times in the zone of this machine.
///
/// # Errors
/// Returns the errors of the file system; an earlier page stays intact then.
pub fn write(folder: &RunFolder, report: &Report) -> io::Result<()> {
    let began = report
        .run
        .started
        .as_ref()
        .or(report.run.ended.as_ref())
        .unwrap_or(&report.run.written);
    write_whole(
        &folder.page(),
        render(report, &Zone::here(began)).as_bytes(),
    )
}

/// Renders the page, with times in `zone`.
pub fn render(report: &Report, zone: &Zone) -> String {
    let grid = TaskGrid::new(report);
    let title = origin::title(report);
    // Anchor, name in the navigation, heading, and content.
    let variations = variations::section(report)
        .map(|body| ("variations", "Variations", "What variations changed", body));
    let mut sections = vec![
        (
            "matrix",
            "Success",
            "Success by task and policy",
            matrix::section(&grid, variations.is_some()),
        ),
        (
            "bars",
            "Intervals",
            "Success rates with intervals",
            bars::section(&grid),
        ),
        (
            "ranks",
            "Ranks",
            "Ranks over time",
            timeline::section(report, zone),
        ),
        (
            "failures",
            "Errors",
            "What broke",
            failures::section(report),
        ),
        (
            "films",
            "Unsolved",
            "Episodes that were not solved",
            films::section(report),
        ),
        ("jobs", "Jobs", "Jobs", table::section(report)),
        (
            "speed",
            "Speed",
            "Latency and throughput",
            speed::section(report),
        ),
        (
            "settings",
            "Settings",
            "Settings in effect",
            settings::section(report),
        ),
        (
            "origin",
            "Run",
            "How it was run",
            origin::section(report, zone),
        ),
    ];
    // After the rates.
    if let Some(latency) = latency::section(report) {
        let name = "Success by latency of the policy";
        sections.insert(2, ("latency", "Latency", name, latency));
    }
    if let Some(section) = variations {
        sections.insert(2, section);
    }
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) " · rrun" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#matrix" { "Skip to the results" }
                header { (headline::section(report, &title, zone)) }
                nav aria-label="Sections" {
                    ul { @for (id, short, ..) in &sections { li { a href={ "#" (id) } { (short) } } } }
                }
                main { @for (id, _, name, body) in &sections { (section(id, name, body)) } }
                footer { (origin::footer(report, zone)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    document.into_string()
}

fn section(id: &str, name: &str, body: &Markup) -> Markup {
    html! { section id=(id) aria-labelledby={ (id) "-name" } { h2 id={ (id) "-name" } { (name) } (body) } }
}

/// Shows `shown of all`, if a list was cut.
fn cut(shown: usize, all: usize, what: &str, rest: &str) -> Markup {
    html! {
        @if shown < all {
            p.cut { (number::count(shown as u64)) " of " (number::count(all as u64)) " " (what) " are shown; " (rest) }
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::base64;
