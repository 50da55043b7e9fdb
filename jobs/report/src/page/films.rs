//! Shows videos of unsolved episodes. The videos stay where they are and are loaded when they are
//! played, which works from a folder as well as from a server.

use std::collections::BTreeMap;

use jobs::episode::{End, VideoRef};
use jobs::format;
use maud::{Markup, html};

use crate::page::parts::{clip, cut, href};
use crate::{Report, Unsolved};

/// Maximum number of episodes shown, of those with a video and of those without.
const MOST: usize = 12;

pub(super) const NAMES: [&str; 3] = ["films", "Unsolved", "Episodes that were not solved"];

pub(super) fn section(report: &Report) -> Markup {
    let (filmed, unfilmed): (Vec<_>, Vec<_>) =
        (report.unsolved.iter()).partition(|episode| source(episode).is_some());
    html! {
        p.lead {
            @if report.unsolved_count > 0 {
                (format::counted(report.unsolved_count, "episode", "episodes")) " ran to the end without success; "
                "here are a few of each job. The same seed reproduces the same episode."
            }
            @else if report.overall.errors > 0 { "Every episode that ran to its end was solved." }
            @else { "None: every episode was solved." }
        }
        @for (episodes, name) in [(&filmed, ""), (&unfilmed, "Without a film")] {
            @if !name.is_empty() && !filmed.is_empty() && !unfilmed.is_empty() { h3 { (name) } }
            @if !episodes.is_empty() {
                div.films { @for episode in fair(episodes, MOST) { (film(episode)) } }
            }
            (cut(episodes.len().saturating_sub(MOST)))
        }
    }
}

/// Selects at most `most` episodes: the first of each job before the second of any job, in their
/// order.
fn fair<'a>(episodes: &[&'a Unsolved], most: usize) -> Vec<&'a Unsolved> {
    let mut of_job: BTreeMap<&str, usize> = BTreeMap::new();
    let turn = |(at, episode): (usize, &&'a Unsolved)| {
        let turn = of_job.entry(&episode.job).or_default();
        *turn += 1;
        (*turn, at)
    };
    let mut turns: Vec<_> = episodes.iter().enumerate().map(turn).collect();
    turns.sort_unstable();
    turns.truncate(most);
    turns.sort_unstable_by_key(|(_, at)| *at);
    turns.into_iter().map(|(_, at)| episodes[at]).collect()
}

fn film(episode: &Unsolved) -> Markup {
    let source = source(episode);
    let label = format!("{}, episode {}", episode.job, episode.episode);
    html! {
        figure.film {
            @if let Some((link, ..)) = &source {
                video controls muted playsinline preload="none" src=(link) aria-label=(label) {}
            }
            figcaption {
                b { (clip(&episode.job, 60)) } " · episode " (episode.episode)
                small { (story(episode)) }
                small {
                    "seed " (episode.seed) ", rank " (episode.rank)
                    @if let Some((_, file, from)) = source { ", " a href=(href(file)) { "file" } (from) }
                }
            }
        }
    }
}

/// Returns the link to play, the path of the file, and where the episode begins in it, if it is not
/// at the start.
fn source(episode: &Unsolved) -> Option<(String, &str, String)> {
    if let Some(file) = &episode.episode_video {
        return Some((href(file), file, String::new()));
    }
    let video: &VideoRef = episode.video.as_ref()?;
    let first = video.first_frame;
    let (span, from) = match video.fps.filter(|fps| *fps > 0) {
        None => (String::new(), format!("frame {}", format::count(first))),
        Some(fps) => {
            let at = |frame: u64| frame as f64 / f64::from(fps);
            let span = format!("#t={:.3},{:.3}", at(first), at(first + video.frames));
            (span, format::seconds(at(first)))
        }
    };
    let from = match first {
        0 => String::new(),
        _ => format!(" from {from}"),
    };
    Some((href(&video.file) + &span, &video.file, from))
}

fn story(episode: &Unsolved) -> String {
    let end = match episode.end {
        End::TimeLimit => "time limit",
        End::Terminated => "ended unsolved",
        // Our reports do not list episodes with these ends as scored and unsolved.
        End::Success => "ended",
        End::Error => "broke",
    };
    let steps = format::counted(episode.length, "step", "steps");
    let most = episode.max_reward.map_or_else(String::new, |most| {
        format!(", largest reward {}", format::digits(most))
    });
    format!(
        "{end} after {steps}, return {}{most}",
        format::digits(episode.return_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsolved(job: &str, episode: u64) -> Unsolved {
        Unsolved {
            job: job.to_owned(),
            episode,
            ..Unsolved::default()
        }
    }

    #[test]
    fn a_bad_job_leaves_room_for_the_films_of_others() {
        let of_a = (0..50).map(|episode| unsolved("a", episode));
        let all: Vec<_> = of_a.chain([unsolved("b", 7)]).collect();
        let shown = fair(&all.iter().collect::<Vec<_>>(), 3);
        let shown: Vec<_> = shown.iter().map(|e| (e.job.as_str(), e.episode)).collect();
        assert_eq!(shown, [("a", 0), ("a", 1), ("b", 7)]);
    }

    #[test]
    fn a_film_begins_where_its_episode_does() {
        let video = VideoRef {
            file: "a b/v.mp4".to_owned(),
            first_frame: 43,
            frames: 43,
            fps: Some(20),
        };
        let episode = Unsolved {
            video: Some(video.clone()),
            ..unsolved("a", 1)
        };
        assert_eq!(source(&episode).unwrap().0, "./a%20b/v.mp4#t=2.150,4.300");
        let without = Unsolved {
            video: Some(VideoRef {
                fps: None,
                ..video.clone()
            }),
            ..unsolved("a", 1)
        };
        assert_eq!(source(&without).unwrap().0, "./a%20b/v.mp4");
        assert_eq!(source(&without).unwrap().2, " from frame 43");
        let alone = Unsolved {
            video: Some(video),
            episode_video: Some("e.mp4".to_owned()),
            ..unsolved("a", 1)
        };
        let (link, _, from) = source(&alone).unwrap();
        assert_eq!((link.as_str(), from.as_str()), ("./e.mp4", ""));
    }
}
