//! The loop: waits for something to happen, asks the group what it means, does it.

use std::collections::VecDeque;
use std::env;
use std::future::{Future, pending};
use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::agent::attempt::Attempt;
use crate::agent::error::AgentError;
use crate::agent::event::{Action, End, Event, LocalRank};
use crate::agent::group::Group;
use crate::agent::store::AgentStore;
use crate::agent::variables::Round;
use crate::agent::{chain, print, say};
use crate::failure::root_cause;
use crate::logs::attempt::AttemptLogs;
use crate::logs::folder::RunFolder;
use crate::plan::{Plan, Sender};
use crate::process::exit::Exit;
use crate::process::leftover::{Leftovers, Reach};
use crate::process::oom::OomKills;
use crate::report;
use crate::signals::{self, Notices, Signals};

/// Between two looks for leftovers, which are not all our children and so do not all tell us when they end.
const SWEEP_PERIOD: Duration = Duration::from_millis(20);

/// Waits until every line of an attempt is out.
type Flush = Pin<Box<dyn Future<Output = ()>>>;

/// Everything that one launch holds.
pub struct Driver<'a> {
    plan: &'a Plan,
    group: Group,
    signals: Signals,
    notices: Notices,
    exits: tokio::signal::unix::Signal,
    store: Option<AgentStore>,
    folder: Option<RunFolder>,
    leftovers: Leftovers,
    memory: OomKills,
    number: u32,
    attempt: Attempt,
    flushes: Vec<Flush>,
}

impl<'a> Driver<'a> {
    /// Listens to signals, hosts the store and makes the log folder.
    pub fn new(plan: &'a Plan, leftovers: Leftovers) -> Result<Driver<'a>, AgentError> {
        if plan.nnodes != 1 {
            return Err(AgentError::Nodes { found: plan.nnodes });
        }
        let (signals, notes) = Signals::listen(&plan.signals);
        let notices = Notices::listen(&plan.signals);
        notes.iter().for_each(say);
        let exits = signal(SignalKind::child()).map_err(AgentError::Signals)?;
        let is_shared = env::var_os("TORCH_DISABLE_SHARE_RDZV_TCP_STORE").is_none_or(|value| value != "1");
        let store = Some(AgentStore::open(&plan.store, is_shared)?);
        let folder = match plan.logs.disabled {
            true => None,
            false => Some(RunFolder::create(plan.logs.dir.as_deref(), &plan.run_id)?),
        };
        let group = Group::new(plan.ranks.len(), plan.max_restarts, plan.shutdown_timeout);
        let attempt = Attempt::default();
        let memory = OomKills::now();
        let flushes = Vec::new();
        Ok(Driver {
            plan,
            group,
            signals,
            notices,
            exits,
            store,
            folder,
            leftovers,
            memory,
            number: 0,
            attempt,
            flushes,
        })
    }

    /// Runs to the end.
    pub async fn run(mut self) -> End {
        let mut actions = VecDeque::from(self.on(Event::Ready));
        loop {
            while let Some(action) = actions.pop_front() {
                if let Action::Finish(end) = action {
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

    #[expect(clippy::disallowed_methods, reason = "the loop is where the clock is read")]
    fn on(&mut self, event: Event) -> Vec<Action> {
        self.group.on(event, Instant::now())
    }

    async fn next(&mut self) -> Vec<Event> {
        let deadline = self.group.deadline();
        let deadline = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        select! {
            received = self.signals.recv() => {
                let (number, name) = (received.number, signals::name(received.number));
                say(format_args!("Received {number} death signal, shutting down workers ({name})"));
                vec![Event::Received(received)]
            }
            number = self.notices.recv() => {
                self.pass_on(number);
                Vec::new()
            }
            _ = self.exits.recv() => self.exited(),
            () = sleep(SWEEP_PERIOD), if self.group.is_sweeping() => self.swept().into_iter().collect(),
            () = deadline => vec![Event::Deadline],
        }
    }

    /// SLURM's announcement of the end; it has reached every process of a step, but only us of a batch script.
    fn pass_on(&self, number: i32) {
        let name = signals::name(number);
        match self.plan.signals.sender {
            Sender::SlurmToStep => say(format_args!("{name} received, as the ranks have; the launch goes on")),
            Sender::SlurmToScript | Sender::Anyone => {
                say(format_args!("{name} received and passed on to the ranks; the launch goes on"));
                self.attempt.pass_on(number);
            }
        }
    }

    fn exited(&mut self) -> Vec<Event> {
        let exited = self.attempt.exited(&self.round(), SystemTime::now());
        self.leftovers.reap(&self.attempt.pids());
        let is_first = |rank: &LocalRank| !self.group.is_stopping() && self.attempt.casualty(*rank).is_some();
        for rank in exited.iter().map(|(rank, _)| rank).filter(|rank| is_first(rank)) {
            self.say_failure(*rank);
        }
        let swept = if self.group.is_sweeping() { self.swept() } else { None };
        exited.into_iter().map(|(rank, exit)| Event::Exited(rank, exit)).chain(swept).collect()
    }

    fn say_failure(&self, rank: LocalRank) {
        let Some(casualty) = self.attempt.casualty(rank) else { return };
        let (code, pid) = (casualty.exit.returncode(), casualty.pid);
        let program = self.plan.ranks[rank.0].argv[0].to_string_lossy();
        let hint = match casualty.exit {
            Exit::Signal(libc::SIGKILL) => self.memory.hint(),
            Exit::Signal(_) | Exit::Code(_) => "",
        };
        say(format_args!("rank {} {}{hint}", casualty.rank, casualty.exit));
        say(format_args!("failed (exitcode: {code}) local_rank: {rank} (pid: {pid}) of binary: {program}"));
    }

    fn swept(&self) -> Option<Event> {
        (self.leftovers.signal(&self.attempt.pids(), Reach::All, None) == 0).then_some(Event::Swept)
    }

    async fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Spawn { attempt } => self.spawn(attempt).await.err().map(Event::NotStarted),
            Action::Send { signal } => {
                self.attempt.send(signal);
                None
            }
            Action::Sweep { groups_know } => {
                let reach = if groups_know { Reach::OutsideGroups } else { Reach::All };
                let living = self.leftovers.signal(&self.attempt.pids(), reach, Some(Signal::SIGTERM));
                (living == 0).then_some(Event::Swept)
            }
            Action::KillLeftovers => {
                let living = self.leftovers.signal(&self.attempt.pids(), Reach::All, Some(Signal::SIGKILL));
                say(format_args!("processes that ranks had left behind, killed: {living}"));
                None
            }
            Action::Abandon(rank) => {
                let pid = self.attempt.pid(rank).unwrap_or_default();
                say(format_args!("rank {rank} (pid {pid}) does not end even by SIGKILL and is left behind"));
                None
            }
            Action::Finish(_) => None,
        }
    }

    async fn spawn(&mut self, attempt: u32) -> Result<(), LocalRank> {
        self.number = attempt;
        if attempt > 0 {
            say(format_args!("restart {attempt} of {}", self.plan.max_restarts));
            self.end_attempt();
        }
        if let Err(err) = self.prepare().await {
            say(chain(&err));
            return Err(LocalRank(0));
        }
        // Not `self.round()`: the attempt is borrowed mutably beside it.
        let round = round(self.plan, self.store.as_ref(), attempt);
        self.attempt.spawn(&round)
    }

    /// Store and log files for the attempt that begins.
    async fn prepare(&mut self) -> Result<(), AgentError> {
        if self.number > 0
            && let Some(store) = self.store.take()
        {
            self.store = Some(store.renew(&self.plan.store).await?);
        }
        let logs = match &self.folder {
            Some(folder) => AttemptLogs::create(folder, self.number, self.plan, self.round().rank(0))?,
            None => AttemptLogs::disabled(self.plan.ranks.len()),
        };
        self.attempt = Attempt::new(logs);
        Ok(())
    }

    fn round(&self) -> Round<'a> {
        round(self.plan, self.store.as_ref(), self.number)
    }

    fn end_attempt(&mut self) {
        if let Some(tail) = self.attempt.end() {
            self.flushes.push(Box::pin(tail.finish()));
        }
    }

    async fn finish(mut self, end: End) -> End {
        self.end_attempt();
        self.flush().await;
        match end {
            End::Succeeded | End::NotStarted => {}
            End::Failed => self.report(),
            End::Stopped { signal } | End::Killed { signal } => {
                say(format_args!("Process {} got signal: {signal}", std::process::id()));
            }
        }
        end
    }

    /// Waits until every log line is out, however slow the console; a signal ends the wait.
    async fn flush(&mut self) {
        for flush in self.flushes.drain(..) {
            select! {
                () = flush => {}
                received = self.signals.recv() => {
                    say(format_args!("{} while log lines were still to be printed", signals::name(received.number)));
                    return;
                }
            }
        }
    }

    fn report(&self) {
        let failures = self.attempt.failures();
        let Some(root) = root_cause(&failures).map(|index| &failures[index]) else { return };
        if let Some((path, lines)) = self.attempt.last_lines(root.casualty.local_rank) {
            say(format_args!("rank {}: end of `{}`:", root.casualty.rank, path.display()));
            lines.iter().for_each(|line| print(format_args!("  {line}\n")));
        }
        print(report::render(&self.plan.title, &report::host(), &failures));
        let own = env::var_os("TORCHELASTIC_ERROR_FILE").filter(|path| !path.is_empty());
        if let Some(Err(err)) = own.map(|path| root.forward_to(Path::new(&path))) {
            say(format_args!("cannot write the launcher's own error file: {err}"));
        }
    }
}

fn round<'a>(plan: &'a Plan, store: Option<&AgentStore>, attempt: u32) -> Round<'a> {
    let master_port = store.map_or(0, AgentStore::port);
    let has_agent_store = store.is_none_or(AgentStore::is_hosted);
    Round { plan, master_port, has_agent_store, attempt }
}
