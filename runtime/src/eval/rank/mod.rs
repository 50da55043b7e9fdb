//! The evaluation of one rank: its jobs, one after the other, then the report.
//!
//! ```text
//! program ─► rank::run ─┬──────────────► history      what the journals say is done
//!                       │                datasets     without demonstrations that no line names
//!                       │                policy_files hashes the files of the policies (rank 0)
//!                       ├─ each job ───► queue        own jobs, then leased ones; may wait for one
//!                       │                rollout::job, line `job_end`, retries
//!                       └─ the end ────► conclusion   waits for all, gather, report
//! ```
//! Two values go down with every call: `run`, a [`RankSetup`] that never changes, and `out`, the
//! [`Ledger`] that a job changes. Nothing comes back but an error.

mod conclusion;
mod datasets;
mod history;
mod policy_files;
mod queue;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use jobs::assign::Work;
use jobs::costs::Costs;
use jobs::count::counted;
use jobs::job::{Job, Length};
use jobs::journal::{JobEnd, Line, ROUNDING_VARIABLES, RankStart};
use jobs::progress::{self, Progress};
use jobs::time::rfc3339;
use report::tables;

use crate::clock::now;
use crate::console;
use crate::device::gpu;
use crate::eval::Stop;
use crate::eval::ledger::Ledger;
use crate::eval::monitor::beat::{self, Beat};
use crate::eval::monitor::early_stop::EarlyStop;
use crate::eval::monitor::exporter::Exporter;
use crate::eval::monitor::meter::JobUse;
use crate::eval::monitor::tracking::{TrackedRun, Tracking};
use crate::eval::monitor::view::RunView;
use crate::eval::monitor::{Board, Event, Monitor};
use crate::eval::rank::history::JournalHistory;
use crate::eval::rank::policy_files::PolicyHashing;
use crate::eval::rank::queue::JobQueue;
use crate::eval::rank_setup::RankSetup;
use crate::eval::rollout::job;
use crate::eval::rollout::job::task::Task;
use crate::policy::PolicyThread;
use crate::versions::{self, versions};

/// The evaluation of one rank.
struct Evaluation {
    run: RankSetup,
    past: JournalHistory,
    inference: PolicyThread,
    out: Ledger,
    begun: Instant,
    /// Seconds in which jobs ran.
    busy_s: f64,
    /// The reason why a job has failed for good.
    failed: Option<String>,
    /// The hashing of the policy files; only on rank 0.
    hashing: Option<PolicyHashing>,
    /// When the last episode ended, if all were there before this launch.
    done_before: Option<String>,
}

/// Runs all jobs of a rank, and ends with its exit code.
///
/// # Errors
/// Returns an error if the store, the journal, the GPU or the report fails. The failure of a job is
/// no error.
pub fn run(run: RankSetup, inference: PolicyThread, mut out: Ledger) -> Result<ExitCode, Stop> {
    let begun = now();
    out.write(&Line::Rank(Box::new(start_line(&run))))?;
    let (past, _extract) = JournalHistory::begin(&run, &out.monitor)?;
    announce(&run, &past, &out.monitor);
    let done_before = progress::done_before(&past.lines, &run.plan.jobs, &past.launched);
    datasets::clean(&run, &past, &out.monitor);
    let cache = run.folder.policy_files();
    let hashing = (run.env.rank == 0).then(|| PolicyHashing::start(&run.plan, &past.lines, cache));
    begin_early_stop(&run, &past, &mut out.monitor);
    let queue = JobQueue::new(&run, &past, &mut out)?;
    begin(&run, &queue, &past, &mut out);
    let mut rank = Evaluation {
        run,
        past,
        inference,
        out,
        begun,
        busy_s: 0.0,
        failed: None,
        hashing,
        done_before,
    };
    rank.jobs(queue)?;
    rank.conclude()
}

impl Evaluation {
    /// Runs the jobs, one after the other.
    fn jobs(&mut self, mut queue: JobQueue) -> Result<(), Stop> {
        while let Some(work) = queue.next(&self.run, &mut self.past, &mut self.out)? {
            let monitor = &mut self.out.monitor;
            if !monitor.begins_no_more(work.job.index) {
                self.job(&work, queue.is_leased(&work))?;
                self.note_policy_files(Duration::ZERO)?;
            } else if !monitor.stop.is_decided {
                monitor.say(&format!("{} is skipped", work.job.name));
            }
            if let Some(leases) = &mut self.out.leases
                && !self.out.monitor.is_over()
            {
                leases.give_up(work.job.index);
            }
            let has_failed = self.failed.is_some() && !self.run.args.continue_on_error;
            if self.out.monitor.stop.asked() || has_failed {
                break;
            }
        }
        Ok(())
    }

    /// Runs the rest of a job, and retries it if it fails.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written, the store of the leases fails, or the GPU
    /// is lost.
    fn job(&mut self, work: &Work, is_leased: bool) -> Result<(), Stop> {
        let job = &work.job;
        if self.past.given_up.contains(&job.index) {
            self.failed.get_or_insert_with(|| {
                format!("{} has failed before this rank was restarted", job.name)
            });
            return Ok(());
        }
        let mut attempt = 0;
        loop {
            let lines = self.past.about(job.index);
            let task = Task::new(work, is_leased, attempt, &lines, &self.past.suspects);
            let failed = match self.attempt(&task) {
                Ok(()) => break,
                Err(Stop::Overtaken) => None,
                Err(Stop::Job(reason)) => Some(reason),
                Err(stop) => return Err(stop),
            };
            self.past.refresh_own(&self.run)?;
            let Some(reason) = failed else { continue };
            attempt += 1;
            if attempt == self.run.args.job_attempts {
                datasets::clean_job(&self.run, &self.past, &self.out.monitor, job);
                let reason = format!("{}: {reason}", job.name);
                console::write_error_file(&reason);
                self.failed = Some(reason);
                break;
            }
        }
        if !self.out.monitor.stop.asked() {
            self.out.monitor.on(Event::JobDone);
        }
        Ok(())
    }

    /// Runs the rest of a job once.
    ///
    /// # Errors
    /// Returns [`Stop::Job`] if the job failed, [`Stop::Overtaken`] if it has to go on with its
    /// dataset opened again, and otherwise why the rank cannot go on.
    fn attempt(&mut self, task: &Task) -> Result<(), Stop> {
        let index = task.index();
        let out = &mut self.out;
        let name = &task.job().name;
        match (&mut out.leases, task.is_leased) {
            // With leases, finished episodes of other ranks do not count for this one.
            (Some(leases), true) => {
                leases.visit(&task.work, task.done.clone(), task.suspects.of(index));
                out.begin(name, 0, 0);
            }
            _ => out.begin(name, task.done.len() as u64, task.solved),
        }
        if task.is_finished {
            self.leave(task, true);
            return Ok(());
        }
        let started = now();
        let result = self.run_job(task);
        self.leave(task, result.is_ok());
        let took = started.elapsed();
        self.busy_s += took.as_secs_f64();
        let failed = match result {
            Err(Stop::Asked) => return Ok(()),
            Err(Stop::TakenOver) => {
                // This rank does not open the dataset of the job again.
                datasets::clean_job(&self.run, &self.past, &self.out.monitor, task.job());
                return Ok(());
            }
            Err(Stop::GpuLost(reason)) => return Err(self.lose(reason)?),
            Err(Stop::Job(reason)) => Some(reason),
            Err(stop) => return Err(stop),
            // A job in steps is over when it says so, so one that was cut short must not.
            Ok(()) if self.is_cut_short(task) => return Ok(()),
            Ok(()) => None,
        };
        self.out.monitor.on(Event::AttemptEnded(took));
        self.note_end(task, failed.as_deref(), took)?;
        failed.map_or(Ok(()), |reason| Err(Stop::Job(reason)))
    }

    /// Ends the visit of a job that is leased.
    fn leave(&mut self, task: &Task, is_done: bool) {
        if let Some(leases) = self.out.leases.as_mut().filter(|_| task.is_leased) {
            leases.leave(task.index(), is_done);
        }
    }

    /// Returns whether a user has left out the rest of a job in steps.
    fn is_cut_short(&mut self, task: &Task) -> bool {
        matches!(task.job().length, Length::Steps(_))
            && !self.out.monitor.orders.at(now()).allows(task.index())
    }

    fn run_job(&mut self, task: &Task) -> Result<(), Stop> {
        let (name, rank, attempt) = (&task.job().name, self.run.env.rank, task.attempt + 1);
        let _span = tracing::info_span!("job", %name, rank, attempt).entered();
        self.out.monitor.meter.begin();
        let result = job::run(&self.run, task, &self.inference, &mut self.out);
        // However the job ended, its finished episodes are reported before anything else happens.
        let synced = self.out.sync();
        result.and(synced)
    }

    /// Tells the user how an attempt failed, and writes its last journal line.
    fn note_end(&mut self, task: &Task, error: Option<&str>, took: Duration) -> Result<(), Stop> {
        let is_retried = error.is_some() && task.attempt + 1 < self.run.args.job_attempts;
        if let Some(error) = error {
            let name = &task.job().name;
            let text = match is_retried {
                // If it fails again, it says the rest then.
                true => {
                    let reason = error.lines().next().unwrap_or_default();
                    format!("{name} failed, and is tried again: {reason}")
                }
                false => format!("{name} failed: {error}"),
            };
            self.out.monitor.say(&text);
        }
        let (folder, rank) = (&self.run.folder, self.run.env.rank);
        let (totals, envs) = (&self.out.totals, self.out.monitor.meter.job());
        let line = JobEnd {
            job: task.job().name.clone(),
            job_index: task.index(),
            rank,
            share: task.work.share,
            attempt: task.attempt,
            wall_s: took.as_secs_f64(),
            error: error.map(str::to_owned),
            retried: is_retried,
            log: error.map(|_| folder.relative(&folder.log(rank))),
            infer_busy_s: totals.infer_busy().as_secs_f64(),
            sim_busy_s: totals.sim_busy.total.as_secs_f64(),
            infer_ms: totals.infer.quantiles(),
            sim_ms: totals.sim.quantiles(),
            gpu_busy: envs.gpu_busy,
            costs: self.costs(envs),
            ended: rfc3339(SystemTime::now()),
        };
        self.out.write(&Line::JobEnd(Box::new(line)))
    }

    fn costs(&self, envs: JobUse) -> Costs {
        let totals = &self.out.totals;
        let libtorch = gpu::take_peak(self.run.device.device);
        Costs {
            policy_calls: totals.infer.count,
            peak_rss_bytes: versions::peak_rss_bytes(),
            peak_vram_bytes: libtorch.map(|peak| peak.reserved_peak_bytes),
            peak_vram_allocated_bytes: libtorch.map(|peak| peak.allocated_peak_bytes),
            peak_env_bytes: envs.host_bytes,
            peak_env_vram_bytes: envs.gpu.map(|gpu| gpu.bytes),
            env_vram_is_estimate: envs.gpu.is_some_and(|gpu| gpu.is_estimate),
            out_of_memory: totals.shortage.count,
            out_of_memory_batch: totals.shortage.batch.map(|rows| rows as u64),
            ..totals.costs.clone()
        }
    }

    /// Writes journal lines for the policy files that have been hashed.
    fn note_policy_files(&mut self, patience: Duration) -> Result<(), Stop> {
        let hashed = self.hashing.as_ref().map(|hashing| hashing.take(patience));
        let mut lines = hashed.iter().flatten();
        lines.try_for_each(|line| self.out.write(line))
    }
}

/// Begins the heartbeat of this rank, with its share of the work, and the progress display.
fn begin(run: &RankSetup, queue: &JobQueue, past: &JournalHistory, out: &mut Ledger) {
    let own = queue.own();
    let (env, jobs) = (&run.env, &run.plan.jobs);
    let (lines, launched) = (&past.lines, past.launched.as_str());
    let own = beat::own(own, lines, launched, env.rank);
    out.monitor.beat = Beat {
        device: gpu::name(run.device.device),
        // Every job ends in the last stage, so that a number of jobs tells nothing.
        jobs: if queue.is_staged() { 0 } else { own.jobs },
        by_job: own.by_job.filter(|_| !run.args.tracking.is_off()),
        batches: out.monitor.beat.batches,
        ..own
    };
    if env.rank == 0 {
        let view = RunView::new(beat::before(jobs, lines, launched), env.world_size);
        out.monitor.board = Some(Board {
            view,
            exporter: exporter(run, &out.monitor),
            tracking: tracking(run, &out.monitor),
        });
    }
}

/// Prepares the sequential test, and judges what the journals already have.
fn begin_early_stop(run: &RankSetup, past: &JournalHistory, monitor: &mut Monitor) {
    if run.args.question().is_none() {
        return;
    }
    let (env, comparison) = (&run.env, run.comparison.clone());
    let early_stop = EarlyStop::new(env.rank, env.world_size, comparison);
    monitor.begin_early_stop(early_stop, &past.lines);
}

/// Starts the trackers of the command line.
fn tracking(run: &RankSetup, monitor: &Monitor) -> Option<Tracking> {
    let args = &run.args.tracking;
    if args.is_off() {
        return None;
    }
    let tracking = Tracking::start(&TrackedRun {
        args,
        plan: &run.plan,
        folder: &run.folder,
        world_size: run.env.world_size,
    });
    tracking.pids().for_each(|pid| monitor.meter.leave_out(pid));
    Some(tracking)
}

/// Serves metrics if the command line names a port.
fn exporter(run: &RankSetup, monitor: &Monitor) -> Option<Exporter> {
    let address = run.args.metrics?;
    let warn = |err| {
        let (host, port) = (address.ip(), address.port());
        monitor.say(&format!(
            "warning: no metrics on {host}, port {port}: {err}"
        ));
    };
    Exporter::listen(address).map_err(warn).ok()
}

fn announce(run: &RankSetup, past: &JournalHistory, monitor: &Monitor) {
    if run.env.rank != 0 {
        return;
    }
    let jobs = &run.plan.jobs;
    let (progress, none) = (progress::by_job(&past.lines), Progress::default());
    let so_far = |job: &Job| progress.get(&job.index).unwrap_or(&none).status(job);
    console::info(tables::jobs(jobs.iter().map(|job| (job, so_far(job)))));
    let done: usize = progress.values().map(|of_job| of_job.done().count()).sum();
    if done > 0 {
        let folder = run.folder.root().display();
        let done = counted(done, "episode");
        monitor.say(&format!("resuming in `{folder}`: {done} done"));
    }
}

fn start_line(run: &RankSetup) -> RankStart {
    let RankSetup { env, device, .. } = run;
    RankStart {
        rank: env.rank,
        world_size: env.world_size,
        restart: env.restart_count,
        round: env.round,
        node: env.group_rank,
        local_rank: env.local_rank,
        pid: std::process::id(),
        host: jobs::host::name(),
        cpu: versions::cpu_model(),
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

/// Returns those variables that are set of which the last bits of results depend.
fn rounding() -> BTreeMap<String, String> {
    let value = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    ROUNDING_VARIABLES.into_iter().filter_map(value).collect()
}
