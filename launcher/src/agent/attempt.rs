//! One launch attempt on this node: the rank processes, their log files and their failures.
//!
//! Where ranks restart one by one (`--failure-policy isolate`), it keeps the latest start of each
//! rank.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::slice;
use std::time::SystemTime;

use crate::events::Event;
use crate::failure::{Casualty, Hang, RankFailure, not_started};
use crate::logs::attempt::{AttemptLogs, RankLogs};
use crate::logs::lines::last_lines;
use crate::logs::tail::Tail;
use crate::node::control_group::OomKills;
use crate::plan::EventLog;
use crate::process::command::{ChildCommand, ChildEnvironment};
use crate::process::exit::Exit;
use crate::process::rank::RankProcess;
use crate::rank_id::RankId;
use crate::round::Round;
use crate::say::{self, Level};
use crate::signals::names::signal_name;

/// Number of lines of a failed rank's captured output that are repeated at the end of the launch.
const LAST_LINES: usize = 10;

/// All ranks of one attempt, in the order of their indexes.
#[derive(Debug)]
pub struct Attempt {
    ranks: Vec<LocalRank>,
    /// Follows the log files of the ranks that were started together.
    tail: Option<Tail>,
    /// The last signal that was sent to the ranks.
    sent: Option<i32>,
}

/// A rank since its latest start.
#[derive(Debug, Default)]
pub struct LocalRank {
    id: RankId,
    logs: RankLogs,
    /// Follows its log files, if it was restarted on its own.
    tail: Option<Tail>,
    /// Its process; `None` before it is started.
    process: Option<RankProcess>,
    /// Its hang, if its process is ended for that.
    pub hang: Option<Hang>,
    /// How its process failed.
    casualty: Option<Casualty>,
    /// Whether it could not be started again after its process had ended.
    restart_failed: bool,
}

impl LocalRank {
    /// Returns which rank it is.
    pub fn id(&self) -> RankId {
        self.id
    }

    /// Returns the pid of its process, which may have ended.
    pub fn pid(&self) -> Option<i32> {
        Some(self.process.as_ref()?.pid().as_raw())
    }

    /// Returns how its process failed.
    pub fn casualty(&self) -> Option<&Casualty> {
        self.casualty.as_ref()
    }

    /// Describes its latest failure, with a hint at the likely cause.
    pub fn failure(&self) -> String {
        match &self.casualty {
            Some(casualty) if !self.restart_failed => casualty.in_words(),
            _ => not_started(self.id),
        }
    }

    fn is_running(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| !process.has_ended())
    }

    fn runs_as(&self, pid: i32) -> bool {
        self.is_running() && self.pid() == Some(pid)
    }

    /// Sends `signal` to its process group, even if its process has ended.
    pub fn signal(&self, signal: i32) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// Returns the number of bytes in its captured output.
    pub fn written(&self) -> u64 {
        let files = self.logs.captured.iter();
        files.flat_map(fs::metadata).map(|about| about.len()).sum()
    }

    /// Returns the last lines that it wrote, and the file that has them: the captured stderr, or
    /// the captured stdout if stderr is empty.
    pub fn last_lines(&self) -> Option<(PathBuf, Vec<String>)> {
        let captured = self.logs.captured.iter();
        let mut written =
            captured.filter_map(|path| Some((path.clone(), last_lines(path, LAST_LINES).ok()?)));
        written.find(|(_, lines)| !lines.is_empty())
    }

    /// Records the end of its process in the event log, and prints its resource usage if the plan
    /// asks for that. It may have succeeded.
    fn tell_end(&self, round: &Round<'_>, ended: &Casualty) {
        let Casualty {
            rank, pid, exit, ..
        } = *ended;
        if let Some(usage) = ended.usage.filter(|_| round.plan.reports_usage) {
            let line = format_args!("rank {} {exit}: {usage}", rank.global);
            say::of_rank(Level::Result, rank, Some(pid), line);
        }
        if round.plan.events == EventLog::None {
            return;
        }
        let code = exit.returncode();
        let event = |state| {
            Event::of_state(state)
                .about(rank, pid)
                .with("exit_code", code)
        };
        let event = match ended.stopped_by {
            _ if exit.is_success() => event("SUCCEEDED"),
            Some(_) => event("TERMINATED"),
            None => {
                let error_file = self.logs.error_file.as_deref();
                let error = RankFailure::read(ended.clone(), error_file).error;
                event("FAILED").failed(code, error)
            }
        };
        match ended.usage.map(serde_json::to_value) {
            Some(Ok(usage)) => event.with("usage", usage).record(round),
            _ => event.record(round),
        }
    }
}

impl Attempt {
    /// Returns an attempt of all ranks of `round`, none of them running.
    pub fn new(round: &Round<'_>) -> Attempt {
        let ranks = 0..round.plan.ranks.len();
        let rank = |index| LocalRank {
            id: round.rank(index),
            ..LocalRank::default()
        };
        Attempt {
            ranks: ranks.map(rank).collect(),
            tail: None,
            sent: None,
        }
    }

    /// Lets the ranks write into these log files when they start.
    pub fn log_to(&mut self, logs: AttemptLogs) {
        for (rank, logs) in self.ranks.iter_mut().zip(logs.ranks) {
            rank.logs = logs;
        }
        self.tail = logs.tail;
    }

    /// Starts up to `most` of the remaining ranks side by side. `attempt` returns the restart count
    /// of each rank.
    ///
    /// # Errors
    /// Returns the first rank that could not be started; the reason has been printed.
    pub fn spawn(
        &mut self,
        round: &Round<'_>,
        most: usize,
        attempt: impl Fn(usize) -> u32,
    ) -> Result<(), usize> {
        let first = self.started().unwrap_or(self.ranks.len());
        let next = first..self.ranks.len().min(first + most);
        start(round, &mut self.ranks[next], attempt)
    }

    /// Returns the number of ranks started so far, or `None` if all of them have been started.
    pub fn started(&self) -> Option<usize> {
        self.ranks.iter().position(|rank| rank.process.is_none())
    }

    /// Starts a rank that has ended again, with new log files, and forgets its failure; without log
    /// files it cannot be started. Returns the tail that followed the old ones.
    ///
    /// # Errors
    /// Returns the rank if it could not be started; the reason has been printed.
    pub fn restart(
        &mut self,
        round: &Round<'_>,
        rank: usize,
        attempt: u32,
        logs: Option<AttemptLogs>,
    ) -> Result<Option<Tail>, usize> {
        let old = &mut self.ranks[rank];
        old.restart_failed = true;
        let AttemptLogs { mut ranks, tail } = logs.ok_or(rank)?;
        let mut new = LocalRank {
            id: round.rank(rank),
            logs: ranks.pop().ok_or(rank)?,
            tail,
            ..LocalRank::default()
        };
        start(round, slice::from_mut(&mut new), |_| attempt)?;
        let old = mem::replace(old, new);
        old.process.into_iter().for_each(RankProcess::reap);
        Ok(old.tail)
    }

    /// Returns the ranks that have ended since the last call, in the order of their indexes. All
    /// are asked: a thousand system calls take less than a millisecond. `memory` is asked once for
    /// all that have failed.
    pub fn exited(
        &mut self,
        round: &Round<'_>,
        now: SystemTime,
        memory: &mut OomKills,
    ) -> Vec<(usize, Exit)> {
        let (mut exited, mut hint) = (Vec::new(), None);
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            let Some((exit, usage)) = rank.process.as_mut().and_then(RankProcess::peek) else {
                continue;
            };
            exited.push((index, exit));
            let casualty = Casualty {
                rank: rank.id,
                pid: rank.pid().unwrap_or_default(),
                exit,
                usage,
                at: now,
                stopped_by: self.sent,
                hang: rank.hang.take(),
                memory: match exit.is_success() {
                    true => "",
                    false => hint.get_or_insert_with(|| memory.hint(now)),
                },
            };
            rank.tell_end(round, &casualty);
            rank.casualty = Some(casualty).filter(|_| !exit.is_success());
        }
        exited
    }

    /// Returns the rank at `index`, which is below their number.
    pub fn rank(&self, index: usize) -> &LocalRank {
        &self.ranks[index]
    }

    /// Sends `signal` to the process group of every rank, even if its leader has ended, and prints
    /// a line for each rank that still runs.
    pub fn send(&mut self, signal: i32) {
        for rank in &self.ranks {
            match (rank.pid().filter(|_| rank.is_running()), self.sent) {
                (None, _) => {}
                (Some(pid), Some(sent)) if signal == libc::SIGKILL => say::warning(format_args!(
                    "Unable to shutdown process {pid} via {sent}, forcefully exiting via {signal}"
                )),
                (Some(pid), _) => say::info(format_args!(
                    "Sending process {pid} closing signal {}",
                    signal_name(signal)
                )),
            }
            rank.signal(signal);
        }
        self.sent = Some(signal);
    }

    /// Records that another process (SLURM) has sent `signal` to every rank.
    pub fn was_sent(&mut self, signal: i32) {
        say::info(format_args!(
            "SLURM has sent {} to the ranks",
            signal_name(signal)
        ));
        self.sent = Some(signal);
    }

    /// Forwards a signal that does not end the launch to the process group of every rank.
    pub fn pass_on(&self, signal: i32) {
        self.ranks.iter().for_each(|rank| rank.signal(signal));
    }

    /// Returns the pids of all ranks. Each pid is also the id of a process group and of a session.
    pub fn pids(&self) -> BTreeSet<i32> {
        self.ranks.iter().filter_map(LocalRank::pid).collect()
    }

    /// Returns the ranks that run, by their pids.
    pub fn running(&self) -> BTreeMap<i32, &LocalRank> {
        let running = self.ranks.iter().filter(|rank| rank.is_running());
        running
            .filter_map(|rank| Some((rank.pid()?, rank)))
            .collect()
    }

    /// Returns the rank that runs as this process.
    pub fn running_as(&mut self, pid: i32) -> Option<&mut LocalRank> {
        self.ranks.iter_mut().find(|rank| rank.runs_as(pid))
    }

    /// Reaps every rank that has ended, and returns the tails that follow the log files.
    pub fn end(&mut self) -> Vec<Tail> {
        let ranks = self.ranks.iter_mut();
        let ended = ranks.filter_map(|rank| rank.process.take_if(|it| it.has_ended()));
        ended.for_each(RankProcess::reap);
        let tails = self.ranks.iter_mut().filter_map(|rank| rank.tail.take());
        tails.chain(self.tail.take()).collect()
    }

    /// Returns the failures of this attempt in the order in which they were seen.
    pub fn failures(&self) -> Vec<RankFailure> {
        let failure = |rank: &LocalRank| {
            let casualty = rank.casualty.clone()?;
            Some(RankFailure::read(casualty, rank.logs.error_file.as_deref()))
        };
        let mut failures: Vec<_> = self.ranks.iter().filter_map(failure).collect();
        failures.sort_by_key(|failure| failure.casualty.at);
        failures
    }
}

/// Starts these ranks side by side, with the restart counts that `attempt` returns. Returns the
/// first that could not be started; those before it run.
fn start(
    round: &Round<'_>,
    ranks: &mut [LocalRank],
    attempt: impl Fn(usize) -> u32,
) -> Result<(), usize> {
    let (processes, failed) = match ChildEnvironment::inherited(&round.plan.env) {
        Ok(common) => RankProcess::start_all(ranks.iter_mut().map(|rank| {
            let attempt = attempt(rank.id.index);
            command(round, &common, rank, attempt)
        })),
        Err(err) => (Vec::new(), Some((0, err))),
    };
    for (rank, process) in ranks.iter_mut().zip(processes) {
        let pid = process.pid().as_raw();
        rank.process = Some(process);
        Event::of_state("START").about(rank.id, pid).record(round);
    }
    let Some((index, err)) = failed else {
        return Ok(());
    };
    let rank = ranks[index].id;
    let program = round.plan.ranks[rank.index].argv[0].to_string_lossy();
    let line = format_args!("cannot start rank {}: `{program}`: {err}", rank.global);
    say::of_rank(Level::Error, rank, None, line);
    Err(rank.index)
}

fn command(
    round: &Round<'_>,
    common: &ChildEnvironment,
    rank: &mut LocalRank,
    attempt: u32,
) -> io::Result<ChildCommand> {
    let output = rank.logs.output.take();
    let output = output.ok_or_else(|| io::Error::other("it runs already"))?;
    let variables = round.variables(rank.id, attempt, rank.logs.error_file.as_deref());
    let plan = &round.plan.ranks[rank.id.index];
    Ok(ChildCommand {
        open_files: round.plan.open_files,
        ..ChildCommand::new(plan, common, &variables, output)?
    })
}
