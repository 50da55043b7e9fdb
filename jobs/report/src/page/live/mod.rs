//! The page of a run that is under way: the sections of the report, kept up to date, and what
//! happens now.
//!
//! ```text
//! LiveView ──► fragments ──► document  the whole page, as somebody opens it
//!                  └───────► one by one    those that changed since, which page.js puts in place
//! ```
//! A fragment is the HTML of one element with an id. An empty one hides its element. The page loads
//! nothing but what its server has: events, pictures, films, hang reports.

use std::collections::{BTreeMap, BTreeSet};

use jobs::format;
use maud::{Markup, PreEscaped, html};

use crate::live::{EnvActivity, LiveView};
use crate::page::chart::place;
use crate::page::document::{self, Document};
use crate::page::parts::{MOST_NAME, clip};
use crate::page::{Zone, headline, sections};

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
    /// The first lines of the launcher's hang reports, by number.
    pub hangs: BTreeMap<u64, String>,
    /// Whether there are buttons: only clients with the token see the page.
    pub has_buttons: bool,
    /// Whether the ranks were told to begin no more episodes.
    pub is_stopping: bool,
    /// Names of jobs of which the ranks were told to begin no more episodes.
    pub skipped: BTreeSet<String>,
}

/// Returns all fragments of the page, in its order.
pub fn fragments(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Vec<Fragment> {
    let mut fragments = moving(view, extras, zone);
    fragments.extend(sections(view.report, zone));
    fragments
}

/// Returns the fragments that change with time alone: the first ones of [`fragments`].
pub fn moving(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Vec<Fragment> {
    let environments = now(view, extras);
    vec![
        Fragment::new(["head", "", ""], head(view, extras, zone)),
        Fragment::new(["now", "Now", "Environments"], environments),
        Fragment::new(["hangs", "Hangs", "Hang reports"], hangs(&extras.hangs)),
    ]
}

/// Shows the launcher's reports of ranks that hang; returns nothing if there are none.
fn hangs(hangs: &BTreeMap<u64, String>) -> Markup {
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
            @for (number, text) in hangs.iter().rev().take(MOST_HANGS) {
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

/// Most ranks, and most environments, that are shown.
const MOST: usize = 48;

/// Shows each environment: its newest picture, and the episode that it runs.
fn now(view: &LiveView, extras: &LiveExtras) -> Markup {
    let ranks: Vec<_> = view.activity.ranks().collect();
    let envs = ranks.iter().flat_map(|(rank, activity)| {
        let envs = activity.envs.iter();
        envs.map(move |(index, env)| ((*rank, *index), env))
    });
    let count = envs.clone().count();
    html! {
        @if ranks.is_empty() { p.lead { "No rank has begun." } }
        @else {
            ul.ranks { @for (rank, activity) in ranks.iter().take(MOST) {
                @let (class, text) = view.rank_state(*rank, activity);
                li {
                    span class={ "dot " (class) } {} b { "rank " (rank) } " "
                    span.muted { (clip(&activity.start.host, 40)) " · " (activity.start.device) } " "
                    (clip(&text, MOST_NAME))
                }
            } }
        }
        (part(ranks.len(), "ranks"))
        @if count > 0 {
            div.envs { @for (place, env) in envs.take(MOST) { (environment(view, place, env, extras)) } }
        }
        (part(count, "environments"))
    }
}

/// Says how many are shown, if they are not all.
fn part(all: usize, noun: &str) -> Markup {
    html! { @if all > MOST {
        p.cut { (MOST) " of " (format::count(all as u64)) " " (noun) " are shown." }
    } }
}

fn environment(
    view: &LiveView,
    place: (usize, usize),
    env: &EnvActivity,
    extras: &LiveExtras,
) -> Markup {
    let name = view.job(env.job).map_or("", |job| job.name.as_str());
    let (rank, index) = place;
    html! {
        figure.env data-key={ (rank) "/" (index) } {
            // The caption says what the picture shows, also while there is none to load.
            @if extras.pictures.contains(&place) { img data-picture={ (rank) "/" (index) } width="160" height="120" alt=""; }
            @else { div.blank { b { "episode " (env.episode) } "no picture" } }
            figcaption {
                b { (clip(name, 40)) }
                small {
                    "rank " (rank) ", env " (index) " · episode " (env.episode)
                    @if env.is_running { ", " time data-since=(env.began.text()) { "running" } }
                    @else { ", ended" }
                }
                @if env.ended > 0 {
                    small { (format::count(env.solved)) " of " (format::count(env.ended)) " solved here" }
                }
            }
        }
    }
}

/// Most jobs that have a button.
const MOST_BUTTONS: usize = 12;

/// Shows how far the run is, how fast, and the results so far.
fn head(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Markup {
    let badges = html! {
        @match (view.is_under_way, view.report.partial) {
            (true, _) => { span.badge.good { "Running" } }
            (false, true) => { span.badge.bad { "Ended early" } }
            (false, false) => { span.badge.good { "Complete" } }
        }
        span.badge.bad #lost hidden { "No connection" }
    };
    let names = ["rrun evaluation, live", &view.title()];
    html! {
        (headline::top(view.report, names, badges, zone))
        (pace(view))
        (buttons(view, extras))
        (headline::results(view.report, "To come"))
    }
}

/// Shows the share of episodes that have ended, their rate, and the time that is left.
fn pace(view: &LiveView) -> Markup {
    let overall = &view.report.overall;
    let Some(expected) = overall.expected.filter(|expected| *expected > 0) else {
        return html! { @if !view.is_under_way { p.pace { (ended(view)) } } };
    };
    let share = (overall.episodes as f64 / expected as f64).min(1.0) * 100.0;
    html! {
        svg.pace width="100%" height="6" role="img" aria-label={ (format!("{share:.0}")) " % of the episodes" } {
            rect.life x="0" y="0" width="100%" height="6" {}
            rect.solved x="0" y="0" width=(place(share)) height="6" {}
        }
        p.pace {
            @if !view.is_under_way { (ended(view)) }
            @else if let Some(rate) = view.per_second() {
                b { (format::digits(rate * 60.0)) } " episodes per minute"
                @if let Some(left) = view.left_s() { ", about " b { (format::seconds(left)) } " left" }
            } @else {
                "The rate is known when some episodes have ended."
            }
        }
    }
}

/// Says that the run has ended, and where its report is. The script looks for the id.
fn ended(view: &LiveView) -> Markup {
    let page = view.folder.page();
    let page = std::path::absolute(&page).unwrap_or(page);
    html! { span #ended { "The run has ended. Its report is " code { (page.display()) } "." } }
}

/// Shows what a client with the token may ask for.
fn buttons(view: &LiveView, extras: &LiveExtras) -> Markup {
    if !extras.has_buttons || !view.is_under_way {
        return html! {};
    }
    let open: Vec<_> = view.open_jobs().collect();
    html! {
        div.commands role="group" aria-label="Commands" {
            @if extras.is_stopping {
                p { "The episodes that run are finished, then the run ends." }
            } @else {
                button type="button" data-command="stop" data-confirm="Begin no more episodes, and end the run?" {
                    "Stop after these episodes"
                }
                @for name in open.iter().take(MOST_BUTTONS) {
                    @if extras.skipped.contains(*name) { span.muted { "skipping " (name) } }
                    @else {
                        button type="button" data-command="skip" data-job=(name)
                            data-confirm={ "Begin no more episodes of " (name) "?" } { "Skip " (name) }
                    }
                }
            }
        }
    }
}
