//! What was read of the journals so far, which grows with them.
//!
//! The same code reads a run that is over and one that is under way: the first grows once. Reading
//! the rest of a journal gives the same state as reading all of it at once.

use std::io;
use std::ops::Range;

use jobs::job::JobIndex;
use jobs::journal::{Blame, Decision, Line, PolicyFiles};
use jobs::plan::RunPlan;
use jobs::threads;
use jobs::time::Moment;

use crate::journals::{Journals, pieces};
use crate::merged::lines::JobLines;
use crate::merged::lives::{self, Events};
use crate::merged::record::{EpisodeRecord, InternedNames, Name};
use crate::merged::scan::{Damage, Found, PieceScan, scan};

/// What was read of the journals so far. It grows with them.
#[derive(Default)]
pub(crate) struct MergedState {
    /// Lines by job, in the order of the plan.
    pub(crate) jobs: Vec<JobLines>,
    /// One entry for each journal, in the order of [`Journals`].
    pub(crate) events: Vec<Events>,
    pub(crate) policies: Vec<PolicyFiles>,
    /// Decisions of sequential tests, in the order of the journals.
    pub(super) decisions: Vec<Decision>,
    /// Moment of the first and the last line, without those of [`lives::set_aside`].
    pub(crate) span: Option<[Moment; 2]>,
    pub(super) names: InternedNames,
    pub(super) damage: Vec<Damage>,
    /// For each journal, the number of bytes and of lines that were read.
    read: Vec<ReadSoFar>,
}

/// How much of a journal was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReadSoFar {
    /// Bytes of whole lines.
    bytes: u64,
    lines: u64,
}

impl MergedState {
    /// Creates the state of a run of which nothing was read.
    pub(crate) fn of(plan: &RunPlan) -> Self {
        Self {
            jobs: plan.jobs.iter().map(|_| JobLines::default()).collect(),
            ..Self::default()
        }
    }

    /// Reads the lines that were appended to the journals since the last call, and passes each
    /// piece to who watches the run, too. Returns whether there were any.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the name of the journal.
    pub(crate) fn grow(
        &mut self,
        plan: &RunPlan,
        journals: &Journals,
        mut watch: Option<&mut dyn FnMut(&PieceScan)>,
    ) -> io::Result<bool> {
        for source in &journals.sources()[self.read.len()..] {
            self.read.push(ReadSoFar::default());
            self.events.push(Events::of(source));
            self.damage.push(Damage {
                journal: source.name.clone(),
                ..Damage::default()
            });
        }
        let sources = journals.sources().iter().enumerate().zip(&self.read);
        let work: Vec<(usize, Range<u64>)> = sources
            .flat_map(|((index, source), read)| {
                pieces::pieces(read.bytes..source.len()).map(move |piece| (index, piece))
            })
            .collect();
        if work.is_empty() {
            return Ok(false);
        }
        // What was torn is read again.
        self.damage.iter_mut().for_each(|damage| damage.torn = 0);
        let mut has_grown = false;
        read(journals, &work, plan, watch.is_some(), |source, scan| {
            has_grown |= scan.lines > 0;
            if let Some(watch) = &mut watch {
                watch(&scan);
            }
            self.add(source, scan);
        })?;
        let read = self.read.iter_mut().zip(&self.damage);
        for (source, (read, damage)) in journals.sources().iter().zip(read) {
            read.bytes = source.len().saturating_sub(damage.torn);
        }
        Ok(has_grown)
    }

    /// Puts what was read in order, and counts each episode once. `now` is the end so far of the
    /// lives that go on; without it, they end with the last line.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the name of the journal.
    pub(crate) fn settle(
        &mut self,
        plan: &RunPlan,
        journals: &Journals,
        now: Option<Moment>,
    ) -> io::Result<()> {
        let mut reader = journals.reader();
        for (job, lines) in plan.jobs.iter().zip(&mut self.jobs) {
            lines.settle(job.length, &mut reader)?;
        }
        for (events, source) in self.events.iter_mut().zip(journals.sources()) {
            events.settle(source.is_held, journals, now);
        }
        if lives::set_aside(&mut self.events) {
            let episodes = self.jobs.iter().flat_map(|job| &job.episodes);
            self.span = lives::span(&self.events, episodes.map(|record| record.ended));
        }
        self.policies
            .sort_by(|a, b| (&a.at, &a.path).cmp(&(&b.at, &b.path)));
        self.policies.dedup();
        Ok(())
    }

    fn add(&mut self, source: usize, scan: PieceScan) {
        let numbers: Vec<_> = scan
            .names
            .texts()
            .map(|text| self.names.number(text))
            .collect();
        let renumbered = |name: Option<Name>| name.map(|name| numbers[name.index()]);
        for found in scan.found {
            match found {
                Found::Episode(index, record) => {
                    let (dataset, video) = (renumbered(record.dataset), renumbered(record.video));
                    let instruction = numbers[record.instruction.index()];
                    self.job_of_line(index).episodes.push(EpisodeRecord {
                        dataset,
                        video,
                        instruction,
                        ..record
                    });
                }
                Found::Other(other) => {
                    self.events[source].add(&other);
                    self.other(other.line);
                }
            }
        }
        self.damage[source].add(scan.damage, self.read[source].lines);
        self.read[source].lines += scan.lines;
        if let Some([first, last]) = scan.span {
            self.events[source].saw(last);
            let [earliest, latest] = self.span.unwrap_or([first, last]);
            self.span = Some([earliest.min(first), latest.max(last)]);
        }
    }

    /// Returns the job that a line is about, which is not settled any more.
    fn job_of_line(&mut self, index: JobIndex) -> &mut JobLines {
        let job = &mut self.jobs[index.0];
        job.is_settled = false;
        job
    }

    fn other(&mut self, line: Line) {
        match line {
            Line::PolicyFiles(files) => self.policies.push(files),
            Line::Decision(decision) => self.decisions.push(*decision),
            Line::JobStart(start) => self.job_of_line(start.job_index).starts.push(start),
            Line::JobEnd(end) => self.job_of_line(end.job_index).ends.push(*end),
            // The loss of a neighbour is told by the episode that is to blame.
            Line::EnvLost(lost) if lost.blame == Blame::Neighbour => {}
            Line::EnvLost(lost) => self.job_of_line(lost.job_index).losses.push(*lost),
            _ => {}
        }
    }
}

/// Scans pieces of journals on several threads, and passes the results to `on` in order.
fn read(
    journals: &Journals,
    work: &[(usize, Range<u64>)],
    plan: &RunPlan,
    is_watched: bool,
    mut on: impl FnMut(usize, PieceScan),
) -> io::Result<()> {
    let accepted = plan.accepted();
    let of_any_run = accepted.of_any_run();
    let one =
        |(source, range): &(usize, Range<u64>), buffer: &mut Vec<u8>| -> io::Result<PieceScan> {
            let journal = &journals.sources()[*source];
            let accepted = match journal.is_delivered() {
                true => &of_any_run,
                false => &accepted,
            };
            let piece = pieces::read(journal, range.clone(), buffer)?;
            Ok(scan(&piece, *source as u32, accepted, is_watched))
        };
    threads::in_order(work, one, |(source, _), scan| {
        on(*source, scan);
        Ok(())
    })
}
