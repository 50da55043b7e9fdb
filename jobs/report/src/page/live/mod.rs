//! The page of a run that is under way: the sections of the report, kept up to date, and what
//! happens now.
//!
//! ```text
//! LiveView ──► fragments ──► LiveDocument  the whole page, as somebody opens it
//!                  └───────► one by one    those that changed since, which page.js puts in place
//! ```
//! A fragment is the HTML of one element with an id. An empty one hides its element. The page loads
//! nothing but what its server has: events, pictures, films, hang reports.

use std::collections::BTreeSet;

use maud::{PreEscaped, html};

use crate::live::LiveView;
use crate::page::document::{self, Document};
use crate::page::{Zone, sections};

mod door;
mod environments;
mod hangs;
mod head;
#[cfg(test)]
mod tests;

pub use crate::page::document::Fragment;
pub use door::{door, door_policy};

/// What the page may load: what its server has.
const LOADS: &str =
    "form-action 'none'; connect-src 'self'; img-src 'self' data:; media-src 'self'";

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
    let mut fragments = moving(view, extras, zone);
    fragments.extend(sections(view.report, zone));
    fragments
}

/// Returns the fragments that change with time alone: the first ones of [`fragments`].
pub fn moving(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Vec<Fragment> {
    let environments = environments::section(view, extras);
    let hangs = hangs::section(&extras.hangs);
    vec![
        Fragment::new(["head", "", ""], head::section(view, extras, zone)),
        Fragment::new(["now", "Now", "Environments"], environments),
        Fragment::new(["hangs", "Hangs", "Hang reports"], hangs),
    ]
}

/// Returns the content security policy of the page, which is also a header of it.
pub fn policy() -> String {
    document::policy(LOADS)
}

impl LiveDocument<'_> {
    /// Renders the whole page.
    pub fn render(&self) -> String {
        let (heads, sections): (Vec<_>, Vec<_>) = self
            .fragments
            .iter()
            .cloned()
            .partition(|fragment| fragment.name.is_empty());
        let document = Document {
            title: &format!("{} · rrun live", self.title),
            loads: LOADS,
            seen: Some(self.seen),
            first: "now",
            header: html! { @for head in heads { div id=(head.id) { (PreEscaped(head.html)) } } },
            footer: html! {
                "Served by rrun " (env!("CARGO_PKG_VERSION")) " while the run lasts. Times are " (self.zone) ". "
                "The final report will be report.html in the run folder."
            },
            sections: &sections,
        };
        document.render()
    }
}
