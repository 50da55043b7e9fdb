//! Parses the lines of one piece of a journal.

use std::borrow::Cow;

use jobs::job::JobIndex;
use jobs::journal::{Accepted, EpisodeStart, Line, LineOrigin, Subject, stamp_of};
use jobs::time::Moment;
use serde::Deserialize;

use crate::journals::pieces::JournalPiece;
use crate::journals::reader::LinePosition;
use crate::merged::record::{EpisodeLine, EpisodeRecord, InternedNames};

/// The beginning of an episode line that [`jobs::journal`] wrote.
pub(crate) const EPISODE: &[u8] = b"{\"type\":\"episode\",";

/// The beginning of the line that marks the start of an episode.
pub(crate) const EPISODE_START: &[u8] = b"{\"type\":\"episode_start\",";

/// The parsed lines of one piece.
#[derive(Default)]
pub(crate) struct PieceScan {
    /// Number of lines, including empty ones.
    pub(crate) lines: u64,
    /// Episodes with their jobs.
    pub(crate) episodes: Vec<(JobIndex, EpisodeRecord)>,
    /// File names and instructions of these episodes.
    pub(crate) names: InternedNames,
    /// All other lines, in order, except those that mark the start of an episode.
    pub(crate) others: Vec<Other>,
    /// The lines that mark the start of an episode with their offsets, if they are wanted.
    pub(crate) episode_starts: Vec<(u64, EpisodeStart)>,
    /// Numbers of lines that are not journal lines, counted from 0 within the piece.
    pub(crate) damaged: Vec<u64>,
    /// Numbers of lines of another run, or of a job that has changed since, counted in the same
    /// way.
    pub(crate) foreign: Vec<u64>,
    /// Numbers of lines of episodes that the plan does not have, counted as those.
    pub(crate) unplanned: Vec<u64>,
    /// Bytes of an incomplete last line.
    pub(crate) torn: u64,
    /// Moments of the first and the last line that have one.
    pub(crate) span: Option<[Moment; 2]>,
}

/// Whether lines that mark the start of an episode are parsed. They are half of all lines, and say
/// only what is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpisodeStarts {
    /// A report does not need them.
    Skipped,
    /// Somebody watches the run.
    Parsed,
}

/// A line that is not about the end of an episode.
pub(crate) struct Other {
    pub(crate) line: Line,
    pub(crate) place: LinePosition,
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

/// Parses the lines of a piece of the journal `source`.
pub(crate) fn scan(
    piece: &JournalPiece,
    source: u32,
    accepted: &Accepted,
    starts: EpisodeStarts,
) -> PieceScan {
    let mut scan = PieceScan {
        torn: piece.torn,
        ..PieceScan::default()
    };
    let mut last: &[u8] = b"";
    for (offset, line) in piece.lines() {
        let place = LinePosition {
            source,
            offset,
            len: u32::try_from(line.len()).unwrap_or(u32::MAX),
        };
        let number = scan.lines;
        scan.lines += 1;
        if scan.lines == 1 {
            scan.saw(line);
        }
        if line.starts_with(EPISODE) {
            match serde_json::from_slice::<EpisodeLine>(line) {
                Ok(line) => {
                    let subject = Subject {
                        job: Some(line.job_index),
                        episode: Some(line.episode),
                    };
                    let origin =
                        accepted.origin(subject, line.run.as_deref(), line.fingerprint.as_deref());
                    if scan.takes(origin, number) {
                        let record = line.record(place, &mut scan.names);
                        scan.episodes.push((line.job_index, record));
                    }
                }
                Err(_) => scan.damaged.push(number),
            }
        } else if line.starts_with(EPISODE_START) {
            if starts == EpisodeStarts::Parsed {
                scan.episode_start(line, offset, accepted);
            }
        } else if !line.is_empty() {
            match serde_json::from_slice::<Line>(line) {
                Ok(parsed) => {
                    let stamp = stamp_of(line);
                    let origin = accepted.origin(
                        parsed.subject(),
                        stamp.run.as_deref(),
                        stamp.fingerprint.as_deref(),
                    );
                    if !scan.takes(origin, number) {
                        last = line;
                        continue;
                    }
                    scan.saw(last);
                    let before = scan.span.filter(|_| number > 0).map(|[_, last]| last);
                    scan.other(parsed, place, before);
                }
                Err(_) => scan.damaged.push(number),
            }
        }
        last = line;
    }
    scan.saw(last);
    scan
}

impl PieceScan {
    /// Returns whether a line of this origin counts; records the others.
    fn takes(&mut self, origin: LineOrigin, number: u64) -> bool {
        match origin {
            LineOrigin::Own => {}
            LineOrigin::Foreign => self.foreign.push(number),
            LineOrigin::Unplanned => self.unplanned.push(number),
        }
        origin.counts()
    }

    /// Takes a line that marks the start of an episode of this run; others are ignored.
    fn episode_start(&mut self, line: &[u8], offset: u64, accepted: &Accepted) {
        let Ok(Line::EpisodeStart(start)) = serde_json::from_slice(line) else {
            return;
        };
        let subject = Subject {
            job: Some(start.job_index),
            episode: Some(start.episode),
        };
        let stamp = stamp_of(line);
        let origin = accepted.origin(subject, stamp.run.as_deref(), stamp.fingerprint.as_deref());
        if origin.counts() {
            self.episode_starts.push((offset, start));
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

    fn other(&mut self, line: Line, place: LinePosition, before: Option<Moment>) {
        match line {
            // The line has its fields in another order, so `rrun` did not write it.
            Line::Episode(episode) => {
                if let Ok(text) = serde_json::to_vec(&episode)
                    && let Ok(line) = serde_json::from_slice::<EpisodeLine>(&text)
                {
                    let record = EpisodeRecord {
                        is_ours: false,
                        ..line.record(place, &mut self.names)
                    };
                    self.episodes.push((line.job_index, record));
                }
            }
            Line::EpisodeStart(_) => {}
            line => self.others.push(Other {
                line,
                place,
                before,
            }),
        }
    }
}
