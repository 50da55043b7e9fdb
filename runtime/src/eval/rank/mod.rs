//! The evaluation of one rank: its jobs, one after the other, then the report.
//!
//! ```text
//! program ─► Evaluation::run ─► history      what the journals say is done
//!              │                 datasets     without demonstrations that no journal line names
//!              │                 policy_files hashes the files of the policies (rank 0)
//!              ├─ each job ────► job_queue    own jobs, then leased ones; idle while none is free
//!              │                 attempt      rollout::job, line `job_end`, retries
//!              ├─ early_stop ──► a sequential test on rank 0 ends the run when it has decided
//!              └─ the end ─────► conclusion   waits for the others; outcome: gather, report
//! ```

mod attempt;
mod conclusion;
mod datasets;
pub mod early_stop;
mod history;
mod idle;
mod job_queue;
pub mod observers;
mod outcome;
mod policy_files;

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use jobs::assign;
use jobs::count::counted;
use jobs::eval_args::EvalArgs;
use jobs::job::Job;
use jobs::journal::{Journal, Line, ROUNDING_VARIABLES, RankStart};
use jobs::live::PAGE_VARIABLE;
use jobs::progress;
use jobs::time::rfc3339;
use report::tables;

use crate::clock::now;
use crate::device::gpu;
use crate::eval::monitor::exporter::Exporter;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::monitor::orders::LiveOrders;
use crate::eval::monitor::progress::Outputs;
use crate::eval::monitor::stop::StopRequest;
use crate::eval::monitor::tally;
use crate::eval::monitor::tracking::{TrackedRun, Tracking};
use crate::eval::rank::early_stop::EarlyStop;
use crate::eval::rank::history::JournalHistory;
use crate::eval::rank::idle::IdleRank;
use crate::eval::rank::job_queue::JobQueue;
use crate::eval::rank::observers::Observers;
use crate::eval::rank::policy_files::PolicyHashing;
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;
use crate::policy::PolicyThread;
use crate::versions::versions;
use crate::{console, host};

/// The evaluation of one rank.
pub struct Evaluation<'a> {
    args: &'a EvalArgs,
    setup: &'a RankSetup,
    stop: &'a StopRequest,
    inference: PolicyThread,
    journal: Journal,
    observers: Observers<'a>,
    begun: Instant,
    /// Seconds in which jobs ran.
    busy_s: f64,
    /// The reason why a job has failed for good.
    failed: Option<String>,
    /// The hashing of the policy files; only on rank 0.
    hashing: Option<PolicyHashing>,
    /// What a user asks on the page of the run.
    orders: LiveOrders,
    /// When the last episode ended, if all were there before this launch.
    done_before: Option<String>,
}

impl<'a> Evaluation<'a> {
    /// Creates the evaluation of a rank; nothing runs yet.
    pub fn new(
        args: &'a EvalArgs,
        setup: &'a RankSetup,
        stop: &'a StopRequest,
        inference: PolicyThread,
        journal: Journal,
        observers: Observers<'a>,
    ) -> Self {
        let has_page = std::env::var_os(PAGE_VARIABLE).is_some();
        let launch = setup.env.launch.as_deref();
        Self {
            orders: LiveOrders::new(&setup.folder, launch, has_page),
            args,
            setup,
            stop,
            inference,
            journal,
            observers,
            begun: now(),
            busy_s: 0.0,
            failed: None,
            hashing: None,
            done_before: None,
        }
    }

    /// Runs all jobs of this rank, and ends with its exit code.
    ///
    /// # Errors
    /// Returns a [`Stop`] if the store, the journal, the GPU or the report fails. The failure
    /// of a job is no error.
    pub fn run(&mut self) -> Result<ExitCode, Stop> {
        self.append(&Line::Rank(Box::new(self.start_line())))?;
        let setup = self.setup;
        let Observers {
            peers, progress, ..
        } = &self.observers;
        let (mut history, _extract) = history::begin(setup, peers.eval_store(), progress)?;
        self.announce(&history);
        self.done_before =
            progress::done_before(&history.lines, &setup.plan.jobs, &history.launched);
        datasets::clean(setup, &history, progress);
        if setup.env.rank == 0 {
            let (plan, cache) = (&setup.plan, setup.folder.policy_files());
            self.hashing = Some(PolicyHashing::start(plan, &history.lines, cache));
        }
        self.begin_early_stop(&history);
        let own = setup.placement.work.clone();
        let stages = self.stages();
        let mut job_queue = JobQueue::new(own, stages, self.args, &setup.env, &history.lines)?;
        let mut last = self.begin(&job_queue, &history);
        loop {
            let mut idle = IdleRank {
                setup,
                observers: &mut self.observers,
                stop: self.stop,
                last: &last,
            };
            let Some(work) = job_queue.next(&mut history, &mut idle)? else {
                break;
            };
            if self.orders.stop(now()) {
                self.stop.decide();
                break;
            }
            if self.orders.forbid(work.job.index, now()) {
                let name = &work.job.name;
                self.observers.progress.say(&format!("{name} is skipped"));
                job_queue.after(&work);
                continue;
            }
            last = self.job(&work, job_queue.leases(&work), &mut history, last)?;
            self.note_policy_files(PolicyHashing::take)?;
            if !self.stop.asked() && !self.stop.is_decided() {
                job_queue.after(&work);
            }
            if self.stop.asked() || (self.failed.is_some() && !self.args.continue_on_error) {
                break;
            }
        }
        self.conclude(last)
    }

    /// Writes journal lines for the policy files that have been hashed.
    fn note_policy_files(&mut self, take: fn(&mut PolicyHashing) -> Vec<Line>) -> Result<(), Stop> {
        let hashed = self.hashing.as_mut().map(take).unwrap_or_default();
        hashed.iter().try_for_each(|line| self.append(line))
    }

    /// Returns the first heartbeat of this rank, with its share of the work, and starts the
    /// progress display.
    fn begin(&mut self, job_queue: &JobQueue, history: &JournalHistory) -> Heartbeat {
        let own = job_queue.own();
        let (env, jobs) = (&self.setup.env, &self.setup.plan.jobs);
        let (lines, launched) = (&history.lines, history.launched.as_str());
        let outputs = Outputs {
            exporter: self.exporter(),
            tracking: self.tracking(),
        };
        let before = || tally::before(jobs, lines, launched);
        self.observers
            .progress
            .begin(before, env.world_size, outputs);
        let counted = tally::own(own.unwrap_or_default(), lines, launched, env.rank);
        // A rank that leases its work has no jobs of its own.
        let (jobs, own) = own.map_or((0, 0), |_| (counted.jobs, counted.own));
        // Every job ends in the last stage, so that a number of jobs tells nothing.
        let jobs = if job_queue.is_staged() { 0 } else { jobs };
        Heartbeat {
            device: gpu::name(self.setup.device.device),
            jobs,
            own,
            by_job: counted.by_job.filter(|_| !self.args.tracking.is_off()),
            ..counted
        }
    }

    /// Returns the stages in which the jobs run: none, unless a sequential test may end the run.
    fn stages(&self) -> Vec<Range<u64>> {
        if self.observers.early_stop.is_none() {
            return Vec::new();
        }
        let (jobs, world_size) = (&self.setup.plan.jobs, self.setup.env.world_size);
        assign::stages(jobs, self.args.assignment(), world_size)
    }

    /// Prepares the sequential test, and judges what the journals already have.
    fn begin_early_stop(&mut self, history: &JournalHistory) {
        if self.args.question().is_none() {
            return;
        }
        let RankSetup {
            env, comparison, ..
        } = self.setup;
        let (stop, comparison) = (self.stop.clone(), comparison.clone());
        let mut early_stop = EarlyStop::new(env.rank, env.world_size, stop, comparison);
        let decided = early_stop.begin(&history.lines, self.observers.peers.eval_store());
        self.observers.early_stop = Some(early_stop);
        if let Some(text) = decided {
            self.observers.progress.say(&text);
        }
    }

    /// Starts the trackers of the command line; only on rank 0.
    fn tracking(&self) -> Option<Tracking> {
        let RankSetup {
            env, plan, folder, ..
        } = self.setup;
        let args = &self.args.tracking;
        if env.rank != 0 || args.is_off() {
            return None;
        }
        Some(Tracking::start(&TrackedRun {
            args,
            plan,
            folder,
            world_size: env.world_size,
            others: self.observers.meter.others(),
        }))
    }

    /// Serves metrics if the command line names a port; only on rank 0.
    fn exporter(&self) -> Option<Exporter> {
        let port = self.args.metrics_port?;
        if self.setup.env.rank != 0 {
            return None;
        }
        let host = self.args.metrics_host;
        match Exporter::listen(host, port) {
            Ok(exporter) => Some(exporter),
            Err(err) => {
                let text = format!("warning: no metrics on {host}, port {port}: {err}");
                self.observers.progress.say(&text);
                None
            }
        }
    }

    fn announce(&self, history: &JournalHistory) {
        let setup = self.setup;
        if setup.env.rank != 0 {
            return;
        }
        let jobs = &setup.plan.jobs;
        let so_far = |job: &Job| progress::status_so_far(&history.about(job.index), job);
        let statuses: Vec<_> = jobs.iter().map(so_far).collect();
        let rows = jobs.iter().zip(statuses.iter().map(String::as_str));
        console::info(tables::jobs(rows));
        let done: usize = progress::done(&history.lines).values().map(Vec::len).sum();
        if done > 0 {
            let folder = setup.folder.root().display();
            let text = format!("resuming in `{folder}`: {} done", counted(done, "episode"));
            self.observers.progress.say(&text);
        }
    }

    fn start_line(&self) -> RankStart {
        let RankSetup { env, device, .. } = self.setup;
        RankStart {
            rank: env.rank,
            world_size: env.world_size,
            restart: env.restart_count,
            round: env.round,
            node: env.group_rank,
            local_rank: env.local_rank,
            pid: std::process::id(),
            host: jobs::host::name(),
            cpu: host::cpu_model(),
            threads: usize::try_from(tch::get_num_threads()).ok(),
            rounding: rounding(),
            device: gpu::name(device.device),
            device_reason: device.reason.clone(),
            gpu: gpu::described(device.device),
            versions: versions(),
            started: rfc3339(SystemTime::now()),
            launch: env.launch.clone(),
        }
    }

    fn append(&mut self, line: &Line) -> Result<(), Stop> {
        let appended = self.journal.append(line);
        appended.map_err(|err| Stop::not_written(self.journal.path(), err))
    }
}

/// Returns those variables that are set of which the last bits of results depend.
fn rounding() -> BTreeMap<String, String> {
    let value = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    ROUNDING_VARIABLES.into_iter().filter_map(value).collect()
}
