//! The page of a run that is under way: the sections of the report, kept up to date, and what
//! happens now.
//!
//! ```text
//! LiveView ──► fragments ──► LiveDocument  the whole page, as somebody opens it
//!                  └───────► one by one    those that changed since, which live.js puts in place
//! ```
//! A fragment is the HTML of one element with an id. An empty one hides its element. The page loads
//! nothing but what its server has: events, pictures, films, hang reports.

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::live::LiveView;
use crate::page::Zone;
use crate::page::document::{STYLE, Section};
use crate::page::{document, sections};

mod door;
mod environments;
mod hangs;
mod head;
mod policy;
#[cfg(test)]
mod tests;

pub use door::door;
pub use policy::{door_policy, policy};

const LIVE_STYLE: &str = include_str!("live.css");
const LIVE_SCRIPT: &str = include_str!("live.js");

/// Sections that a report has only sometimes: id, name in the navigation, heading, and the section
/// before it. Their elements are there from the start.
const SOMETIMES: [(&str, &str, &str, &str); 2] = [
    (
        "latency",
        "Latency",
        "Success by latency of the policy",
        "bars",
    ),
    (
        "variations",
        "Variations",
        "What variations changed",
        "bars",
    ),
];

/// What the page shows besides the run itself.
#[derive(Clone, Debug, Default)]
pub struct LiveExtras {
    /// Environments with a picture, as rank and index.
    pub pictures: BTreeSet<(usize, usize)>,
    /// The hang reports, the last one first.
    pub hangs: Vec<HangNote>,
    /// Whether there are buttons: only clients with the token see the page.
    pub has_buttons: bool,
    /// Whether the ranks were told to begin no more episodes.
    pub is_stopping: bool,
    /// Names of jobs of which the ranks were told to begin no more episodes.
    pub skipped: BTreeSet<String>,
}

/// A hang report of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HangNote {
    /// Its number.
    pub number: u64,
    /// Its first lines.
    pub text: String,
}

/// The content of one element of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Id of the element.
    pub id: &'static str,
    /// Its name in the navigation; empty for the head.
    pub short: &'static str,
    /// Its heading; empty for the head.
    pub name: &'static str,
    /// Its HTML.
    pub html: String,
}

/// The page as it was put together at one moment.
#[derive(Clone, Copy, Debug)]
pub struct LiveDocument<'a> {
    /// Title of the run.
    pub title: &'a str,
    /// Name of the zone of all times.
    pub zone: &'a str,
    /// Number of the newest event that the fragments contain, for the script.
    pub seen: &'a str,
    /// All fragments, in their order.
    pub fragments: &'a [Fragment],
}

/// Returns all fragments of the page, in its order.
pub fn fragments(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Vec<Fragment> {
    let mut sections = sections(view.report, zone);
    for (id, short, name, after) in SOMETIMES {
        if !sections.iter().any(|section| section.id == id) {
            let at = sections.iter().position(|section| section.id == after);
            let empty = Section::of((id, short, name, html! {}));
            sections.insert(at.map_or(sections.len(), |at| at + 1), empty);
        }
    }
    let moving = moving(view, extras, zone);
    let sections = sections.into_iter().map(Fragment::of);
    moving.into_iter().chain(sections).collect()
}

/// Returns the fragments that change with time alone: the first ones of [`fragments`].
pub fn moving(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Vec<Fragment> {
    let environments = environments::section(view, extras);
    let sections = [
        ("head", "", "", head::section(view, extras, zone)),
        ("now", "Now", "Environments", environments),
        (
            "hangs",
            "Hangs",
            "Hang reports",
            hangs::section(&extras.hangs),
        ),
    ];
    sections.map(Section::of).map(Fragment::of).into()
}

impl Fragment {
    fn of(section: Section) -> Self {
        let Section {
            id,
            short,
            name,
            body,
        } = section;
        Self {
            id,
            short,
            name,
            html: body.into_string(),
        }
    }

    fn is_hidden(&self) -> bool {
        self.html.is_empty()
    }

    fn link(&self) -> Markup {
        html! { li hidden[self.is_hidden()] { a href={ "#" (self.id) "-part" } { (self.short) } } }
    }

    fn section(&self) -> Markup {
        let Self { id, name, html, .. } = self;
        html! {
            section id={ (id) "-part" } aria-labelledby={ (id) "-name" } hidden[self.is_hidden()] {
                h2 id={ (id) "-name" } { (name) }
                div id=(id) { (PreEscaped(html)) }
            }
        }
    }
}

impl LiveDocument<'_> {
    /// Renders the whole page.
    pub fn render(&self) -> String {
        let fragments = self.fragments.iter();
        let (head, parts): (Vec<_>, Vec<_>) = fragments.partition(|part| part.name.is_empty());
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                (prelude(&policy(), self.title))
                body.live data-seen=(self.seen) {
                    a.skip href="#now" { "Skip to the results" }
                    header { @for part in head { div id=(part.id) { (PreEscaped(&part.html)) } } }
                    nav aria-label="Sections" { ul { @for part in &parts { (part.link()) } } }
                    main { @for part in &parts { (part.section()) } }
                    footer { p {
                        "Served by rrun " (env!("CARGO_PKG_VERSION")) " while the run lasts. Times are " (self.zone) ". "
                        "The final report will be report.html in the run folder."
                    } }
                    script { (PreEscaped(LIVE_SCRIPT)) }
                }
            }
        };
        document.into_string()
    }
}

/// Renders the head of a document.
fn prelude(policy: &str, title: &str) -> Markup {
    let title = html! {
        link rel="icon" href="data:,";
        title { (title) " · rrun live" }
    };
    document::head(policy, &title, &[STYLE, LIVE_STYLE])
}
