//! One launch attempt on this node: the rank processes, their log files and their failures.
//!
//! Where ranks restart one by one (`--failure-policy isolate`), it keeps the latest start of each
//! rank.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::events::{self, EventRank, Happening, RankEnding};
use crate::failure::{Casualty, Hang, RankFailure};
use crate::logs::attempt::{AttemptLogs, RankLogs};
use crate::logs::lines::last_lines;
use crate::logs::tail::Tail;
use crate::plan::EventLog;
use crate::process::command::ChildCommand;
use crate::process::environment::ChildEnvironment;
use crate::process::exit::Exit;
use crate::process::exits::ExitWatch;
use crate::process::oom::OomKills;
use crate::process::rank::{RankEnded, RankProcess};
use crate::process::start::{NotStarted, ParallelStart};
use crate::rank_id::RankId;
use crate::round::Round;
use crate::say::{self, Level};
use crate::signals::names::signal_name;

/// Number of lines of a failed rank's captured output that are repeated at the end of the launch.
const LAST_LINES: usize = 10;

/// The ranks of one attempt. `ranks` is shorter than `logs` if a rank could not be started.
#[derive(Debug, Default)]
pub struct Attempt {
    ranks: Vec<RankProcess>,
    /// The ranks of this attempt, those that could not be started too.
    ids: Vec<RankId>,
    /// Their pids.
    pids: BTreeSet<i32>,
    exits: ExitWatch,
    logs: Vec<RankLogs>,
    /// Follows the log files of the ranks that were started together.
    tail: Option<Tail>,
    /// Follows the log files of each rank that was restarted on its own.
    own_tails: BTreeMap<usize, Tail>,
    casualties: Vec<Casualty>,
    /// The last signal that was sent to the ranks.
    sent: Option<i32>,
    /// Ranks that are ended because they hang, by their pids.
    hung: BTreeMap<i32, Hang>,
}

impl Attempt {
    /// Returns an attempt of all ranks of `round` with these log files, none of them running.
    pub fn new(round: &Round<'_>, logs: AttemptLogs) -> Attempt {
        Attempt {
            ids: (0..logs.ranks.len())
                .map(|index| round.rank(index))
                .collect(),
            logs: logs.ranks,
            tail: logs.tail,
            ..Attempt::default()
        }
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
        let first = self.ranks.len();
        let logs = self.logs.iter_mut().enumerate();
        let next = logs.skip(first).take(most);
        let (ranks, failed) = start(round, next.map(|(rank, logs)| (rank, attempt(rank), logs)));
        for rank in ranks {
            started(round, self.ranks.len(), &rank);
            self.pids.insert(rank.pid().as_raw());
            self.exits.add(self.ranks.len(), rank.pid());
            self.ranks.push(rank);
        }
        let Some(NotStarted { index, err }) = failed else {
            return Ok(());
        };
        say_not_started(round, first + index, &err);
        Err(first + index)
    }

    /// Returns the number of ranks started so far, or `None` if all of them have been started.
    pub fn started(&self) -> Option<usize> {
        Some(self.ranks.len()).filter(|&started| started < self.logs.len())
    }

    /// Starts a rank that has ended again, with new log files, and forgets its failure. Returns the
    /// tail that followed the old log files.
    ///
    /// # Errors
    /// Returns the rank if it could not be started; the reason has been printed.
    pub fn restart(
        &mut self,
        round: &Round<'_>,
        rank: usize,
        attempt: u32,
        logs: AttemptLogs,
    ) -> Result<Option<Tail>, usize> {
        let AttemptLogs {
            ranks: mut logs,
            tail,
        } = logs;
        let (mut ranks, failed) = start(round, logs.iter_mut().map(|logs| (rank, attempt, logs)));
        if let Some(NotStarted { err, .. }) = failed {
            say_not_started(round, rank, &err);
            return Err(rank);
        }
        let (Some(new), Some(logs)) = (ranks.pop(), logs.pop()) else {
            return Err(rank);
        };
        let (Some(old), Some(place)) = (self.ranks.get_mut(rank), self.logs.get_mut(rank)) else {
            return Err(rank);
        };
        started(round, rank, &new);
        self.exits.add(rank, new.pid());
        self.pids.insert(new.pid().as_raw());
        let old = mem::replace(old, new);
        self.pids.remove(&old.pid().as_raw());
        self.hung.remove(&old.pid().as_raw());
        old.reap();
        *place = logs;
        self.casualties
            .retain(|casualty| casualty.rank.index != rank);
        let old_tail = self.own_tails.remove(&rank);
        self.own_tails.extend(tail.map(|tail| (rank, tail)));
        Ok(old_tail)
    }

    /// Returns the ranks that have ended since the last call, in the order of their local ranks.
    /// `memory` is asked once for all that have failed.
    pub fn exited(
        &mut self,
        round: &Round<'_>,
        now: SystemTime,
        memory: &mut OomKills,
    ) -> Vec<(usize, Exit)> {
        let (mut exited, mut hint) = (Vec::new(), None);
        for index in self.exits.ended() {
            let Some(rank) = self.ranks.get_mut(index) else {
                continue;
            };
            let Some(RankEnded { exit, usage, .. }) = rank.peek(now) else {
                if rank.ended().is_none() {
                    self.exits.ask(index);
                }
                continue;
            };
            self.exits.forget(index);
            exited.push((index, exit));
            let (rank, pid) = (round.rank(index), rank.pid().as_raw());
            let stopped_by = self.sent;
            let casualty = Casualty {
                rank,
                pid,
                exit,
                usage,
                at: now,
                stopped_by,
                hang: self.hung.get(&pid).cloned(),
                memory: match exit.is_success() {
                    true => "",
                    false => hint.get_or_insert_with(|| memory.hint(now)),
                },
            };
            tell(
                round,
                &casualty,
                self.logs
                    .get(index)
                    .and_then(|logs| logs.error_file.as_deref()),
            );
            if !exit.is_success() {
                self.casualties.push(casualty);
            }
        }
        exited
    }

    /// Returns the latest failure of this local rank.
    pub fn casualty(&self, rank: usize) -> Option<&Casualty> {
        self.casualties
            .iter()
            .rev()
            .find(|casualty| casualty.rank.index == rank)
    }

    /// Sends `signal` to the process group of every rank, even if its leader has ended, and prints
    /// a line for each rank that still runs.
    pub fn send(&mut self, signal: i32) {
        for rank in &self.ranks {
            let pid = rank.pid();
            match (rank.ended(), self.sent) {
                (Some(_), _) => {}
                (None, Some(sent)) if signal == libc::SIGKILL => say::warning(format_args!(
                    "Unable to shutdown process {pid} via {sent}, forcefully exiting via {signal}"
                )),
                (None, _) => say::info(format_args!(
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
    pub fn pids(&self) -> &BTreeSet<i32> {
        &self.pids
    }

    /// Returns the pid of one rank.
    pub fn pid(&self, rank: usize) -> Option<i32> {
        self.ranks.get(rank).map(|rank| rank.pid().as_raw())
    }

    /// Returns the ranks that run, with their pids.
    pub fn running(&self) -> Vec<(RankId, i32)> {
        let ranks = self.ids.iter().zip(&self.ranks);
        ranks
            .filter(|(_, rank)| rank.ended().is_none())
            .map(|(id, rank)| (*id, rank.pid().as_raw()))
            .collect()
    }

    /// Returns the number of bytes in the captured output of a rank.
    pub fn written(&self, rank: usize) -> u64 {
        let files = self.logs.get(rank).map(|logs| logs.captured.as_slice());
        let sizes = files.unwrap_or_default().iter().filter_map(|path| {
            let about = fs::metadata(path).ok()?;
            Some(about.len())
        });
        sizes.sum()
    }

    /// Returns whether this is the process of a rank that runs.
    pub fn is_running(&self, pid: i32) -> bool {
        self.process(pid).is_some()
    }

    /// Records that the rank with this process is ended because it hangs.
    pub fn note_hang(&mut self, pid: i32, hang: Hang) {
        self.hung.insert(pid, hang);
    }

    /// Kills the process group of one rank, if this process of it runs.
    pub fn kill(&self, pid: i32) {
        if let Some(rank) = self.process(pid) {
            rank.signal(libc::SIGKILL);
        }
    }

    fn process(&self, pid: i32) -> Option<&RankProcess> {
        let is_it = |rank: &&RankProcess| rank.pid().as_raw() == pid && rank.ended().is_none();
        self.ranks.iter().find(is_it)
    }

    /// Reaps every rank that has ended, and returns the tails that follow the log files.
    pub fn end(&mut self) -> Vec<Tail> {
        self.pids.clear();
        self.exits = ExitWatch::default();
        self.ranks
            .drain(..)
            .filter(|rank| rank.ended().is_some())
            .for_each(RankProcess::reap);
        self.tail
            .take()
            .into_iter()
            .chain(mem::take(&mut self.own_tails).into_values())
            .collect()
    }

    /// Returns the failures of this attempt in the order in which they were seen.
    pub fn failures(&self) -> Vec<RankFailure> {
        let error_file =
            |casualty: &Casualty| self.logs.get(casualty.rank.index)?.error_file.as_deref();
        self.casualties
            .iter()
            .map(|casualty| RankFailure::read(casualty.clone(), error_file(casualty)))
            .collect()
    }

    /// Returns the last lines that the rank at this index wrote, and the file that has them: the
    /// captured stderr, or the captured stdout if stderr is empty.
    pub fn last_lines(&self, index: usize) -> Option<(PathBuf, Vec<String>)> {
        let captured = self.logs.get(index)?.captured.iter();
        let mut written =
            captured.filter_map(|path| Some((path.clone(), last_lines(path, LAST_LINES).ok()?)));
        written.find(|(_, lines)| !lines.is_empty())
    }
}

/// A rank to start: its index, its restart count and its log files.
type Starter<'a> = (usize, u32, &'a mut RankLogs);

/// Starts these ranks. Returns those that run, and the first that could not be started.
fn start<'a>(
    round: &Round<'_>,
    ranks: impl Iterator<Item = Starter<'a>>,
) -> (Vec<RankProcess>, Option<NotStarted>) {
    let (common, mut start) = match ChildEnvironment::inherited(&round.plan.env)
        .and_then(|env| Ok((env, ParallelStart::new()?)))
    {
        Ok(both) => both,
        Err(err) => return (Vec::new(), Some(NotStarted { index: 0, err })),
    };
    let mut failures = ranks.enumerate().filter_map(|(index, starter)| {
        let spawned = command(round, &common, starter).and_then(|command| start.spawn(command));
        spawned.err().map(|err| NotStarted { index, err })
    });
    let failed = failures.next();
    drop(failures);
    let (ranks, earlier) = start.finish();
    (ranks, earlier.or(failed))
}

fn command<'a>(
    round: &Round<'_>,
    common: &'a ChildEnvironment,
    (rank, attempt, logs): Starter<'_>,
) -> io::Result<ChildCommand<'a>> {
    let plan = round
        .plan
        .ranks
        .get(rank)
        .ok_or_else(|| io::Error::other("there is no such rank"))?;
    let output = logs
        .output
        .take()
        .ok_or_else(|| io::Error::other("it runs already"))?;
    let variables = round.variables(plan, attempt, logs.error_file.as_deref());
    Ok(ChildCommand::new(plan, common, &variables, output)?.with_open_files(round.plan.open_files))
}

/// Records the start of the rank at `index` in the event log.
fn started(round: &Round<'_>, index: usize, rank: &RankProcess) {
    let who = EventRank {
        rank: round.rank(index),
        pid: rank.pid().as_raw(),
    };
    events::record(round, &Happening::Started(who));
}

fn say_not_started(round: &Round<'_>, index: usize, err: &io::Error) {
    let program = round
        .plan
        .ranks
        .get(index)
        .and_then(|plan| plan.argv.first());
    let program = program.map_or_else(String::new, |program| {
        format!("`{}`: ", program.to_string_lossy())
    });
    let rank = round.rank(index);
    let line = format_args!("cannot start rank {}: {program}{err}", rank.global);
    say::of_rank(Level::Error, rank, None, line);
}

/// Records the end of a rank in the event log, and prints its resource usage if the plan asks for
/// that. The rank may have succeeded.
fn tell(round: &Round<'_>, ended: &Casualty, error_file: Option<&Path>) {
    let Casualty {
        rank,
        pid,
        exit,
        usage,
        stopped_by,
        ..
    } = *ended;
    if let Some(usage) = usage.filter(|_| round.plan.reports_usage) {
        let line = format_args!("rank {} {exit}: {usage}", rank.global);
        say::of_rank(Level::Result, rank, Some(pid), line);
    }
    if round.plan.events == EventLog::None {
        return;
    }
    let code = exit.returncode();
    let end = match stopped_by {
        _ if exit.is_success() => RankEnding::Succeeded,
        Some(_) => RankEnding::Terminated { code },
        None => RankEnding::Failed {
            code,
            error: RankFailure::read(ended.clone(), error_file).error,
        },
    };
    let usage = usage.and_then(|usage| serde_json::to_value(usage).ok());
    events::record(
        round,
        &Happening::Ended {
            who: EventRank { rank, pid },
            end,
            usage,
        },
    );
}
