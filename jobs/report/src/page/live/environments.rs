//! Shows each environment: its newest picture, and the episode that it runs.

use std::collections::BTreeSet;

use maud::{Markup, html};

use crate::live::view::RankState;
use crate::live::{EnvActivity, LiveView, RankActivity};
use crate::page::live::LiveExtras;
use crate::page::parts::clip;
use jobs::format;

/// Most environments that are shown.
const MOST: usize = 48;

/// One environment of a rank.
struct Cell<'a> {
    rank: usize,
    index: usize,
    env: &'a EnvActivity,
}

pub(super) fn section(view: &LiveView, extras: &LiveExtras) -> Markup {
    let ranks: Vec<_> = view.activity.ranks().collect();
    let cells: Vec<_> = ranks
        .iter()
        .flat_map(|(rank, found)| cells(*rank, found))
        .collect();
    html! {
        @if ranks.is_empty() { p.lead { "No rank has begun." } }
        @else { ul.ranks { @for (rank, activity) in ranks.iter().take(MOST) { (state(view, *rank, activity)) } } }
        @if ranks.len() > MOST { p.cut { (format::count(MOST as u64)) " of " (format::count(ranks.len() as u64)) " ranks" } }
        @if !cells.is_empty() {
            div.envs { @for cell in cells.iter().take(MOST) { (environment(view, cell, &extras.pictures)) } }
        }
        @if cells.len() > MOST {
            p.cut { (format::count(MOST as u64)) " of " (format::count(cells.len() as u64)) " environments are shown." }
        }
    }
}

fn cells(rank: usize, activity: &RankActivity) -> impl Iterator<Item = Cell<'_>> {
    let envs = activity.envs.iter();
    envs.map(move |(index, env)| Cell {
        rank,
        index: *index,
        env,
    })
}

fn state(view: &LiveView, rank: usize, activity: &RankActivity) -> Markup {
    let (class, text) = match view.rank_state(rank, activity) {
        RankState::Job { name, running } => (
            "busy",
            format!(
                "{}, {}",
                clip(name, 60),
                format::counted(running as u64, "episode runs", "episodes run")
            ),
        ),
        RankState::Idle => ("idle", "no job".to_owned()),
        RankState::Done => ("idle", "done".to_owned()),
        RankState::Stopped => ("idle", "stopped".to_owned()),
        RankState::Died => ("failed", "died".to_owned()),
    };
    html! {
        li { span class={ "dot " (class) } {} b { "rank " (rank) } " " span.muted { (clip(&activity.host, 40)) " · " (activity.device) } " " (text) }
    }
}

fn environment(view: &LiveView, cell: &Cell, pictures: &BTreeSet<(usize, usize)>) -> Markup {
    let Cell { rank, index, env } = *cell;
    let name = view.job(env.job).map_or("", |job| job.name.as_str());
    let has_picture = pictures.contains(&(rank, index));
    html! {
        figure.env data-key={ (rank) "/" (index) } {
            // The caption says what the picture shows, also while there is none to load.
            @if has_picture { img data-picture={ (rank) "/" (index) } width="160" height="120" alt=""; }
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
