//! Parses the lines of one piece of a journal.

use std::borrow::Cow;

use jobs::job::JobIndex;
use jobs::journal::{Accepted, Line, LineOrigin};
use jobs::time::Moment;
use serde::Deserialize;

use crate::journals::LinePosition;
use crate::journals::pieces::JournalPiece;
use crate::merged::record::{EpisodeRecord, InternedNames};

/// The beginning of the line that marks the start of an episode.
pub(crate) const EPISODE_START: &[u8] = b"{\"type\":\"episode_start\",";

/// The parsed lines of one piece.
#[derive(Default)]
pub(crate) struct PieceScan {
    /// Number of lines, including empty ones.
    pub(crate) lines: u64,
    /// The lines that count, in order; those that mark the start of an episode if they are wanted.
    pub(crate) found: Vec<Found>,
    /// File names and instructions of the episodes.
    pub(crate) names: InternedNames,
    /// The lines that do not count, by their numbers within the piece.
    pub(crate) damage: Damage,
    /// Moments of the first and the last line that have one.
    pub(crate) span: Option<[Moment; 2]>,
}

/// A line that counts.
pub(crate) enum Found {
    /// The end of an episode of this job.
    Episode(JobIndex, EpisodeRecord),
    /// Any other line.
    Other(Other),
}

/// A line that is not about the end of an episode.
pub(crate) struct Other {
    pub(crate) line: Line,
    /// When the line before was written, if that line is in this piece.
    pub(crate) before: Option<Moment>,
}

/// The possible time fields of a line.
#[derive(Deserialize)]
struct When<'a> {
    #[serde(borrow)]
    started: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ended: Option<Cow<'a, str>>,
    #[serde(borrow)]
    at: Option<Cow<'a, str>>,
}

/// Returns when a line was written; `None` if it has no time.
fn moment(line: &[u8]) -> Option<Moment> {
    let when: When = serde_json::from_slice(line).ok()?;
    let moment = Moment::parse(&when.ended.or(when.at).or(when.started)?);
    moment.is_known().then_some(moment)
}

/// Parses the lines of a piece of the journal `source`. Lines that mark the start of an episode are
/// half of all lines and say only what is under way, so they are parsed only for who watches the
/// run.
pub(crate) fn scan(
    piece: &JournalPiece,
    source: u32,
    accepted: &Accepted,
    is_watched: bool,
) -> PieceScan {
    let mut scan = PieceScan::default();
    scan.damage.torn = piece.torn;
    let mut last: &[u8] = b"";
    for (offset, line) in piece.lines() {
        let place = LinePosition {
            source,
            offset,
            len: u32::try_from(line.len()).unwrap_or(u32::MAX),
        };
        scan.lines += 1;
        if scan.lines == 1 {
            scan.saw(line);
        }
        if line.starts_with(EPISODE_START) {
            if is_watched && let Ok((line, LineOrigin::Own)) = accepted.judge(line) {
                let before = None;
                scan.found.push(Found::Other(Other { line, before }));
            }
        } else if !line.is_empty() {
            match accepted.judge(line) {
                Ok((parsed, LineOrigin::Own)) => scan.takes(parsed, place, last),
                Ok((_, LineOrigin::Foreign)) => scan.damage.foreign.push(scan.lines),
                Ok((_, LineOrigin::Unplanned)) => scan.damage.unplanned.push(scan.lines),
                Err(_) => scan.damage.lines.push(scan.lines),
            }
        }
        last = line;
    }
    scan.saw(last);
    scan
}

impl PieceScan {
    /// Takes a line that counts; `last` is the line before it.
    fn takes(&mut self, line: Line, place: LinePosition, last: &[u8]) {
        match line {
            Line::Episode(episode) => {
                let record = EpisodeRecord::of(&episode, place, &mut self.names);
                self.found.push(Found::Episode(episode.job_index, record));
            }
            Line::EpisodeStart(_) => {}
            line => {
                self.saw(last);
                let before = self.span.filter(|_| self.lines > 1).map(|[_, last]| last);
                self.found.push(Found::Other(Other { line, before }));
            }
        }
    }

    /// Records when a line was written. This is not called for every line, because only few times
    /// matter.
    fn saw(&mut self, line: &[u8]) {
        if let Some(moment) = moment(line) {
            let [first, last] = self.span.unwrap_or([moment; 2]);
            self.span = Some([first, last.max(moment)]);
        }
    }
}

/// Lines of a journal that do not count: damaged or foreign ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Path of the journal, relative to the run folder.
    pub journal: String,
    /// Numbers of complete lines that are not journal lines, from 1.
    pub lines: Vec<u64>,
    /// Bytes of an incomplete last line.
    pub torn: u64,
    /// Numbers of lines of another run, or of a job that has changed since or is not in the plan,
    /// from 1.
    pub foreign: Vec<u64>,
    /// Numbers of lines of episodes that the plan does not have, from 1.
    pub unplanned: Vec<u64>,
}

impl Damage {
    /// Adds the damage of a piece, which `before` lines of the journal precede.
    pub(super) fn add(&mut self, piece: Self, before: u64) {
        self.torn += piece.torn;
        let lists = [
            (&mut self.lines, piece.lines),
            (&mut self.foreign, piece.foreign),
            (&mut self.unplanned, piece.unplanned),
        ];
        for (all, numbers) in lists {
            all.extend(numbers.into_iter().map(|number| before + number));
        }
    }

    /// Whether it is no more than what a kill leaves.
    pub fn is_torn_only(&self) -> bool {
        self.lines.is_empty() && self.is_unreadable_only()
    }

    /// Whether all of it cannot be read, and nothing is of another run, job or episode.
    pub fn is_unreadable_only(&self) -> bool {
        self.foreign.is_empty() && self.unplanned.is_empty()
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        for (lines, kind, why) in [
            (&self.lines, "damaged", ""),
            (
                &self.foreign,
                "foreign",
                ": of another run, or of a job that has changed since or is not in the plan",
            ),
            (
                &self.unplanned,
                "unplanned",
                ": of episodes that are not in the plan",
            ),
        ] {
            if !lines.is_empty() {
                let (count, which) = (lines.len(), numbered(lines));
                parts.push(format!("{count} {kind} {which}{why}"));
            }
        }
        if self.torn > 0 {
            parts.push(format!("the last line is torn ({} bytes)", self.torn));
        }
        write!(f, "`{}`: {}", self.journal, parts.join("; "))
    }
}

/// Formats line numbers as `lines (3, 4)`, at most the first five.
fn numbered(lines: &[u64]) -> String {
    let first: Vec<_> = lines.iter().take(5).map(u64::to_string).collect();
    let more = if lines.len() > 5 { ", …" } else { "" };
    let plural = if lines.len() > 1 { "s" } else { "" };
    format!("line{plural} ({}{more})", first.join(", "))
}
