//! Shows each environment: its newest picture, and the episode that it runs.

use jobs::format;
use maud::{Markup, html};

use crate::live::{EnvActivity, LiveView};
use crate::page::live::LiveExtras;
use crate::page::parts::{MOST_NAME, clip};

/// Most ranks, and most environments, that are shown.
const MOST: usize = 48;

pub(super) fn section(view: &LiveView, extras: &LiveExtras) -> Markup {
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
                    span.muted { (clip(&activity.host, 40)) " · " (activity.device) } " "
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
