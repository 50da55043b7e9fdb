//! Runs one rank, from its command line to its exit code.

pub mod history;
mod job_queue;
mod outcome;
mod policy_files;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use jobs::assign::Work;
use jobs::episode::Episode;
use jobs::eval_args::EvalArgs;
use jobs::exit::FINAL;
use jobs::job::{JobIndex, Length};
use jobs::journal::{JobEnd, Journal, Line, RankEnd, RankStart};
use jobs::launch::LaunchLock;
use jobs::layout::RunFolder;
use jobs::plan::{RunPlan, WordsError};
use jobs::progress;
use jobs::rank_env::RankEnv;
use jobs::time::rfc3339;
use report::tables;

use crate::clock::now;
use crate::device::{Decision, gpu};
use crate::eval::lease::Leases;
use crate::eval::monitor::exporter::Exporter;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::peers::Peers;
use crate::eval::monitor::progress::Progress;
use crate::eval::monitor::stop::Stop;
use crate::eval::monitor::tally;
use crate::eval::rank::history::History;
use crate::eval::rank::job_queue::{Bystander, JobQueue};
use crate::eval::rank::policy_files::{Found, Reading};
use crate::eval::rollout::inference::PolicyThread;
use crate::eval::rollout::job::{
    Earlier, EpisodeSink, JobContext, JobError, JobObserver, run as run_job,
};
use crate::eval::setup::launch;
use crate::eval::setup::placement::RankPlacement;
use crate::eval::setup::rank_setup::RankSetup;
use crate::policy::PolicyError;
use crate::versions::versions;
use crate::{console, error_file};
use c10d::torch_error::is_hardware_failure;

/// The program `eval`: parses `words`, its arguments, and runs this rank's share.
pub fn main(words: &[OsString]) -> ExitCode {
    let args = match EvalArgs::read_words(words) {
        Err(WordsError::Usage(err)) => {
            // A closed stderr does not change the exit code.
            let _ = err.print();
            return ExitCode::from(u8::try_from(err.exit_code()).unwrap_or(2));
        }
        args => args.map_err(|err| Fault::Refused(err.to_string())),
    };
    let (reason, code) = match args.and_then(|args| run(&args)) {
        Ok(code) => return code,
        Err(Fault::Refused(reason)) => (reason, ExitCode::from(FINAL)),
        Err(Fault::Broken(reason)) => (reason, ExitCode::FAILURE),
    };
    console::error(&reason);
    error_file::write_error_file(&reason);
    code
}

/// The reason why a rank ended before its work was done.
pub(in crate::eval) enum Fault {
    /// A retry would fail in the same way.
    Refused(String),
    /// A restart may help, for example after the store is gone or the disk was full.
    Broken(String),
}

fn run(args: &EvalArgs) -> Result<ExitCode, Fault> {
    console::Style::of(args, |name| std::env::var(name).ok()).adopt();
    let stop = Stop::on_signals().map_err(|err| Fault::Broken(err.to_string()))?;
    let mut ready = RankSetup::new(args).map_err(Fault::Refused)?;
    let peers = Peers::meet(&ready.env).map_err(|err| Fault::Broken(err.to_string()))?;
    let lock = launch::join(&mut ready, peers.store())?;
    let journal = ready.open_journal().map_err(Fault::Refused)?;
    let RankSetup {
        env,
        folder,
        plan,
        device,
        placement,
        notes,
    } = &ready;
    let progress = Progress::new(env);
    if let Err(err) = console::log_into(&folder.log(env.rank)) {
        progress.say(&format!(
            "warning: no log in `{}`: {err}",
            folder.log(env.rank).display()
        ));
    }
    progress.say(&format!("device {}", device.reason));
    device
        .warnings
        .iter()
        .for_each(|warning| progress.say(&format!("warning: {warning}")));
    notes.iter().for_each(|note| progress.say(note));
    let policy = PolicyThread::start(device.device)
        .map_err(|err| Fault::Broken(format!("no thread for the policy: {err}")))?;
    let meter = Meter::start(device.device)
        .map_err(|err| Fault::Broken(format!("no thread for the meter: {err}")))?;
    let meter = Rc::new(meter);
    let mut rank = Rank {
        args,
        env,
        plan,
        folder,
        device,
        placement,
        policy,
        stop: &stop,
        journal,
        observers: Observers {
            peers,
            progress,
            said: BTreeSet::new(),
            stop: stop.clone(),
            device: device.device,
            meter: Rc::clone(&meter),
            lock,
        },
        meter,
        begun: now(),
        busy_s: 0.0,
        failed: None,
        policy_files: None,
        leases: None,
    };
    rank.run(&placement.work).map_err(Fault::Broken)
}

/// Returns the number of the episode that a line is about.
fn of_episode(line: &Line) -> Option<u64> {
    if let Line::Episode(episode) = line {
        Some(episode.episode)
    } else {
        None
    }
}

/// Returns the model name of the CPU from `/proc/cpuinfo`.
fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map(|(_, name)| name.trim().to_owned())
}

struct Rank<'a> {
    args: &'a EvalArgs,
    env: &'a RankEnv,
    plan: &'a RunPlan,
    folder: &'a RunFolder,
    device: &'a Decision,
    placement: &'a RankPlacement,
    policy: PolicyThread,
    stop: &'a Stop,
    meter: Rc<Meter>,
    journal: Journal,
    observers: Observers,
    begun: Instant,
    busy_s: f64,
    /// The reason why a job has failed for good.
    failed: Option<String>,
    /// The hashing of the policy files; only on rank 0.
    policy_files: Option<Reading>,
    /// Leases of the current job.
    leases: Option<Leases>,
}

/// The other ranks and the user: the observers of every step.
struct Observers {
    peers: Peers,
    progress: Progress,
    /// Topics that were already reported for all ranks.
    said: BTreeSet<&'static str>,
    stop: Stop,
    device: tch::Device,
    meter: Rc<Meter>,
    /// Lock on the run folder if the launcher is not `rrun` and does not hold it.
    lock: Option<LaunchLock>,
}

impl JobObserver for Observers {
    fn on(&mut self, beat: &Heartbeat, _: Option<&Episode>) {
        self.progress.moved(beat);
        if !self.peers.is_due() {
            return;
        }
        if self.lock.as_ref().is_some_and(LaunchLock::is_lost) && self.said.insert("launch lock") {
            let reason = "the lock of this launch is gone from `launch.lock` in its run folder";
            self.progress.say(&format!("error: {reason}"));
            self.stop.call_off(reason.to_owned());
        }
        let (gpu_used, gpu_total) = gpu::memory(self.device).unwrap_or_default();
        let gpu_busy = self.meter.busy();
        let beat = &Heartbeat {
            gpu_used,
            gpu_total,
            gpu_busy,
            ..beat.clone()
        };
        if let Some(reason) = self.peers.tell(beat) {
            self.stop.call_off(reason);
        }
        if self.progress.shows_all() {
            let beats: Vec<_> = self.peers.look().cloned().collect();
            self.progress.all(&beats);
        }
    }

    fn say(&mut self, text: &str) {
        self.progress.say(text);
    }

    fn say_for_all(&mut self, topic: &'static str, text: &str) {
        if self.said.insert(topic) && self.peers.is_first(topic) {
            self.progress.say(text);
        } else {
            console::log(console::Level::Info, text);
        }
    }
}

/// A rank that waits for leases.
struct Idle<'r, 'a> {
    rank: &'r mut Rank<'a>,
    last: &'r Heartbeat,
}

impl Bystander for Idle<'_, '_> {
    fn rest(&mut self) -> bool {
        let observers = &mut self.rank.observers;
        observers.on(
            &Heartbeat {
                arrived: true,
                ..self.last.clone()
            },
            None,
        );
        observers.peers.rest();
        !self.rank.stop.asked()
    }

    fn lost(&mut self, timeout: Duration) -> BTreeSet<usize> {
        self.rank
            .observers
            .peers
            .lost(timeout)
            .into_iter()
            .collect()
    }

    fn history(&mut self) -> Result<History, String> {
        self.rank.history()
    }

    fn finished(&mut self) {
        self.rank.observers.peers.leased();
    }

    fn say(&mut self, text: &str) {
        self.rank.observers.say(text);
    }
}

impl Rank<'_> {
    fn run(&mut self, own: &[Work]) -> Result<ExitCode, String> {
        let started = now();
        self.append(&Line::Rank(self.start_line()))?;
        let mut history = self.history()?;
        self.announce(&history.lines);
        if self.env.rank == 0 {
            self.policy_files = Some(Reading::start(
                &self.plan.jobs,
                &history.lines,
                self.folder.policy_files(),
            ));
        }
        let mut job_queue = JobQueue::new(own.to_vec(), self.args, self.env, &history.lines)
            .map_err(|err| err.to_string())?;
        let mut last = self.begin(job_queue.own(), &history);
        while let Some(work) = job_queue.next(
            &mut history,
            &mut Idle {
                rank: self,
                last: &last,
            },
        )? {
            self.leases = job_queue.leases(&work);
            last = self.job(&work, &mut history, last)?;
            self.note_policy_files(Reading::take)?;
            if !self.stop.asked() {
                job_queue.after(&work);
            }
            if self.stop.asked() || (self.failed.is_some() && !self.args.continue_on_error) {
                break;
            }
        }
        self.conclude(last, started)
    }

    /// Writes journal lines for the policy files that have been hashed.
    fn note_policy_files(&mut self, take: fn(&mut Reading) -> Vec<Found>) -> Result<(), String> {
        for Found { line, warning } in self.policy_files.as_mut().map(take).unwrap_or_default() {
            warning
                .iter()
                .for_each(|warning| self.observers.progress.say(warning));
            self.append(&line)?;
        }
        Ok(())
    }

    /// Writes the last journal line. The other ranks have been waited for, or will not be.
    fn end(&mut self, started: Instant) -> Result<(), String> {
        self.note_policy_files(if self.stop.asked() {
            Reading::take
        } else {
            Reading::finish
        })?;
        self.append(&Line::RankEnd(RankEnd {
            rank: self.env.rank,
            wall_s: started.elapsed().as_secs_f64(),
            busy_s: self.busy_s,
            stopped: self.stop.asked(),
            ended: rfc3339(SystemTime::now()),
            ..RankEnd::default()
        }))
    }

    /// Writes the last journal line of a rank that has lost its GPU; returns the message for the
    /// user.
    fn lose(&mut self, reason: String) -> Result<String, String> {
        let said = format!("rank {} ends: {reason}", self.env.rank);
        self.append(&Line::RankEnd(RankEnd {
            rank: self.env.rank,
            wall_s: self.begun.elapsed().as_secs_f64(),
            busy_s: self.busy_s,
            stopped: false,
            is_hardware: is_hardware_failure(&reason),
            failure: Some(reason),
            ended: rfc3339(SystemTime::now()),
        }))?;
        Ok(said)
    }

    fn history(&self) -> Result<History, String> {
        let history = History::read(self.folder, self.plan, self.env)?;
        if self.env.rank == 0 {
            history
                .notes
                .iter()
                .for_each(|note| self.observers.progress.say(&format!("warning: {note}")));
        }
        Ok(history)
    }

    /// Returns the first heartbeat of this rank, with its share of the work, and starts the
    /// progress display.
    fn begin(&mut self, own: Option<&[Work]>, history: &History) -> Heartbeat {
        let (jobs, lines) = (&self.plan.jobs, &history.lines);
        let exporter = self
            .args
            .metrics_port
            .filter(|_| self.env.rank == 0)
            .and_then(|port| {
                let host = self.args.metrics_host;
                let said = |err| {
                    self.observers.progress.say(&format!(
                        "warning: no metrics on {host}, port {port}: {err}"
                    ))
                };
                Exporter::listen(host, port).map_err(said).ok()
            });
        let before = || tally::before(jobs, lines, &history.launched);
        self.observers
            .progress
            .begin(before, self.env.world_size, exporter);
        let counted = tally::own(
            own.unwrap_or_default(),
            lines,
            &history.launched,
            self.env.rank,
        );
        // A rank that leases its work has no jobs of its own.
        let (jobs, own) = own.map_or((0, 0), |_| (counted.jobs, counted.own));
        Heartbeat {
            device: gpu::name(self.device.device),
            jobs,
            own,
            ..counted
        }
    }

    fn announce(&self, before: &[Line]) {
        if self.env.rank != 0 {
            return;
        }
        console::out(tables::jobs(
            self.plan.jobs.iter().map(|job| (job, job.status.as_str())),
        ));
        let done: usize = progress::done(before).values().map(Vec::len).sum();
        if done > 0 {
            self.observers.progress.say(&format!(
                "going on in `{}`: {done} episodes are done",
                self.folder.root().display()
            ));
        }
    }

    fn start_line(&self) -> RankStart {
        RankStart {
            rank: self.env.rank,
            world_size: self.env.world_size,
            restart: self.env.restart_count,
            round: self.env.round,
            node: self.env.group_rank,
            local_rank: self.env.local_rank,
            pid: std::process::id(),
            host: jobs::host::name(),
            cpu: cpu(),
            threads: usize::try_from(tch::get_num_threads()).ok(),
            device: gpu::name(self.device.device),
            device_reason: self.device.reason.clone(),
            gpu: gpu::described(self.device.device),
            versions: versions(),
            started: rfc3339(SystemTime::now()),
            launch: self.env.launch.clone(),
        }
    }

    /// Runs the rest of a job, and retries it if it fails. Returns an error if the journal cannot
    /// be written or the GPU is lost.
    fn job(
        &mut self,
        work: &Work,
        history: &mut History,
        last: Heartbeat,
    ) -> Result<Heartbeat, String> {
        let mut beat = last;
        if history.given_up.contains(&work.job.index) {
            self.failed.get_or_insert_with(|| {
                format!(
                    "{} has failed before this rank was restarted",
                    work.job.name
                )
            });
            return Ok(beat);
        }
        for attempt in 1..=self.args.job_attempts {
            let error;
            (beat, error) = self.attempt(work, history, &beat, attempt)?;
            let Some(error) = error else { break };
            if attempt == self.args.job_attempts {
                let reason = format!("{}: {error}", work.job.name);
                error_file::write_error_file(&reason);
                self.failed = Some(reason);
                break;
            }
            *history = self.history()?;
        }
        beat.jobs_done += u64::from(!self.stop.asked());
        Ok(beat)
    }

    /// Runs one attempt at a job; returns the reason if it failed.
    fn attempt(
        &mut self,
        work: &Work,
        history: &History,
        last: &Heartbeat,
        attempt: u32,
    ) -> Result<(Heartbeat, Option<String>), String> {
        let job = &work.job;
        // An interrupted job in steps starts from the beginning: its episodes are not those of an
        // earlier attempt.
        let before = history.about(job.index);
        let again = matches!(job.length, Length::Steps(_));
        let earlier = if again { Vec::new() } else { before.clone() };
        let mut done = progress::done(earlier.iter().copied())
            .remove(&job.index)
            .unwrap_or_default();
        done.retain(|episode| work.runs(*episode));
        let solved = progress::solved(
            earlier
                .into_iter()
                .filter(|line| of_episode(line).is_none_or(|e| work.runs(e))),
            job.index,
        );
        let mut beat = Heartbeat {
            done: done.len() as u64,
            solved,
            ..last.of_job(&job.name)
        };
        if let Some(leases) = &self.leases {
            // With leases, finished episodes of other ranks do not count for this one.
            (beat.done, beat.solved) = (0, 0);
            leases.visit(work, done.clone(), history.suspects.of(job.index));
        }
        let is_finished = match job.length {
            Length::Episodes(_) => work.is_done(&done),
            Length::Steps(_) | Length::Policy => {
                progress::finished(before.iter().copied(), job, work.share)
            }
        };
        if is_finished {
            self.leave(job.index, true);
            return Ok((beat, None));
        }
        let earlier = Earlier {
            done,
            lines: before,
            suspects: &history.suspects,
            attempt: attempt - 1,
        };
        let started = now();
        let _span =
            tracing::info_span!("job", name = %job.name, rank = self.env.rank, attempt).entered();
        let context = JobContext {
            args: self.args,
            env: self.env,
            device: self.device.device,
            work,
            place: self
                .placement
                .place(self.args, self.env, work, self.device.device),
            policy: &self.policy,
            seed: self.plan.seed,
            folder: self.folder,
            stop: self.stop,
            meter: &self.meter,
        };
        self.meter.begin();
        let leases = self.leases.clone();
        let mut sink = EpisodeSink {
            journal: &mut self.journal,
            observer: &mut self.observers,
            leases,
        };
        let (totals, result) = run_job(&context, job, &earlier, &mut sink, &mut beat);
        self.leave(job.index, result.is_ok());
        self.busy_s += started.elapsed().as_secs_f64();
        let error = match result {
            Err(JobError::Stopped | JobError::TakenOver) => return Ok((beat, None)),
            Err(JobError::Leases(err)) => return Err(err.to_string()),
            Err(JobError::Policy(PolicyError::DeviceLost(reason))) => {
                return Err(self.lose(reason)?);
            }
            Err(JobError::Journal { path, err }) => {
                return Err(format!("cannot write `{}`: {err}", path.display()));
            }
            Err(err) => Some(err.to_string()),
            Ok(()) => None,
        };
        self.observers.progress.job_ended(&beat, started.elapsed());
        let retried = error.is_some() && attempt < self.args.job_attempts;
        if let Some(error) = &error {
            let left = if retried { ", and is tried again" } else { "" };
            self.observers
                .progress
                .say(&format!("{} failed{left}: {error}", job.name));
        }
        let (policy, job_use) = (gpu::take_peak(self.device.device), self.meter.job());
        self.append(&Line::JobEnd(JobEnd {
            job_index: job.index,
            rank: self.env.rank,
            share: work.share,
            error: error.clone(),
            attempt: attempt - 1,
            retried,
            log: error
                .as_ref()
                .map(|_| self.folder.relative(&self.folder.log(self.env.rank))),
            wall_s: started.elapsed().as_secs_f64(),
            env_steps: totals.env_steps,
            frames: totals.frames,
            policy_calls: totals.infer.count(),
            infer_busy_s: totals.infer_busy().as_secs_f64(),
            sim_busy_s: totals.sim_busy.total().as_secs_f64(),
            env_restarts: totals.env_restarts,
            record_waits: totals.record_waits,
            record_wait_s: totals.record_wait.as_secs_f64(),
            infer_ms: totals.infer.quantiles(),
            sim_ms: totals.sim.quantiles(),
            peak_rss_bytes: error_file::peak_rss_bytes(),
            peak_vram_bytes: policy.map(|peak| peak.reserved_bytes),
            peak_vram_allocated_bytes: policy.map(|peak| peak.allocated_bytes),
            peak_env_bytes: job_use.host_bytes,
            peak_env_vram_bytes: job_use.gpu.map(|gpu| gpu.bytes),
            env_vram_is_estimate: job_use.gpu.is_some_and(|gpu| gpu.is_estimate),
            out_of_memory: totals.shortage.count,
            out_of_memory_batch: totals.shortage.batch.map(|rows| rows as u64),
            gpu_busy: job_use.gpu_busy,
            ended: rfc3339(SystemTime::now()),
        }))?;
        Ok((beat, error))
    }

    /// Releases the leases of a job whose environments are closed.
    fn leave(&self, job: JobIndex, is_done: bool) {
        if let Some(leases) = &self.leases {
            leases.leave(job, is_done);
        }
    }

    fn append(&mut self, line: &Line) -> Result<(), String> {
        self.journal
            .append(line)
            .map_err(|err| format!("cannot write `{}`: {err}", self.journal.path().display()))
    }

    /// Waits for the other ranks and writes the report. A rank that was stopped, or whose job
    /// failed without `--continue-on-error`, does not wait; in the second case it also calls off
    /// the other ranks.
    fn conclude(&mut self, last: Heartbeat, started: Instant) -> Result<ExitCode, String> {
        let failed = self.failed.clone().filter(|_| !self.args.continue_on_error);
        let early = self.stop.reason().or_else(|| {
            let reason = format!(
                "a job failed, and --continue-on-error is not given: {}",
                failed?
            );
            self.observers.peers.call_off(&reason);
            Some(reason)
        });
        if let Some(reason) = early {
            self.end(started)?;
            return self.conclude_early(reason);
        }
        let Observers {
            peers, progress, ..
        } = &mut self.observers;
        let lost = peers.wait_for_all(last, self.args.gather_timeout(), self.stop, |beats| {
            progress.all(beats)
        });
        self.end(started)?;
        if let Some(reason) = self.stop.reason() {
            return self.conclude_early(reason);
        }
        let together = outcome::bring_together(
            self.env,
            self.folder,
            &self.observers.peers,
            self.device.device,
            &lost,
        );
        self.observers.progress.finish();
        if let Some(note) = &together.note {
            self.observers.progress.say(&format!("warning: {note}"));
        }
        if self.env.rank != 0 {
            if self.failed.is_some() {
                self.observers
                    .peers
                    .wait_for_report(self.args.gather_timeout());
            }
            return Ok(if self.failed.is_some() {
                ExitCode::from(FINAL)
            } else {
                ExitCode::SUCCESS
            });
        }
        let report = outcome::report(self.folder, self.plan, together)?;
        self.observers.peers.report_is_written();
        if report.complete() {
            return Ok(ExitCode::SUCCESS);
        }
        error_file::write_error_file(&tables::conclusion(&report));
        Ok(ExitCode::from(FINAL))
    }

    fn conclude_early(&self, reason: String) -> Result<ExitCode, String> {
        self.observers.progress.finish();
        if self.env.rank == 0 {
            outcome::report(self.folder, self.plan, outcome::from_disk(self.env, reason))?;
        }
        Ok(ExitCode::from(FINAL))
    }
}
