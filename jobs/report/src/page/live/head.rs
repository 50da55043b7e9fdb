//! Shows how far the run is, how fast, and the results so far.

use jobs::format;
use maud::{Markup, html};

use crate::live::LiveView;
use crate::page::chart::place;
use crate::page::clock::Zone;
use crate::page::headline;
use crate::page::live::LiveExtras;

/// Most jobs that have a button.
const MOST_BUTTONS: usize = 12;

pub(super) fn section(view: &LiveView, extras: &LiveExtras, zone: &Zone) -> Markup {
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
