//! The way of an episode to disk: dataset and video first, then its journal line.

pub mod plans;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use jobs::episode::Episode;

use crate::env::{EnvIndex, EnvSpec};
use crate::eval::Stop;
use crate::eval::ledger::Ledger;
use crate::eval::rank_setup::RankSetup;
use crate::eval::rollout::job::task::Task;
use crate::record::{Amount, EpisodeEnd, Estimate, Finished, RecordPlan, Recorder};

/// Time between two looks at what the recorder has finished.
const PATIENCE: Duration = Duration::from_millis(100);

/// The recorder of a job.
pub struct Recording {
    /// `None` if nothing is recorded.
    pub recorder: Option<Recorder>,
    /// True if every step has to be rendered.
    pub every_frame: bool,
    /// True if a demonstration has got no line. Then no later one gets one, so that what has no
    /// line is the end of the dataset, which the next attempt drops.
    is_torn: bool,
}

impl Recording {
    /// Opens the files for the rest of a job, of which at most `amount` will be recorded.
    ///
    /// # Errors
    /// Returns an error if the plan does not fit the environment, a file cannot be written, or the
    /// file system is full.
    pub fn start(
        run: &RankSetup,
        task: &Task,
        spec: &EnvSpec,
        amount: Amount,
        out: &Ledger,
    ) -> Result<Self, Stop> {
        let (folder, job) = (&run.folder, task.job());
        let plan = RecordPlan {
            folder: folder.clone(),
            dataset: plans::dataset(run, task, spec, out)?,
            video: plans::videos(&run.args, job, &task.work.seats, folder, spec),
            num_envs: job.num_envs,
            env: spec.clone(),
        };
        let has_cameras = plan.dataset.as_ref().is_some_and(|dataset| dataset.cameras);
        let every_frame = plan.video.is_some() || has_cameras;
        let recorder = match plan.dataset.is_some() || plan.video.is_some() {
            true => Some(open(&folder.job(&job.name), plan, amount, out)?),
            false => None,
        };
        Ok(Self {
            recorder,
            every_frame,
            is_torn: false,
        })
    }

    /// Drops what was recorded of an environment's running episode.
    ///
    /// # Errors
    /// Returns an error if the recorder has failed.
    pub fn forget(&mut self, env: EnvIndex) -> Result<(), Stop> {
        if let Some(recorder) = &mut self.recorder {
            recorder.forget(env)?;
        }
        Ok(())
    }

    /// Ends an episode: its journal line is written after dataset and video have it. Nothing is
    /// written if another rank has taken it over.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written or the store of the leases fails.
    pub fn end(
        &mut self,
        env: EnvIndex,
        episode: Episode,
        end: EpisodeEnd,
        out: &mut Ledger,
    ) -> Result<(), Stop> {
        let Some(recorder) = &mut self.recorder else {
            return out.episode(episode);
        };
        if !out.may_write(&episode)? {
            return Ok(recorder.forget(env)?);
        }
        Ok(recorder.end(env, episode, end)?)
    }

    /// Writes the journal lines of the episodes that the recorder has finished, and syncs them if
    /// it is time.
    ///
    /// # Errors
    /// Returns an error if the recorder lost an episode or the journal cannot be written.
    pub fn settle(&mut self, out: &mut Ledger) -> Result<(), Stop> {
        let finished = self.recorder.as_mut().map(Recorder::poll);
        self.write_all(finished.unwrap_or_default(), out)?;
        out.settle()
    }

    /// Waits until the journal lines of all finished episodes are on the disk.
    ///
    /// # Errors
    /// Returns the errors of [`Recording::settle`].
    pub fn catch_up(&mut self, out: &mut Ledger) -> Result<(), Stop> {
        // If the threads of the recorder have ended, its next use returns the reason.
        let next = |recorder: &mut Recorder| recorder.poll_within(PATIENCE);
        while let Some(finished) = self.recorder.as_mut().and_then(next) {
            self.write_all(finished, out)?;
        }
        out.sync()
    }

    /// Waits for the files, writes the last journal lines, and counts how long the loop has waited
    /// for the disk.
    ///
    /// # Errors
    /// Returns the errors of [`Recording::settle`], or the reason why a file is not complete.
    pub fn finish(mut self, out: &mut Ledger) -> Result<(), Stop> {
        let Some(recorder) = self.recorder.take() else {
            return out.sync();
        };
        let waits = recorder.waits();
        out.totals.costs.record_waits = waits.count;
        out.totals.costs.record_wait_s = waits.time.as_secs_f64();
        // Report first what was written before something failed.
        let (finished, closed) = recorder.finish();
        let written = self.write_all(finished, out);
        let written = written.and(out.sync());
        for note in &closed.notes {
            out.monitor.say(note);
        }
        closed.result?;
        written
    }

    /// Writes the lines of all that can have one; returns the first error.
    fn write_all(&mut self, all: Vec<Finished>, out: &mut Ledger) -> Result<(), Stop> {
        let mut result = Ok(());
        for finished in all {
            let is_demo = finished.episode.dataset.is_some();
            if is_demo && self.is_torn {
                continue;
            }
            let written = write(finished, out);
            self.is_torn |= is_demo && written.is_err();
            result = result.and(written);
        }
        result
    }
}

fn write(finished: Finished, out: &mut Ledger) -> Result<(), Stop> {
    let Finished {
        episode,
        warning,
        errors,
    } = finished;
    if !errors.is_empty() {
        let (episode, reasons) = (episode.episode, errors.join("; "));
        return Err(Stop::job(format_args!(
            "episode {episode} is not recorded: {reasons}"
        )));
    }
    if let Some(warning) = warning {
        out.monitor.say(&format!("warning: {warning}"));
    }
    match out.may_write(&episode)? {
        true => out.write_episode(episode),
        false if episode.dataset.is_some() => Err(Stop::Overtaken),
        false => Ok(()),
    }
}

/// Creates the folders of `plan`, `folder` among them, checks that the disk has room for it, and
/// starts its recorder.
fn open(folder: &Path, plan: RecordPlan, amount: Amount, out: &Ledger) -> Result<Recorder, Stop> {
    let videos = plan.video.as_ref().map(|video| video.dir.as_path());
    for dir in std::iter::once(folder).chain(videos) {
        std::fs::create_dir_all(dir).map_err(|err| Stop::not_written(dir, err))?;
    }
    if let Some(warning) = Estimate::of(&plan, amount).check(folder)? {
        out.monitor.say(&format!("warning: {warning}"));
    }
    let (recorder, notes) = Recorder::start(plan)?;
    for note in notes {
        out.monitor.say(&note);
    }
    Ok(recorder)
}
