//! The way of an episode to disk: dataset and video first, then its journal line.

pub mod leftovers;
mod plans;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jobs::episode::{DemoRef, Episode, VideoRef};
use jobs::layout::RunFolder;

use crate::env::{EnvIndex, EnvSpec};
use crate::eval::ledger::Ledger;
use crate::eval::rollout::job::task::Task;
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;
use crate::record::{Amount, EpisodeEnd, Estimate, RecordPlan, Recorded, Recorder};

/// Time between two looks at what the recorder has finished.
const PATIENCE: Duration = Duration::from_millis(100);

/// The recorder of a job, and the finished episodes that wait for it.
pub struct Recording {
    /// `None` if nothing is recorded.
    pub recorder: Option<Recorder>,
    waiting: BTreeMap<(EnvIndex, u64), Episode>,
    folder: RunFolder,
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
            waiting: BTreeMap::new(),
            folder: folder.clone(),
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
        recorder.end(env, end)?;
        self.waiting.insert((env, episode.episode), episode);
        Ok(())
    }

    /// Writes the journal lines of the episodes that the recorder has finished, and syncs them if
    /// it is time.
    ///
    /// # Errors
    /// Returns an error if the recorder lost an episode or the journal cannot be written.
    pub fn settle(&mut self, out: &mut Ledger) -> Result<(), Stop> {
        if let Some(recorder) = &mut self.recorder {
            let recorded = recorder.poll();
            self.on_all_recorded(recorded, out)?;
        }
        out.settle()
    }

    /// Waits until the journal lines of all finished episodes are on the disk.
    ///
    /// # Errors
    /// Returns the errors of [`Recording::settle`].
    pub fn catch_up(&mut self, out: &mut Ledger) -> Result<(), Stop> {
        while let Some(recorder) = &mut self.recorder
            && !self.waiting.is_empty()
        {
            // If the threads of the recorder have ended, its next use returns the reason.
            let Some(recorded) = recorder.poll_within(PATIENCE) else {
                break;
            };
            self.on_all_recorded(recorded, out)?;
        }
        out.sync()
    }

    /// Waits for the files, writes the last journal lines, and counts how long the loop has waited
    /// for the disk.
    ///
    /// # Errors
    /// Returns the errors of [`Recording::settle`], or the reason why a file is not complete.
    pub fn finish(mut self, out: &mut Ledger) -> Result<(), Stop> {
        let Some(mut recorder) = self.recorder.take() else {
            return out.sync();
        };
        // Report first what was written before something failed.
        let said = recorder.warnings().len();
        let recorded = recorder.drain();
        let written = self.on_all_recorded(recorded, out);
        let written = written.and(out.sync());
        for warning in recorder.warnings().iter().skip(said) {
            out.monitor.say(warning);
        }
        let pressure = recorder.pressure();
        let waited = pressure.video.time + pressure.dataset.time;
        out.totals.costs.record_waits = pressure.video.count + pressure.dataset.count;
        out.totals.costs.record_wait_s = waited.as_secs_f64();
        recorder.finish()?;
        written
    }

    /// Writes the lines of all that can have one; returns the first error.
    fn on_all_recorded(
        &mut self,
        recorded: impl IntoIterator<Item = Recorded>,
        out: &mut Ledger,
    ) -> Result<(), Stop> {
        let mut result = Ok(());
        for recorded in recorded {
            let is_demo = recorded.demo.is_some();
            if let Some(episode) = self.waiting.remove(&(recorded.env, recorded.episode))
                && !(is_demo && self.is_torn)
            {
                let written = self.write(episode, recorded, out);
                self.is_torn |= is_demo && written.is_err();
                result = result.and(written);
            }
        }
        result
    }

    fn write(
        &self,
        mut episode: Episode,
        recorded: Recorded,
        out: &mut Ledger,
    ) -> Result<(), Stop> {
        if let Some(reason) = recorded.error {
            let episode = recorded.episode;
            return Err(Stop::job(format_args!(
                "episode {episode} is not recorded: {reason}"
            )));
        }
        if let Some(warning) = recorded.warning {
            out.monitor.say(&format!("warning: {warning}"));
        }
        if !out.may_write(&episode)? {
            return match recorded.demo {
                None => Ok(()),
                Some(_) => Err(Stop::Overtaken),
            };
        }
        let file = recorded.dataset.map(|path| self.folder.relative(&path));
        let demo = file.zip(recorded.demo);
        episode.dataset = demo.map(|(file, demo)| DemoRef { file, demo });
        episode.video = recorded.video.map(|span| VideoRef {
            file: self.folder.relative(&span.path),
            first_frame: span.first_frame,
            frames: span.frames,
            fps: Some(span.fps),
        });
        episode.episode_video = recorded
            .episode_video
            .map(|path| self.folder.relative(&path));
        out.write_episode(episode)
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
    let recorder = Recorder::start(plan)?;
    for warning in recorder.warnings() {
        out.monitor.say(warning);
    }
    Ok(recorder)
}
