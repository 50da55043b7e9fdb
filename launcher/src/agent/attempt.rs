//! One attempt: the ranks that were started, their files, and who failed.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use nix::unistd::Pid;

use crate::agent::event::LocalRank;
use crate::agent::say;
use crate::agent::variables::Round;
use crate::events::{self, Happening, Who};
use crate::failure::{Casualty, Failure};
use crate::logs::attempt::{AttemptLogs, RankLogs};
use crate::logs::last_lines::last_lines;
use crate::logs::tail::Tail;
use crate::plan::RankPlan;
use crate::process::command::Command;
use crate::process::environment::Environment;
use crate::process::exit::Exit;
use crate::process::rank::{Ended, Rank};
use crate::process::start::{NotStarted, Start};
use crate::process::usage::Usage;
use crate::signals;

/// Lines of a failed rank's captured output that are said again at the end.
const LAST_LINES: usize = 10;

/// One attempt. `ranks` is shorter than `logs` if a rank could not be started.
#[derive(Debug, Default)]
pub struct Attempt {
    ranks: Vec<Rank>,
    logs: Vec<RankLogs>,
    tail: Option<Tail>,
    casualties: Vec<Casualty>,
    /// The last signal sent to the ranks.
    sent: Option<i32>,
}

impl Attempt {
    /// An attempt with these log files and no rank yet.
    pub fn new(logs: AttemptLogs) -> Attempt {
        Attempt { logs: logs.ranks, tail: logs.tail, ..Attempt::default() }
    }

    /// Starts the ranks side by side; says why one cannot, and which.
    pub fn spawn(&mut self, round: &Round<'_>) -> Result<(), LocalRank> {
        let (ranks, failed) = match Environment::inherited(&round.plan.env).and_then(|env| Ok((env, Start::new()?))) {
            Ok((environment, start)) => self.start(round, &environment, start),
            Err(err) => (Vec::new(), Some(NotStarted { index: 0, err })),
        };
        for (index, (plan, rank)) in round.plan.ranks.iter().zip(&ranks).enumerate() {
            let (global, local_rank, pid) = (round.rank(index), plan.local_rank, rank.pid().as_raw());
            events::record(round.plan, &Happening::Started(Who { rank: global, local_rank, pid }));
        }
        self.ranks = ranks;
        let Some(NotStarted { index, err }) = failed else { return Ok(()) };
        let program = round.plan.ranks.get(index).and_then(|plan| plan.argv.first());
        let program = program.map_or_else(String::new, |program| format!("`{}`: ", program.to_string_lossy()));
        say(format_args!("cannot start rank {}: {program}{err}", round.rank(index)));
        Err(LocalRank(index))
    }

    /// The ranks that run, and the first that could not be started.
    fn start(&mut self, round: &Round<'_>, common: &Environment, mut start: Start) -> (Vec<Rank>, Option<NotStarted>) {
        let ranks = round.plan.ranks.iter().zip(&mut self.logs).enumerate();
        let mut failures = ranks.filter_map(|(index, (plan, logs))| {
            let spawned = command(round, common, plan, logs).and_then(|command| start.spawn(&command));
            spawned.err().map(|err| NotStarted { index, err })
        });
        let failed = failures.next();
        drop(failures);
        let (ranks, earlier) = start.finish();
        (ranks, earlier.or(failed))
    }

    /// Who has ended since the last look, in local-rank order.
    pub fn exited(&mut self, round: &Round<'_>, now: SystemTime) -> Vec<(LocalRank, Exit)> {
        let mut exited = Vec::new();
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            let Some(Ended { exit, usage, .. }) = rank.peek(now) else { continue };
            exited.push((LocalRank(index), exit));
            tell(round, index, rank.pid(), exit, usage);
            if !exit.is_success() {
                let (rank, pid) = (round.rank(index), rank.pid().as_raw());
                let local_rank = round.plan.ranks.get(index).map_or(index, |rank| rank.local_rank);
                let stopped_by = self.sent;
                self.casualties.push(Casualty { index, local_rank, rank, pid, exit, usage, at: now, stopped_by });
            }
        }
        exited
    }

    /// The last casualty of this local rank.
    pub fn casualty(&self, rank: LocalRank) -> Option<&Casualty> {
        self.casualties.iter().rev().find(|casualty| casualty.index == rank.0)
    }

    /// Sends `signal` to every group, also those whose leader has ended, and says to whom.
    pub fn send(&mut self, signal: i32) {
        for rank in &self.ranks {
            let pid = rank.pid();
            match (rank.ended(), self.sent) {
                (Some(_), _) => {}
                (None, Some(sent)) if signal == libc::SIGKILL => {
                    say(format_args!("Unable to shutdown process {pid} via {sent}, forcefully exiting via {signal}"))
                }
                (None, _) => say(format_args!("Sending process {pid} closing signal {}", signals::name(signal))),
            }
            rank.signal(signal);
        }
        self.sent = Some(signal);
    }

    /// Sends a signal that is no end to every group.
    pub fn pass_on(&self, signal: i32) {
        self.ranks.iter().for_each(|rank| rank.signal(signal));
    }

    /// Pids of all ranks; each is also the number of a process group and a session.
    pub fn pids(&self) -> BTreeSet<i32> {
        self.ranks.iter().map(|rank| rank.pid().as_raw()).collect()
    }

    /// The pid of one rank.
    pub fn pid(&self, rank: LocalRank) -> Option<i32> {
        self.ranks.get(rank.0).map(|rank| rank.pid().as_raw())
    }

    /// Reaps every rank that has ended, and gives what follows their files.
    pub fn end(&mut self) -> Option<Tail> {
        self.ranks.drain(..).filter(|rank| rank.ended().is_some()).for_each(Rank::reap);
        self.tail.take()
    }

    /// The failures of this attempt, in the order in which they were seen.
    pub fn failures(&self) -> Vec<Failure> {
        let error_file = |casualty: &Casualty| self.logs.get(casualty.index)?.error_file.as_deref();
        self.casualties.iter().map(|casualty| Failure::read(casualty.clone(), error_file(casualty))).collect()
    }

    /// Where the stderr of the rank at this index was captured, or its stdout if it wrote nothing there, and the last lines.
    pub fn last_lines(&self, index: usize) -> Option<(PathBuf, Vec<String>)> {
        let captured = self.logs.get(index)?.captured.iter();
        let mut written = captured.filter_map(|path| Some((path.clone(), last_lines(path, LAST_LINES).ok()?)));
        written.find(|(_, lines)| !lines.is_empty())
    }
}

fn command<'a>(
    round: &Round<'_>,
    common: &'a Environment,
    plan: &RankPlan,
    logs: &mut RankLogs,
) -> io::Result<Command<'a>> {
    let output = logs.output.take().ok_or_else(|| io::Error::other("it runs already"))?;
    let command = Command::new(plan, common, &round.variables(plan, logs.error_file.as_deref()), output)?;
    Ok(command.with_open_files(round.plan.open_files))
}

/// Tells of the end of the rank `index`, and what it used, who wants to know.
fn tell(round: &Round<'_>, index: usize, pid: Pid, exit: Exit, usage: Option<Usage>) {
    let plan = round.plan;
    let rank = round.rank(index);
    if let Some(usage) = usage.filter(|_| plan.reports_usage) {
        say(format_args!("rank {rank} {exit}: {usage}"));
    }
    let local_rank = plan.ranks.get(index).map_or(index, |rank| rank.local_rank);
    let who = Who { rank, local_rank, pid: pid.as_raw() };
    let usage = usage.and_then(|usage| serde_json::to_value(usage).ok());
    events::record(plan, &Happening::Ended { who, code: exit.returncode(), usage });
}
