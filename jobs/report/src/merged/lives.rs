//! Reconstructs the lives of a rank from its journal. A life is one process of the rank, from its
//! start to its end.
//!
//! ```text
//! RankStart ── JobStart ─ JobEnd ── JobStart ─ JobEnd ── RankEnd   one life, two spans
//! RankStart ── JobStart ─ …                                        cut off: RankStart or end next
//! ```
//! A life without a [`RankEnd`](jobs::journal::RankEnd) was cut off: the life and its open job end
//! with the last line. A life whose end reports a failure died as well. The times in the lines of
//! episodes are enough to date such an end.

use jobs::costs::Costs;
use jobs::job::JobIndex;
use jobs::journal::{JobEnd, Line, RankEnd, RankStart};
use jobs::time::Moment;

use crate::journals::Journals;
use crate::journals::source::JournalSource;
use crate::merged::scan::Other;
use crate::schema::HowEnded;

/// The lines of one journal about its rank, and the lives that result.
pub(crate) struct Events {
    /// Path of the journal, relative to the run folder.
    pub(crate) journal: String,
    /// The rank, from the name of the journal.
    pub(crate) rank: usize,
    /// The last life as it was before it was closed although it has no end.
    open: Option<LifeLines>,
    last: Moment,
    /// The lives that the lines describe.
    pub(crate) lives: Vec<LifeLines>,
    /// Lives that are not part of the run, see [`set_aside`].
    pub(crate) repeats: Vec<LifeLines>,
    /// What the jobs have cost.
    pub(crate) costs: Costs,
    /// For each job, the share of time in which the GPU was busy, and the seconds that it is over.
    pub(crate) gpu_busy: Vec<(f64, f64)>,
}

/// One life of a rank: one process from its start to its end.
#[derive(Clone)]
pub(crate) struct LifeLines {
    pub(crate) start: RankStart,
    pub(crate) ended: Moment,
    pub(crate) how: HowEnded,
    /// The end that the rank wrote; `None` if it died before.
    pub(crate) end: Option<RankEnd>,
    pub(crate) spans: Vec<SpanLines>,
}

/// One job in a life.
#[derive(Clone)]
pub(crate) struct SpanLines {
    pub(crate) job: JobIndex,
    pub(crate) attempt: u32,
    pub(crate) started: Moment,
    pub(crate) ended: Moment,
    pub(crate) whole: bool,
    pub(crate) error: Option<String>,
}

impl Events {
    /// Creates the events of a journal of which nothing has been read.
    pub(crate) fn of(source: &JournalSource) -> Self {
        Self {
            journal: source.name.clone(),
            rank: source.rank,
            open: None,
            last: Moment::default(),
            lives: Vec::new(),
            repeats: Vec::new(),
            costs: Costs::default(),
            gpu_busy: Vec::new(),
        }
    }

    /// Takes the next line that is about the rank or a job.
    pub(crate) fn add(&mut self, other: &Other) {
        self.reopen();
        let before = other.before.unwrap_or(self.last);
        let open = self.open_life();
        match (&other.line, open) {
            (Line::Rank(start), open) => {
                open.into_iter()
                    .for_each(|life| life.close(before, HowEnded::Died));
                self.lives.push(LifeLines::new((**start).clone()));
            }
            (line, Some(life)) => life.on(line),
            // An end without a start: somebody has truncated the journal.
            (_, None) => {}
        }
        if let Line::JobEnd(end) = &other.line {
            self.costs.add(&end.costs);
            self.gpu_busy.extend(busy(end));
        }
    }

    /// Returns the life that has no end so far.
    fn open_life(&mut self) -> Option<&mut LifeLines> {
        self.lives
            .last_mut()
            .filter(|life| life.how == HowEnded::Running)
    }

    /// Records that a line of the journal was written at this moment.
    pub(crate) fn saw(&mut self, moment: Moment) {
        self.last = self.last.max(moment);
    }

    /// Builds the lives, after lines were added. A life that goes on, because its journal is held
    /// or its launch is alive elsewhere, lasts until `now`, otherwise to the last line.
    pub(crate) fn settle(&mut self, is_held: bool, journals: &Journals, now: Option<Moment>) {
        self.reopen();
        let seen = self.last;
        if let Some(life) = self.open_life() {
            let before = life.clone();
            let (last, how) = match is_held || journals.runs_unseen(&life.start) {
                true => (now.unwrap_or_default().max(seen), HowEnded::Running),
                false => (seen, HowEnded::Died),
            };
            life.close(last, how);
            self.open = Some(before);
        }
    }

    /// Undoes the end of the last call, because more lines may follow.
    fn reopen(&mut self) {
        let open = self.open.take();
        if open.is_some() {
            self.lives.pop();
        }
        if !self.repeats.is_empty() {
            self.lives.append(&mut self.repeats);
            self.lives
                .sort_by_key(|life| Moment::parse(&life.start.started));
        }
        self.lives.extend(open);
    }

    /// Returns the latest start of the rank.
    pub(crate) fn place(&self) -> Option<&RankStart> {
        self.lives.last().map(|life| &life.start)
    }

    /// Returns all starts of the rank, those of [`Events::repeats`], too.
    pub(crate) fn starts(&self) -> impl Iterator<Item = &RankStart> {
        let lives = self.lives.iter().chain(&self.repeats);
        lives.map(|life| &life.start)
    }
}

impl LifeLines {
    fn new(start: RankStart) -> Self {
        let ended = Moment::parse(&start.started);
        Self {
            start,
            ended,
            how: HowEnded::Running,
            end: None,
            spans: Vec::new(),
        }
    }

    fn on(&mut self, line: &Line) {
        match line {
            Line::JobStart(start) => {
                let at = Moment::parse(&start.started);
                self.cut(at);
                self.spans.push(SpanLines {
                    job: start.job_index,
                    attempt: start.attempt,
                    started: at,
                    ended: at,
                    whole: false,
                    error: None,
                });
            }
            Line::JobEnd(end) => {
                let at = Moment::parse(&end.ended);
                // A job that failed before it began has an end but no start.
                let is_begun = |span: &mut SpanLines| !span.whole && span.job == end.job_index;
                let begun = self.spans.pop_if(is_begun);
                let started = begun.map_or_else(|| at.minus(end.wall_s), |span| span.started);
                self.cut(started);
                self.spans.push(SpanLines {
                    job: end.job_index,
                    attempt: end.attempt,
                    started,
                    ended: at,
                    whole: true,
                    error: end.error.clone(),
                });
            }
            Line::RankEnd(end) => {
                let how = match (&end.failure, end.stopped) {
                    (Some(_), _) => HowEnded::Died,
                    (None, true) => HowEnded::Stopped,
                    (None, false) => HowEnded::Done,
                };
                self.close(Moment::parse(&end.ended), how);
                self.end = Some(end.clone());
            }
            _ => {}
        }
    }

    /// Ends the open job, if there is one, at `at`.
    fn cut(&mut self, at: Moment) {
        if let Some(span) = self
            .spans
            .last_mut()
            .filter(|span| !span.whole && span.ended <= span.started)
        {
            span.ended = span.started.max(at);
        }
    }

    fn close(&mut self, at: Moment, how: HowEnded) {
        self.ended = self.ended.max(at);
        self.cut(self.ended);
        self.how = how;
    }

    /// Returns the first and the last moment of the life.
    pub(crate) fn extent(&self) -> [Moment; 2] {
        [Moment::parse(&self.start.started), self.ended]
    }

    /// Returns the seconds in jobs: as the rank reported them, otherwise computed from its lines.
    pub(crate) fn busy_s(&self) -> f64 {
        let by_lines = || {
            self.spans
                .iter()
                .map(|span| span.ended.since(span.started))
                .sum()
        };
        self.end.as_ref().map_or_else(by_lines, |end| end.busy_s)
    }

    /// Returns the seconds of the whole life: as the rank reported them, otherwise computed from
    /// its lines.
    pub(crate) fn wall_s(&self) -> f64 {
        let by_lines = || self.ended.since(Moment::parse(&self.start.started));
        self.end.as_ref().map_or_else(by_lines, |end| end.wall_s)
    }
}

/// Moves the lives of launches that found everything done to `repeats`. They are not part of the
/// run, which would otherwise seem to have lasted until then. A rank that waited while another one
/// worked keeps its life, and so does one that died, because the user needs to see it. Returns
/// whether any life was moved.
pub(crate) fn set_aside(all: &mut [Events]) -> bool {
    let lives = all.iter().flat_map(|events| &events.lives);
    let worked = lives.filter(|life| !life.spans.is_empty());
    let work = lasting(worked.map(LifeLines::extent).collect());
    if work.is_empty() {
        return false;
    }
    let is_repeat = |life: &mut LifeLines| {
        let ended_well = matches!(life.how, HowEnded::Done | HowEnded::Stopped);
        life.spans.is_empty() && ended_well && !meets(&work, life.extent())
    };
    for events in &mut *all {
        events.repeats = events.lives.extract_if(.., is_repeat).collect();
    }
    all.iter().any(|events| !events.repeats.is_empty())
}

/// Returns the first and the last moment of the remaining lives, and of episodes in journals
/// without lives.
pub(crate) fn span(all: &[Events], episodes: impl Iterator<Item = Moment>) -> Option<[Moment; 2]> {
    let lives = all
        .iter()
        .flat_map(|events| &events.lives)
        .flat_map(LifeLines::extent);
    let known = lives.chain(episodes).filter(|moment| moment.is_known());
    known.fold(None, |span, at| {
        let [first, last] = span.unwrap_or([at; 2]);
        Some([first.min(at), last.max(at)])
    })
}

/// Sorts time spans; each lasts until the end of all that have begun by then.
fn lasting(mut spans: Vec<[Moment; 2]>) -> Vec<[Moment; 2]> {
    spans.sort();
    let mut last = Moment::default();
    for [_, to] in &mut spans {
        last = last.max(*to);
        *to = last;
    }
    spans
}

/// Returns whether a span overlaps or touches one of those that [`lasting`] has sorted.
fn meets(lasting: &[[Moment; 2]], [from, to]: [Moment; 2]) -> bool {
    let begun = lasting.partition_point(|span| span[0] <= to);
    lasting[..begun].last().is_some_and(|span| span[1] >= from)
}

/// Returns the busy share and the seconds of a job in a rank; `None` if the GPU's driver does not
/// report it.
pub(crate) fn busy(end: &JobEnd) -> Option<(f64, f64)> {
    Some((end.gpu_busy?, end.wall_s))
}

/// Returns the mean of shares, weighted by their seconds; `None` if there are none.
pub(crate) fn busy_share(parts: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let (busy_s, wall_s) = parts.fold((0.0, 0.0), |(busy_s, wall_s), (share, seconds)| {
        (busy_s + share * seconds, wall_s + seconds)
    });
    (wall_s > 0.0).then(|| busy_s / wall_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_two_spans_meets_none() {
        let at = |second: u64| Moment::parse(&format!("2026-11-21T10:00:{second:02}.000Z"));
        let span = |from, to| [at(from), at(to)];
        let lasting = lasting(vec![span(20, 30), span(0, 10), span(3, 5), span(6, 9)]);
        let spans = [(10, 12), (11, 19), (11, 20), (31, 40), (9, 9)];
        let found = spans.map(|(from, to)| meets(&lasting, span(from, to)));
        assert_eq!(found, [true, false, true, false, true]);
    }

    #[test]
    fn a_long_job_weighs_more_and_one_that_is_not_told_of_nothing() {
        let end = |gpu_busy, wall_s| JobEnd {
            gpu_busy,
            wall_s,
            ..JobEnd::default()
        };
        let ends = [end(Some(0.5), 30.0), end(Some(0.1), 10.0), end(None, 100.0)];
        assert_eq!(busy_share(ends.iter().filter_map(busy)), Some(0.4));
        assert_eq!(busy_share([].into_iter()), None);
    }
}
