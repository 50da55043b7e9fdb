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
//!
//! [`live`] shows the same sections while the run lasts.

use std::io;

use jobs::format;
use jobs::layout::{RunFolder, write_whole};
use maud::{Markup, html};

use crate::Report;

pub(crate) mod bars;
mod clock;
pub(crate) mod document;
mod failures;
mod films;
mod grid;
mod headline;
mod latency;
pub(crate) mod link;
pub mod live;
mod matrix;
mod origin;
mod settings;
pub(crate) mod sheet;
mod speed;
mod table;
mod timeline;
mod variations;

pub use clock::Zone;
use document::{Document, Section};
use grid::TaskGrid;
pub(crate) use origin::title;

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
    let title = origin::title(report);
    let document = Document {
        title: &title,
        first: "matrix",
        header: headline::section(report, &title, zone),
        footer: origin::footer(report, zone),
        sections: &sections(report, zone),
    };
    document.render()
}

/// Renders the sections, in the order of the page.
fn sections(report: &Report, zone: &Zone) -> Vec<Section> {
    let grid = TaskGrid::new(report);
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
    sections.into_iter().map(Section::of).collect()
}

/// Shows `shown of all`, if a list was cut.
fn cut(shown: usize, all: usize, what: &str, rest: &str) -> Markup {
    html! {
        @if shown < all {
            p.cut { (format::count(shown as u64)) " of " (format::count(all as u64)) " " (what) " are shown; " (rest) }
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::hash;
