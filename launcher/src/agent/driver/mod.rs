//! The event loop of the agent: waits for an event, asks the worker group what it means, and
//! executes the resulting actions.

mod hang;
mod others;
mod ranks;
mod server;

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use jobs::rank_env::FINAL;
use jobs::time::now;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{sleep, sleep_until};

use crate::agent::attempt::Attempt;
use crate::agent::driver::hang::HangReports;
use crate::agent::event::{GroupAction, GroupEvent, LaunchEnd, Scope};
use crate::agent::folder_lock::FolderLock;
use crate::agent::group::WorkerGroup;
use crate::agent::last_words;
use crate::agent::peers::{NodePeers, alone};
use crate::events::Event;
use crate::front::FrontPort;
use crate::hang::timer::FileTimer;
use crate::if_any::if_any;
use crate::logs::attempt::LogFolder;
use crate::logs::tail::Tail;
use crate::model_server::SupervisedServer;
use crate::model_server::machine::ServerEvent;
use crate::node::control_group::OomKills;
use crate::page::LivePage;
use crate::plan::{FailurePolicy, LaunchPlan, Sender};
use crate::process::exit::CANNOT_RUN;
use crate::process::leftover::Leftovers;
use crate::rendezvous::place::NodePlace;
use crate::round::Round;
use crate::say::{self, Level};
use crate::signals::names::signal_name;
use crate::signals::{LaunchSignals, ReceivedSignal, Signals, Streams};

/// Interval between two checks for leftover processes. They are polled because not all of them are
/// children of the launcher, so not all send SIGCHLD when they end.
const SWEEP_PERIOD: Duration = Duration::from_millis(20);

/// The state of one launch.
pub struct LaunchDriver<'a> {
    /// The lock of the run folder.
    lock: &'a mut FolderLock,
    group: WorkerGroup,
    signals: Signals,
    notices: Streams<i32>,
    exits: tokio::signal::unix::Signal,
    peers: NodePeers<'a>,
    round: Round<'a>,
    /// When this node began to wait for the current round.
    joining_since: SystemTime,
    folder: Option<LogFolder>,
    leftovers: Leftovers,
    memory: OomKills,
    attempt: Attempt,
    /// Each ends when every log line of ranks that have ended has been written.
    flushes: Vec<oneshot::Receiver<()>>,
    /// The model server, which runs beside the ranks.
    server: Option<SupervisedServer<'a>>,
    /// The port that the ranks of `serve` share, until the launch is told to end.
    front: Option<FrontPort>,
    /// A round that this node has joined, and whose ranks wait for the model server to become
    /// healthy.
    held: Option<NodePlace>,
    /// Whether the launch ended for a reason outside the ranks of this node.
    ended_by_others: bool,
    /// Whether a signal that ends the launch has been received.
    is_told_to_end: bool,
    hangs: HangReports,
    /// The file timer, if the environment asks for it.
    timer: Option<FileTimer>,
    /// The page of the run, on the first node.
    page: Option<LivePage>,
}

impl<'a> LaunchDriver<'a> {
    /// Opens the store of a single-node launch, and creates the log folder.
    pub fn new(
        plan: &'a LaunchPlan,
        lock: &'a mut FolderLock,
        leftovers: Leftovers,
        signals: LaunchSignals,
    ) -> anyhow::Result<LaunchDriver<'a>> {
        let LaunchSignals {
            ends: signals,
            notices,
            notes,
        } = signals;
        notes.iter().for_each(say::warning);
        let exits = signal(SignalKind::child()).context("cannot listen to SIGCHLD")?;
        let launch = match lock.launch() {
            Some(launch) => launch.to_owned(),
            None => jobs::launch::fresh_id()
                .context("cannot name this launch: there is no /dev/urandom")?,
        };
        let front = FrontPort::open(plan.serve.as_ref(), plan.ranks.len())?;
        let peers = NodePeers::new(plan, launch)?;
        let folder = match plan.logs.disabled {
            true => None,
            false => Some(LogFolder::create(plan.logs.dir.as_deref(), &plan.run_id)?),
        };
        let timer = plan.hang.timer.as_ref();
        let timer = timer.map(|timer| FileTimer::create(timer.path.as_deref()));
        let timer = timer.transpose()?;
        let round = Round {
            plan,
            place: alone(plan, None, 0),
            front: front.as_ref().map(|front| front.socket().to_owned()),
            pulses: hang::pulses(plan),
            timer: timer.as_ref().map(|timer| timer.path().to_owned()),
        };
        let attempt = Attempt::new(&round);
        let isolated = plan.failure_policy == FailurePolicy::Isolate;
        let isolated = isolated.then(|| final_codes(plan));
        let (size, grace) = (plan.ranks.len(), plan.shutdown_timeout);
        let group = WorkerGroup::new(size, plan.max_restarts, grace, isolated);
        Ok(LaunchDriver {
            lock,
            group,
            signals,
            notices,
            exits,
            peers,
            round,
            joining_since: SystemTime::now(),
            folder,
            leftovers,
            memory: OomKills::now(),
            attempt,
            flushes: Vec::new(),
            server: plan.model_server.as_ref().map(SupervisedServer::new),
            front,
            held: None,
            ended_by_others: false,
            is_told_to_end: false,
            hangs: HangReports::new(plan.hang.timeout),
            timer,
            page: None,
        })
    }

    /// Runs the launch to its end.
    pub async fn run(mut self) -> LaunchEnd {
        let mut actions = VecDeque::new();
        for event in self.begin().await {
            actions.extend(self.on(event));
        }
        loop {
            while let Some(action) = actions.pop_front() {
                if let GroupAction::Finish(end) = action {
                    return self.finish(end).await;
                }
                if let Some(event) = self.act(action).await {
                    actions.extend(self.on(event));
                }
            }
            for event in self.next().await {
                actions.extend(self.on(event));
            }
        }
    }

    fn on(&mut self, event: GroupEvent) -> Vec<GroupAction> {
        self.group.on(event, now())
    }

    async fn next(&mut self) -> Vec<GroupEvent> {
        let deadline = self.group.deadline();
        select! {
            received = self.signals.recv() => {
                self.say_received(received);
                vec![GroupEvent::Received(received)]
            }
            number = self.notices.recv() => self.on_notice(number),
            news = self.hangs.news() => self.on_hang_news(news),
            expired = if_any(self.timer.as_mut().map(FileTimer::news)) => {
                self.on_timers(expired);
                Vec::new()
            }
            notice = self.peers.recv() => self.heard(notice).into_iter().collect(),
            () = self.lock.lost() => {
                say::error(
                    "the lock of this launch is gone from `launch.lock` in its run folder: it was \
                     removed, or another launch considered this one dead; the ranks are stopped",
                );
                vec![GroupEvent::Over(LaunchEnd::Failed)]
            }
            news = if_any(self.server.as_mut().map(SupervisedServer::recv)) => self.served(news),
            _ = self.exits.recv() => self.exited(),
            () = sleep(SWEEP_PERIOD), if !self.group.sweeping().is_empty() => self.swept(),
            () = if_any(deadline.map(|at| sleep_until(at.into()))) => vec![GroupEvent::Deadline],
        }
    }

    fn say_received(&mut self, ReceivedSignal { number, .. }: ReceivedSignal) {
        let name = signal_name(number);
        say::warning(format_args!(
            "Received {number} death signal, shutting down workers ({name})"
        ));
        Event::ours("rrun.signal")
            .with("signal", name.as_ref())
            .record(&self.round);
        if let Some(server) = &mut self.server {
            server.tell(ServerEvent::EndIsNear);
        }
        self.is_told_to_end = true;
        // New clients are refused rather than left waiting.
        self.front = None;
    }

    /// Handles a signal that ends nothing. SLURM announces the end of a job by it. SLURM sends it
    /// to every process of a job step, but only to the launcher if the launcher runs in a batch
    /// script; then it is forwarded to the ranks.
    fn on_notice(&mut self, number: i32) -> Vec<GroupEvent> {
        let by_whom = match self.round.plan.signals.sender {
            Sender::Anyone => {
                self.explain("SIGUSR2 asked for it");
                return Vec::new();
            }
            Sender::SlurmToStep => "by rrun and by the ranks",
            Sender::SlurmToScript => {
                self.attempt.pass_on(number);
                "and passed on to the ranks"
            }
        };
        let name = signal_name(number);
        Event::ours("rrun.signal")
            .with("signal", name.as_ref())
            .record(&self.round);
        say::warning(format_args!(
            "{name} received {by_whom}; the launch continues"
        ));
        vec![GroupEvent::EndAnnounced]
    }

    fn exited(&mut self) -> Vec<GroupEvent> {
        let now = SystemTime::now();
        let exited = self.attempt.exited(&self.round, now, &mut self.memory);
        let served = self.server_exited();
        // Otherwise an adopted process has ended. To look for one beside every rank that ends would
        // list all children each time; what is missed here is reaped with the next, or when the
        // leftovers are swept.
        if exited.is_empty() {
            self.leftovers.reap(&self.attempt.pids());
        }
        // Where ranks fail one by one, `promise` and `lose` report each failure together with its
        // consequence.
        if self.round.plan.failure_policy == FailurePolicy::Torchrun && !self.group.is_stopping() {
            exited.iter().for_each(|(rank, _)| self.say_failure(*rank));
        }
        let swept = self.swept();
        exited
            .into_iter()
            .map(|(rank, exit)| GroupEvent::Exited(rank, exit))
            .chain(swept)
            .chain(served)
            .collect()
    }

    fn say_failure(&self, rank: usize) {
        let Some(casualty) = self.attempt.rank(rank).casualty() else {
            return;
        };
        let (rank, pid, code) = (casualty.rank, casualty.pid, casualty.exit.returncode());
        say::of_rank(Level::Error, rank, Some(pid), casualty.in_words());
        let program = self.round.plan.ranks[rank.index].argv[0].to_string_lossy();
        let line = format!(
            "failed (exitcode: {code}) local_rank: {} (pid: {pid}) of binary: {program}",
            rank.local
        );
        say::of_rank(Level::Error, rank, Some(pid), line);
    }

    async fn act(&mut self, action: GroupAction) -> Option<GroupEvent> {
        match action {
            GroupAction::Join => return self.join(),
            GroupAction::Start(Scope::All) => return self.spawn().await,
            GroupAction::Start(Scope::One(rank)) => return self.restart(rank),
            GroupAction::Sweep {
                scope,
                groups_know,
                is_success,
            } => return self.sweep(scope, groups_know, is_success),
            GroupAction::Part => {
                return (!self.peers.done()).then_some(GroupEvent::Over(LaunchEnd::Succeeded));
            }
            GroupAction::Tell { rank, restarts } => self.tell(rank, restarts),
            GroupAction::Send {
                signal: libc::SIGTERM,
            } if self.signals.is_known_to_ranks() => self.attempt.was_sent(libc::SIGTERM),
            GroupAction::Send { signal } => self.attempt.send(signal),
            GroupAction::KillLeftovers(scope) => self.kill_leftovers(scope),
            GroupAction::Abandon(rank) => self.abandon(rank),
            GroupAction::Promise { rank, restart } => self.promise(rank, restart),
            GroupAction::Lose { rank, why } => self.lose(rank, why),
            GroupAction::Finish(_) => {}
        }
        None
    }

    fn end_attempt(&mut self) {
        let tails = self.attempt.end();
        self.flush_later(tails);
    }

    /// Lets these tails write their last lines beside the launch.
    fn flush_later(&mut self, tails: impl IntoIterator<Item = Tail>) {
        self.flushes.extend(tails.into_iter().map(Tail::finish));
    }

    async fn finish(mut self, end: LaunchEnd) -> LaunchEnd {
        let rendezvous = self.round.plan.rendezvous.as_ref();
        let nodes_return = rendezvous.is_some_and(|rendezvous| rendezvous.nodes_return);
        let end = match end {
            // One that succeeds would not come back to a launch that has failed elsewhere.
            LaunchEnd::Succeeded if nodes_return && self.ended_by_others => LaunchEnd::Failed,
            end => end,
        };
        self.end_attempt();
        if let Some(server) = &mut self.server {
            server.tell(match end {
                LaunchEnd::Killed { .. } => ServerEvent::Kill,
                _ => ServerEvent::Stop,
            });
        }
        self.peers.leave(end.reason()).await;
        self.end_server().await;
        self.flush().await;
        let state = match end {
            LaunchEnd::Succeeded => "SUCCEEDED",
            _ => "FAILED",
        };
        Event::of_state(state).record(&self.round);
        match end {
            LaunchEnd::Succeeded | LaunchEnd::NotStarted => {}
            LaunchEnd::Failed | LaunchEnd::Incomplete => self.report(),
            LaunchEnd::Stopped { signal } | LaunchEnd::Killed { signal } => {
                say::error(format_args!(
                    "Process {} got signal: {signal}",
                    std::process::id()
                ));
            }
        }
        end
    }

    /// Waits until every log line has been written, however slow the console is. A signal ends the
    /// wait.
    async fn flush(&mut self) {
        for flush in self.flushes.drain(..) {
            select! {
                _ = flush => {}
                received = self.signals.recv() => {
                    say::warning(format_args!("{} while log lines were still to be printed", signal_name(received.number)));
                    return;
                }
            }
        }
    }

    fn report(&self) {
        let failures = self.attempt.failures();
        if self.ended_by_others
            && failures
                .iter()
                .all(|failure| failure.casualty.stopped_by.is_some())
        {
            return;
        }
        last_words::say_all(self.round.plan, &self.attempt, &failures);
    }
}

/// Returns the exit codes after which a restart would fail in the same way. What other codes mean
/// in a foreign program is unknown.
fn final_codes(plan: &LaunchPlan) -> Vec<i32> {
    CANNOT_RUN
        .into_iter()
        .chain(plan.is_built_in.then_some(FINAL.into()))
        .collect()
}
