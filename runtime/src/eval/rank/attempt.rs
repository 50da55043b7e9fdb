//! The attempts of a rank at one job, and the journal line with which each of them ends.

use std::time::{Duration, SystemTime};

use jobs::assign::Work;
use jobs::costs::Costs;
use jobs::job::Length;
use jobs::journal::{JobEnd, Line};
use jobs::time::rfc3339;

use crate::clock::now;
use crate::device::gpu;
use crate::eval::monitor::Event;
use crate::eval::rank::{Evaluation, datasets};
use crate::eval::rollout::job;
use crate::eval::rollout::job::task::Task;
use crate::eval::stop::Stop;
use crate::{error_file, host};

impl Evaluation {
    /// Runs the rest of a job, and retries it if it fails.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be written, the store of the leases fails, or the GPU
    /// is lost.
    pub(super) fn job(&mut self, work: &Work, is_leased: bool) -> Result<(), Stop> {
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
                error_file::write_error_file(&reason);
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
        let line = JobEnd {
            error: error.map(str::to_owned),
            retried: is_retried,
            log: error.map(|_| folder.relative(&folder.log(rank))),
            ..self.job_end_line(task, took)
        };
        self.out.write(&Line::JobEnd(Box::new(line)))
    }

    /// Returns the line of an attempt without an error.
    fn job_end_line(&self, task: &Task, took: Duration) -> JobEnd {
        let totals = &self.out.totals;
        let libtorch = gpu::take_peak(self.run.device.device);
        let envs = self.out.monitor.meter.job();
        JobEnd {
            job: task.job().name.clone(),
            job_index: task.index(),
            rank: self.run.env.rank,
            share: task.work.share,
            attempt: task.attempt,
            wall_s: took.as_secs_f64(),
            costs: Costs {
                policy_calls: totals.infer.count(),
                peak_rss_bytes: host::peak_rss_bytes(),
                peak_vram_bytes: libtorch.map(|peak| peak.reserved_peak_bytes),
                peak_vram_allocated_bytes: libtorch.map(|peak| peak.allocated_peak_bytes),
                peak_env_bytes: envs.host_bytes,
                peak_env_vram_bytes: envs.gpu.map(|gpu| gpu.bytes),
                env_vram_is_estimate: envs.gpu.is_some_and(|gpu| gpu.is_estimate),
                out_of_memory: totals.shortage.count,
                out_of_memory_batch: totals.shortage.batch.map(|rows| rows as u64),
                ..totals.costs.clone()
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
