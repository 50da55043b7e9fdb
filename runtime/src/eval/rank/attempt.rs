//! The attempts of a rank at one job, and the journal line with which each of them ends.

use std::time::{Duration, SystemTime};

use jobs::assign::Work;
use jobs::costs::Costs;
use jobs::job::Length;
use jobs::journal::{JobEnd, Line};
use jobs::time::rfc3339;

use crate::clock::now;
use crate::device::gpu;
use crate::eval::lease::Leases;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::rank::history::JournalHistory;
use crate::eval::rank::{Evaluation, datasets};
use crate::eval::rollout::job::context::JobContext;
use crate::eval::rollout::job::earlier::Earlier;
use crate::eval::rollout::job::run as run_job;
use crate::eval::rollout::recording::episode_log::EpisodeLog;
use crate::eval::rollout::totals::Totals;
use crate::eval::stop::Stop;
use crate::{error_file, host};

/// One attempt at a job.
struct JobAttempt<'t> {
    /// The part of the job that this rank runs.
    work: &'t Work,
    /// The leases under which it runs; `None` if it is not leased.
    leases: Option<&'t Leases>,
    /// 1 for the first attempt.
    number: u32,
}

/// How an attempt ended.
struct AttemptEnd {
    beat: Heartbeat,
    /// The reason why it failed.
    error: Option<String>,
    /// True if it goes on: the rank has recorded an episode that another one has taken over, and has
    /// to open its dataset again.
    is_overtaken: bool,
}

impl AttemptEnd {
    fn without_error(beat: Heartbeat) -> Self {
        Self {
            beat,
            error: None,
            is_overtaken: false,
        }
    }

    fn overtaken(beat: Heartbeat) -> Self {
        Self {
            is_overtaken: true,
            ..Self::without_error(beat)
        }
    }
}

impl Evaluation<'_> {
    /// Runs the rest of a job, and retries it if it fails.
    ///
    /// # Errors
    /// Returns a [`Stop`] if the journal cannot be written, the store of the leases fails, or
    /// the GPU is lost.
    pub(super) fn job(
        &mut self,
        work: &Work,
        leases: Option<&Leases>,
        history: &mut JournalHistory,
        last: Heartbeat,
    ) -> Result<Heartbeat, Stop> {
        let (job, mut beat) = (&work.job, last);
        if history.given_up.contains(&job.index) {
            self.failed.get_or_insert_with(|| {
                format!("{} has failed before this rank was restarted", job.name)
            });
            return Ok(beat);
        }
        let mut number = 1;
        loop {
            let attempt = JobAttempt {
                work,
                leases,
                number,
            };
            let ended = self.attempt(&attempt, history, &beat)?;
            beat = ended.beat;
            if ended.is_overtaken {
                history.refresh_own(self.setup)?;
                continue;
            }
            let Some(error) = ended.error else { break };
            history.refresh_own(self.setup)?;
            if number == self.args.job_attempts {
                datasets::clean_job(self.setup, history, &self.observers.progress, job);
                let reason = format!("{}: {error}", job.name);
                error_file::write_error_file(&reason);
                self.failed = Some(reason);
                break;
            }
            number += 1;
        }
        beat.jobs_done += u64::from(!self.stop.asked());
        Ok(beat)
    }

    fn attempt(
        &mut self,
        attempt: &JobAttempt,
        history: &JournalHistory,
        last: &Heartbeat,
    ) -> Result<AttemptEnd, Stop> {
        let JobAttempt { work, leases, .. } = *attempt;
        let (index, suspects) = (work.job.index, &history.suspects);
        let earlier = Earlier::of(work, history.about(index), suspects, attempt.number - 1);
        let mut beat = last.of_job(&work.job.name);
        match leases {
            None => (beat.done, beat.solved) = (earlier.done.len() as u64, earlier.solved),
            // With leases, finished episodes of other ranks do not count for this one.
            Some(leases) => leases.visit(work, earlier.done.clone(), suspects.of(index)),
        }
        let leave = |is_done| {
            leases
                .iter()
                .for_each(|leases| leases.leave(index, is_done))
        };
        if earlier.is_finished(work) {
            leave(true);
            return Ok(AttemptEnd::without_error(beat));
        }
        let started = now();
        let mut totals = Totals::default();
        let result = self.run_job(attempt, &earlier, &mut totals, &mut beat);
        leave(result.is_ok());
        self.busy_s += started.elapsed().as_secs_f64();
        let error = match result {
            Err(Stop::Asked) => return Ok(AttemptEnd::without_error(beat)),
            Err(Stop::TakenOver) => {
                // This rank does not open the dataset of the job again.
                datasets::clean_job(self.setup, history, &self.observers.progress, &work.job);
                return Ok(AttemptEnd::without_error(beat));
            }
            Err(Stop::Overtaken) => return Ok(AttemptEnd::overtaken(beat)),
            Err(Stop::GpuLost(reason)) => return Err(self.lose(reason)?),
            Err(err @ (Stop::Rank(_) | Stop::Refused(_))) => return Err(err),
            Err(Stop::Job(reason)) => Some(reason),
            // A job in steps is over when it says so, so one that was cut short must not.
            Ok(()) if self.is_cut_short(work) => {
                return Ok(AttemptEnd::without_error(beat));
            }
            Ok(()) => None,
        };
        let took = started.elapsed();
        self.observers.progress.job_ended(&beat, took);
        self.note_end(attempt, &totals, error.as_deref(), took)?;
        Ok(AttemptEnd {
            error,
            ..AttemptEnd::without_error(beat)
        })
    }

    /// Returns whether a user has left out the rest of a job in steps.
    fn is_cut_short(&self, work: &Work) -> bool {
        matches!(work.job.length, Length::Steps(_)) && self.orders.forbid(work.job.index, now())
    }

    /// Runs the job with what this rank provides, and counts its episodes in `beat`.
    fn run_job(
        &mut self,
        attempt: &JobAttempt,
        earlier: &Earlier,
        totals: &mut Totals,
        beat: &mut Heartbeat,
    ) -> Result<(), Stop> {
        let (setup, work) = (self.setup, attempt.work);
        let (name, rank) = (&work.job.name, setup.env.rank);
        let _span = tracing::info_span!("job", %name, rank, attempt = attempt.number).entered();
        let device = setup.device.device;
        let meter = self.observers.meter;
        let context = JobContext {
            args: self.args,
            env: &setup.env,
            device,
            work,
            place: setup.placement.place(self.args, &setup.env, work, device),
            inference: &self.inference,
            seed: setup.plan.seed,
            inputs: &setup.plan.inputs,
            folder: &setup.folder,
            stop: self.stop,
            meter,
            orders: &self.orders,
        };
        meter.begin();
        let last = std::mem::take(beat);
        let (journal, observers) = (&mut self.journal, &mut self.observers);
        let mut log = EpisodeLog::new(journal, observers, attempt.leases, last);
        let result = run_job(&context, earlier, &mut log, totals);
        // However the job ended, its finished episodes are reported before anything else happens.
        let synced = log.sync();
        *beat = log.beat;
        result.and(synced)
    }

    /// Tells the user how an attempt failed, and writes its last journal line.
    fn note_end(
        &mut self,
        attempt: &JobAttempt,
        totals: &Totals,
        error: Option<&str>,
        took: Duration,
    ) -> Result<(), Stop> {
        let is_retried = error.is_some() && attempt.number < self.args.job_attempts;
        if let Some(error) = error {
            let name = &attempt.work.job.name;
            let text = match is_retried {
                // If it fails again, it says the rest then.
                true => {
                    let reason = error.lines().next().unwrap_or_default();
                    format!("{name} failed, and is tried again: {reason}")
                }
                false => format!("{name} failed: {error}"),
            };
            self.observers.progress.say(&text);
        }
        let (folder, rank) = (&self.setup.folder, self.setup.env.rank);
        let line = JobEnd {
            error: error.map(str::to_owned),
            retried: is_retried,
            log: error.map(|_| folder.relative(&folder.log(rank))),
            ..self.job_end_line(attempt, totals, took)
        };
        self.append(&Line::JobEnd(Box::new(line)))
    }

    /// Returns the line of an attempt without an error.
    fn job_end_line(&self, attempt: &JobAttempt, totals: &Totals, took: Duration) -> JobEnd {
        let JobAttempt { work, number, .. } = attempt;
        let libtorch = gpu::take_peak(self.setup.device.device);
        let envs = self.observers.meter.job();
        JobEnd {
            job: work.job.name.clone(),
            job_index: work.job.index,
            rank: self.setup.env.rank,
            share: work.share,
            attempt: number - 1,
            wall_s: took.as_secs_f64(),
            costs: Costs {
                env_steps: totals.env_steps,
                frames: totals.frames,
                policy_calls: totals.infer.count(),
                env_restarts: totals.env_restarts,
                record_waits: totals.record_waits,
                record_wait_s: totals.record_wait.as_secs_f64(),
                peak_rss_bytes: host::peak_rss_bytes(),
                peak_vram_bytes: libtorch.map(|peak| peak.reserved_bytes),
                peak_vram_allocated_bytes: libtorch.map(|peak| peak.allocated_bytes),
                peak_env_bytes: envs.host_bytes,
                peak_env_vram_bytes: envs.gpu.map(|gpu| gpu.bytes),
                env_vram_is_estimate: envs.gpu.is_some_and(|gpu| gpu.is_estimate),
                out_of_memory: totals.shortage.count,
                out_of_memory_batch: totals.shortage.batch.map(|rows| rows as u64),
            },
            infer_busy_s: totals.infer_busy().as_secs_f64(),
            sim_busy_s: totals.sim_busy.total().as_secs_f64(),
            infer_ms: totals.infer.quantiles(),
            sim_ms: totals.sim.quantiles(),
            gpu_busy: envs.gpu_busy,
            ended: rfc3339(SystemTime::now()),
            ..JobEnd::default()
        }
    }
}
