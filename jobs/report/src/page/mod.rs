//! Renders the report as `report.html`, a single page that loads nothing from the network.
//!
//! ```text
//! report ───► grid ──► headline, success           success rates with intervals
//!        ├──► variations                           variants beside their controls
//!        ├──► latency                              success rates against latency, if jobs have one
//!        ├──► timeline                             what each rank did, and deaths
//!        ├──► failures, films                      errors by reason; videos of unsolved episodes
//!        └──► jobs, speed, settings, origin        results, speed, settings, command line
//!                 └──► parts, chart ──► document
//! ```
//! Each list has a limit and tells how much it leaves out, so that a page of ten thousand jobs can
//! still be scrolled. The page depends on its arguments only: the same report gives the same bytes.
//!
//! Everything that comes from users is escaped by [`maud`], or is a path that [`parts`] has made
//! safe. A content security policy allows the page's own style and script by their hashes, and
//! nothing from elsewhere.
//!
//! [`live`] shows the same sections while the run lasts.

use std::io;

use jobs::layout::{RunFolder, write_whole};

use crate::Report;

pub(crate) mod chart;
mod clock;
pub(crate) mod document;
mod failures;
mod films;
mod headline;

mod latency;
pub mod live;
mod origin;
pub(crate) mod parts;
mod settings;
mod success;
mod table;
mod timeline;
mod variations;

pub use clock::Zone;
use document::{Document, Fragment};

/// What `report.html` may load: films, from its folder or server; the player's buttons are data.
const LOADS: &str = "form-action 'none'; media-src 'self' file: data:; img-src data:";

/// Writes `report.html` into a run folder, with times in the zone of this machine.
///
/// # Errors
/// Returns the errors of the file system; an earlier page stays intact then.
pub fn write(folder: &RunFolder, report: &Report) -> io::Result<()> {
    let run = &report.run;
    let began = run.started.as_ref().or(run.ended.as_ref());
    let zone = Zone::here(began.unwrap_or(&run.written));
    write_whole(&folder.page(), render(report, &zone).as_bytes())
}

/// Renders the page, with times in `zone`.
pub fn render(report: &Report, zone: &Zone) -> String {
    let title = report.config.title();
    let mut sections = sections(report, zone);
    sections.retain(|section| !section.html.is_empty());
    let document = Document {
        title: &format!("{title} · rrun"),
        loads: LOADS,
        seen: None,
        header: headline::section(report, title, zone),
        footer: origin::footer(report, zone),
        sections: &sections,
    };
    document.render()
}

/// Renders the sections, in the order of the page.
fn sections(report: &Report, zone: &Zone) -> Vec<Fragment> {
    let part = Fragment::new;
    vec![
        part(success::NAMES, success::section(report)),
        part(variations::NAMES, variations::section(report)),
        part(latency::NAMES, latency::section(report)),
        part(timeline::NAMES, timeline::section(report, zone)),
        part(failures::NAMES, failures::section(report)),
        part(films::NAMES, films::section(report)),
        part(table::NAMES, table::section(report)),
        part(table::SPEED, table::speed(report)),
        part(settings::NAMES, settings::section(report)),
        part(origin::NAMES, origin::section(report, zone)),
    ]
}

#[cfg(test)]
mod tests;
