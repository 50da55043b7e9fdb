//! Shows videos of unsolved episodes. The videos stay where they are and are loaded when they are
//! played, which works from a folder as well as from a server.

use std::collections::BTreeMap;

use jobs::episode::{End, VideoRef};
use jobs::format;
use maud::{Markup, html};

use crate::page::parts::{MOST_NAME, clip, cut, heads, href, number, table};
use crate::{Report, Unsolved};

/// Maximum number of episodes shown, of those with a video and of those without.
const MOST: usize = 12;

pub(super) fn section(report: &Report) -> Markup {
    let has_broken = report
        .failures
        .iter()
        .any(|failure| failure.episode.is_some());
    let is_filmed =
        |episode: &&Unsolved| episode.video.is_some() || episode.episode_video.is_some();
    let (filmed, unfilmed): (Vec<_>, Vec<_>) = report.unsolved.iter().partition(is_filmed);
    let (films, others) = (fair(&filmed, MOST), fair(&unfilmed, MOST));
    let all = report.unsolved_count;
    html! {
        @if all == 0 {
            p.lead {
                @if has_broken { "Every episode that ran to its end was solved." }
                @else { "None: every episode was solved." }
            }
        } @else {
            p.lead {
                (format::counted(all, "episode", "episodes")) " ran to the end without success; "
                "here are a few of each job. The same seed reproduces the same episode."
            }
        }
        @if !films.is_empty() {
            div.films { @for film in &films { (self::film(film)) } }
            (cut(filmed.len() - films.len()))
        }
        @if !others.is_empty() {
            @if !films.is_empty() { h3 { "Without a film" } }
            (listed(&others))
            (cut(unfilmed.len() - others.len()))
        }
    }
}

/// Selects at most `most` episodes: the first of each job before the second of any job, in their
/// order.
fn fair<'a>(episodes: &[&'a Unsolved], most: usize) -> Vec<&'a Unsolved> {
    let mut of_job: BTreeMap<&str, usize> = BTreeMap::new();
    let mut turns: Vec<_> = episodes
        .iter()
        .enumerate()
        .map(|(at, episode)| {
            let turn = of_job.entry(&episode.job).or_default();
            *turn += 1;
            (*turn, at)
        })
        .collect();
    turns.sort_unstable();
    turns.truncate(most);
    turns.sort_unstable_by_key(|(_, at)| *at);
    turns.into_iter().map(|(_, at)| episodes[at]).collect()
}

fn film(episode: &Unsolved) -> Markup {
    let Some((source, file, from)) = source(episode) else {
        return html! {};
    };
    html! {
        figure.film {
            video controls muted playsinline preload="none" src=(source)
                aria-label={ (episode.job) ", episode " (episode.episode) } {}
            figcaption {
                b { (clip(&episode.job, 60)) } " · episode " (episode.episode)
                small { (story(episode)) }
                small {
                    "seed " (episode.seed) ", rank " (episode.rank) ", " a href=(href(file)) { "file" } (from)
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

fn listed(episodes: &[&Unsolved]) -> Markup {
    let heads = heads(["Job", "Episode", "Seed", "Rank", "What happened"]);
    let plain = |value: u64| number(Some(value as f64), |_| value.to_string());
    let row = |episode: &&Unsolved| {
        vec![
            clip(&episode.job, MOST_NAME).into(),
            plain(episode.episode),
            plain(episode.seed),
            plain(episode.rank as u64),
            story(episode).into(),
        ]
    };
    table(["Unsolved episodes", ""], &heads, episodes.iter(), row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsolved(job: &str, episode: u64) -> Unsolved {
        Unsolved {
            job: job.to_owned(),
            episode,
            seed: 1,
            rank: 0,
            end: End::TimeLimit,
            length: 100,
            return_: 0.5,
            max_reward: None,
            video: None,
            episode_video: None,
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
