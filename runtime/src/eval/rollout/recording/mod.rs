//! The recorder of a job, and the finished episodes that wait for it.

mod video_plan;

use std::collections::BTreeMap;
use std::time::Duration;

use jobs::episode::{DemoRef, Episode, VideoRef};
use jobs::eval_args::{ExportMode, RecordFormat};
use jobs::job::Job;
use jobs::journal::Line;
use jobs::layout::RunFolder;

use crate::env::{EnvIndex, EnvSpec};
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::rollout::job::{Counts, Earlier, EpisodeSink, JobContext, JobError};
use crate::record::{
    Amount, DatasetPlan, Estimate, Export, Format, RecordPlan, Recorded, Recorder,
};

/// Time between two looks at what the recorder has finished.
const PATIENCE: Duration = Duration::from_millis(100);

/// The recorder of a job, and the finished episodes that wait for it.
pub struct Recording<'a> {
    recorder: Option<Recorder>,
    waiting: BTreeMap<(EnvIndex, u64), Episode>,
    folder: &'a RunFolder,
    /// True if every step has to be rendered.
    pub every_frame: bool,
}

impl<'a> Recording<'a> {
    /// Opens the files for the rest of a job.
    ///
    /// # Errors
    /// Returns an error if the plan does not fit the environment, a file cannot be written, or the
    /// file system is full.
    pub fn start(
        context: &'a JobContext<'a>,
        job: &Job,
        spec: &EnvSpec,
        (earlier, amount): (&Earlier, Amount),
        sink: &mut EpisodeSink,
    ) -> Result<Self, JobError> {
        let (folder, args) = (context.folder, context.args);
        let dataset = dataset(context, job, spec, earlier);
        let pictures = dataset.as_ref().is_some_and(|dataset| dataset.cameras);
        let video = video_plan::plan(args, job, &context.work.seats, folder, spec);
        let every_frame = video.is_some() || pictures;
        let mut recorder = None;
        if dataset.is_some() || video.is_some() {
            let dirs = [
                Some(folder.job(&job.name)),
                video.as_ref().map(|video| video.dir.clone()),
            ];
            for dir in dirs.into_iter().flatten() {
                std::fs::create_dir_all(&dir).map_err(|err| JobError::Journal {
                    path: dir.clone(),
                    err,
                })?;
            }
            let plan = RecordPlan {
                dataset,
                video,
                num_envs: job.num_envs,
                env: spec.clone(),
            };
            if let Some(warning) = Estimate::of(&plan, amount).check(&folder.job(&job.name))? {
                sink.observer.say(&format!("warning: {warning}"));
            }
            let started = Recorder::start(plan)?;
            started
                .warnings()
                .iter()
                .for_each(|warning| sink.observer.say(warning));
            recorder = Some(started);
        }
        Ok(Self {
            recorder,
            waiting: BTreeMap::new(),
            folder,
            every_frame,
        })
    }

    /// Returns the recorder; `None` if nothing is recorded.
    pub fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_mut()
    }

    /// Ends an episode: its journal line is written after dataset and video have it.
    pub fn ended(
        &mut self,
        env: EnvIndex,
        episode: Episode,
        sink: &mut EpisodeSink,
        beat: &mut Heartbeat,
    ) -> Result<(), JobError> {
        if self.recorder.is_some() {
            self.waiting.insert((env, episode.episode), episode);
            return Ok(());
        }
        journal(episode, sink, beat)
    }

    /// Writes the journal lines of the episodes that the recorder has finished.
    pub fn settle(&mut self, sink: &mut EpisodeSink, beat: &mut Heartbeat) -> Result<(), JobError> {
        let recorded = self
            .recorder
            .as_mut()
            .map(Recorder::poll)
            .unwrap_or_default();
        recorded
            .into_iter()
            .try_for_each(|recorded| self.on_recorded(recorded, sink, beat))
    }

    /// Waits until the journal lines of all finished episodes are written.
    pub fn catch_up(
        &mut self,
        sink: &mut EpisodeSink,
        beat: &mut Heartbeat,
    ) -> Result<(), JobError> {
        while !self.waiting.is_empty() {
            // If the threads of the recorder have ended, its next use returns the reason.
            let Some(recorded) = self
                .recorder
                .as_mut()
                .and_then(|recorder| recorder.poll_within(PATIENCE))
            else {
                return Ok(());
            };
            recorded
                .into_iter()
                .try_for_each(|recorded| self.on_recorded(recorded, sink, beat))?;
        }
        Ok(())
    }

    /// Waits for the files, and writes the last journal lines.
    pub fn finish(mut self, sink: &mut EpisodeSink, counts: &mut Counts) -> Result<(), JobError> {
        let Some(mut recorder) = self.recorder.take() else {
            return Ok(());
        };
        // Report first what was written before something failed.
        let said = recorder.warnings().len();
        let recorded = recorder.drain();
        let told = recorded
            .into_iter()
            .try_for_each(|recorded| self.on_recorded(recorded, sink, counts.beat));
        recorder
            .warnings()
            .iter()
            .skip(said)
            .for_each(|warning| sink.observer.say(warning));
        let pressure = recorder.pressure();
        counts.totals.record_waits = pressure.video.count + pressure.dataset.count;
        counts.totals.record_wait = pressure.video.time + pressure.dataset.time;
        recorder.finish()?;
        told
    }

    fn on_recorded(
        &mut self,
        recorded: Recorded,
        sink: &mut EpisodeSink,
        beat: &mut Heartbeat,
    ) -> Result<(), JobError> {
        let Some(mut episode) = self.waiting.remove(&(recorded.env, recorded.episode)) else {
            return Ok(());
        };
        if let Some(reason) = recorded.error {
            return Err(JobError::Unrecorded {
                episode: recorded.episode,
                reason,
            });
        }
        if let Some(warning) = recorded.warning {
            sink.observer.say(&format!("warning: {warning}"));
        }
        let file = recorded.dataset.map(|path| self.folder.relative(&path));
        episode.dataset = file
            .zip(recorded.demo)
            .map(|(file, demo)| DemoRef { file, demo });
        episode.video = recorded.video.map(|span| VideoRef {
            file: self.folder.relative(&span.path),
            first_frame: span.first_frame,
            frames: span.frames,
            fps: Some(span.fps),
        });
        episode.episode_video = recorded
            .episode_video
            .map(|path| self.folder.relative(&path));
        journal(episode, sink, beat)
    }
}

fn dataset(
    context: &JobContext,
    job: &Job,
    spec: &EnvSpec,
    earlier: &Earlier,
) -> Option<DatasetPlan> {
    let (folder, args) = (context.folder, context.args);
    let export = match args.export_mode {
        _ if args.no_dataset => return None,
        ExportMode::None => return None,
        ExportMode::All => Export::All,
        ExportMode::Succeeded => Export::Succeeded,
        ExportMode::Separate => Export::Separate,
    };
    let file = folder.dataset(&job.name, context.env.rank, context.env.world_size);
    // A dataset for training needs its images; one for analysis is far smaller without them.
    let (format, path, cameras) = match args.record_format {
        RecordFormat::Hdf5 => (Format::Hdf5, file, args.record_cameras),
        RecordFormat::Lerobot => (Format::LeRobot, file.with_extension(""), true),
    };
    Some(DatasetPlan {
        format,
        export,
        first_demo: earlier.first_demo(&folder.relative(&path)),
        first_failed_demo: earlier.first_demo(&folder.relative(&DatasetPlan::failed_path(&path))),
        env_args: serde_json::json!({
            "env_name": job.environment,
            "type": 2,
            "sim_args": {"dt": spec.sim_dt, "decimation": spec.decimation, "render_interval": spec.decimation,
                         "num_envs": job.num_envs},
        }),
        cameras: cameras && job.enable_cameras != Some(false),
        path,
    })
}

fn journal(episode: Episode, sink: &mut EpisodeSink, beat: &mut Heartbeat) -> Result<(), JobError> {
    if !sink.may_write(&episode)? {
        return Ok(());
    }
    let line = Line::Episode(Box::new(episode));
    sink.write(&line)?;
    if let Line::Episode(episode) = &line {
        let (number, success) = (episode.episode, episode.success);
        tracing::info!(
            episode = number,
            env = episode.env,
            success,
            length = episode.length,
            "episode ended"
        );
        if let Some(leases) = &sink.leases {
            leases.written(episode.job_index, episode.episode);
        }
        beat.count(episode);
        sink.observer.on(beat, Some(episode));
    }
    Ok(())
}

/// Writes an episode that an error ended to the journal at once.
pub fn journal_error(
    episode: Episode,
    sink: &mut EpisodeSink,
    beat: &mut Heartbeat,
) -> Result<(), JobError> {
    if let Some(reason) = &episode.error {
        sink.observer.say(&format!(
            "{} episode {}: {reason}",
            episode.job, episode.episode
        ));
    }
    journal(episode, sink, beat)
}
