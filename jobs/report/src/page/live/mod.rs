//! The page of a run that is under way: the sections of the report, kept up to date, and what
//! happens now.
//!
//! ```text
//! LiveView ──► fragments ──► document  the whole page, as somebody opens it
//!                  └───────► one by one    those that changed since, which page.js puts in place
//! ```
//! A fragment is the HTML of one element with an id. An empty one hides its element. The page loads
//! nothing but what its server has: events, pictures, films, hang reports.

use std::collections::BTreeSet;

use jobs::format;
use maud::{Markup, PreEscaped, html};

use crate::live::LiveView;
use crate::page::document::{self, Document};
use crate::page::{Zone, sections};

mod environments;
mod head;
#[cfg(test)]
mod tests;

pub use crate::page::document::Fragment;

/// What the page may load: what its server has.
const LOADS: &str =
    "form-action 'none'; connect-src 'self'; img-src 'self' data:; media-src 'self'";

/// What the page that asks for the token may do: send it.
const DOOR_LOADS: &str = "form-action 'self'; img-src data:";

/// Most hang reports that are shown.
const MOST_HANGS: usize = 8;

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

/// Returns all fragments of the page, in its order.
pub fn fragments(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Vec<Fragment> {
    let mut fragments = moving(view, extras, zone);
    fragments.extend(sections(view.report, zone));
    fragments
}

/// Returns the fragments that change with time alone: the first ones of [`fragments`].
pub fn moving(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Vec<Fragment> {
    let environments = environments::section(view, extras);
    vec![
        Fragment::new(["head", "", ""], head::section(view, extras, zone)),
        Fragment::new(["now", "Now", "Environments"], environments),
        Fragment::new(["hangs", "Hangs", "Hang reports"], hangs(&extras.hangs)),
    ]
}

/// Shows the launcher's reports of ranks that hang; returns nothing if there are none.
fn hangs(hangs: &[HangNote]) -> Markup {
    // The first line that says something.
    let title = |text: &str| {
        let line = text.lines().find(|line| !line.trim().is_empty());
        line.unwrap_or("empty").to_owned()
    };
    html! {
        @if !hangs.is_empty() {
            p.lead {
                (format::counted(hangs.len() as u64, "report", "reports"))
                " of ranks that were silent, or on request; the last one first."
            }
            @for HangNote { number, text } in hangs.iter().take(MOST_HANGS) {
                details.hang data-key=(number) {
                    summary { "Report " (number) ": " (title(text)) }
                    pre { (text) }
                    p { a href={ "./hang/" (number) } { "Whole report" } }
                }
            }
        }
    }
}

/// Renders the whole page of a run with this title, and times in this zone. `seen` is the number of
/// the newest event that the [`fragments`] contain, for the script.
pub fn document(title: &str, zone: &str, seen: &str, fragments: &[Fragment]) -> String {
    let [head, sections @ ..] = fragments else {
        return String::new();
    };
    let document = Document {
        title: &format!("{title} · rrun live"),
        loads: LOADS,
        seen: Some(seen),
        header: html! { div id=(head.id) { (PreEscaped(&head.html)) } },
        footer: html! {
            "Served by rrun " (env!("CARGO_PKG_VERSION")) " while the run lasts. Times are " (zone) ". "
            "The final report will be report.html in the run folder."
        },
        sections,
    };
    document.render()
}

/// Returns the content security policy of the page, which is also a header of it.
pub fn policy() -> String {
    document::policy(LOADS)
}

/// Renders the page that asks for the token. `is_wrong` says that the last one was not that of the
/// run.
pub fn door(is_wrong: bool) -> String {
    let body = html! {
        body.door {
            h1 { "rrun live" }
            @if is_wrong { p.bad role="alert" { "This is not the token of the run." } }
            form method="post" action="login" enctype="text/plain" {
                label { "Token " input type="password" name="token" autocomplete="current-password" required autofocus; }
                button type="submit" { "Show the run" }
            }
            p.muted { "It is the value of RRUN_PAGE_TOKEN with which the run was started." }
        }
    };
    document::document("Token · rrun live", &door_policy(), &body)
}

/// Returns the content security policy of that page, which is also a header of it.
pub fn door_policy() -> String {
    document::policy(DOOR_LOADS)
}
