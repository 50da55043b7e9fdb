//! What a rank keeps of one journal. Pure: no I/O.

use std::collections::{BTreeMap, BTreeSet};

use jobs::job::JobIndex;
use jobs::journal::Line;
use jobs::suspects::Suspects;

/// What a rank keeps of one journal.
#[derive(Debug, Default)]
pub struct JournalPart {
    /// Episodes that may have killed the rank of the journal.
    pub suspects: Suspects,
    /// UTC time at which that rank began in this launch, if it did.
    pub began: Option<String>,
    /// The lines that decide what is left to do, in their order.
    pub lines: Vec<Line>,
}

impl JournalPart {
    /// Takes from the lines of a journal what is kept, in the launch of this name.
    pub fn of(lines: Vec<Line>, launch: Option<&str>) -> Self {
        let mut suspects = Suspects::default();
        suspects.add(&lines);
        let began = named(&lines, launch).and_then(|first| started(&lines[first]));
        Self {
            suspects,
            began,
            lines: lines.into_iter().filter_map(kept).collect(),
        }
    }
}

/// Returns what a rank keeps of a line as long as it runs: nothing of the start of an episode, which
/// only tells who is suspect, and of its end only what decides what is left to do.
fn kept(line: Line) -> Option<Line> {
    match line {
        Line::EpisodeStart(_) => None,
        Line::Episode(mut episode) => {
            episode.job = String::new();
            episode.language_instruction = String::new();
            episode.metrics = BTreeMap::new();
            (episode.video, episode.episode_video) = (None, None);
            Some(Line::Episode(episode))
        }
        line => Some(line),
    }
}

/// Returns the lines since this rank's launch began. A launcher that does not name its launches
/// gives each restart a new name; then the restart counter tells where the launch began.
pub fn this_launch<'a>(lines: &'a [Line], launch: Option<&str>) -> &'a [Line] {
    let first = named(lines, launch)
        .or_else(|| lines.iter().rposition(is_fresh))
        .unwrap_or(0);
    &lines[first..]
}

/// Returns the index of the line with which a rank began in the launch of this name.
fn named(lines: &[Line], launch: Option<&str>) -> Option<usize> {
    let launch = launch?;
    let is_named =
        |line: &Line| matches!(line, Line::Rank(start) if start.launch.as_deref() == Some(launch));
    lines
        .iter()
        .position(is_named)
        .filter(|first| is_fresh(&lines[*first]))
}

fn is_fresh(line: &Line) -> bool {
    matches!(line, Line::Rank(start) if start.restart == 0)
}

/// Returns when the rank began that wrote this line at its start.
pub fn started(line: &Line) -> Option<String> {
    if let Line::Rank(start) = line {
        Some(start.started.clone())
    } else {
        None
    }
}

/// Returns the jobs that have failed and are not retried.
pub fn failed_for_good(launch: &[Line]) -> BTreeSet<JobIndex> {
    let failed = launch.iter().filter_map(|line| match line {
        Line::JobEnd(end) if end.error.is_some() && !end.retried => Some(end.job_index),
        _ => None,
    });
    failed.collect()
}

/// Returns how often a rank has begun in a round of the launch of this name.
pub fn starts_in(lines: &[Line], launch: Option<&str>, round: u32) -> usize {
    let is_start = |line: &&Line| match line {
        Line::Rank(start) => start.round == round && start.launch.as_deref() == launch,
        _ => false,
    };
    lines.iter().filter(is_start).count()
}
