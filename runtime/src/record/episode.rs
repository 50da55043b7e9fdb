//! One episode in memory: columns that grow by one row per step.
//!
//! Row `t` holds the observation before action `t`, the action, and the results: reward, done,
//! simulator state.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::env::{EnvIndex, Frame, Observation};
use crate::record::EpisodeMeta;
use crate::record::error::{check_bytes, check_size};

/// Selects the parts of an observation that the plan needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    /// State vectors and simulator state, for the dataset.
    pub(super) state: bool,
    /// Images, for the dataset or a video.
    pub(super) pictures: bool,
}

/// The selected parts of one observation. Images are shared, not copied.
#[derive(Clone, Debug, Default)]
pub(super) struct StepSnapshot {
    /// State vectors by name.
    pub(super) state: BTreeMap<String, Vec<f32>>,
    /// Simulator state by recorder path.
    pub(super) sim_state: BTreeMap<String, Vec<f32>>,
    /// Images by camera.
    pub(super) video: Arc<BTreeMap<String, Frame>>,
}

impl StepSnapshot {
    /// Copies the selected parts.
    pub(super) fn of(observation: &Observation, wanted: Selection) -> Self {
        let mut snapshot = Self::default();
        if wanted.state {
            snapshot.state.clone_from(&observation.state);
            snapshot.sim_state.clone_from(&observation.sim_state);
        }
        if wanted.pictures {
            snapshot.video = Arc::new(observation.video.clone());
        }
        snapshot
    }
}

/// Values of one name: `[rows, width]`, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EpisodeColumn {
    /// Number of values in a row.
    pub(super) width: usize,
    /// All rows, one after the other.
    pub(super) values: Vec<f32>,
}

/// Images of one camera, one for each row.
#[derive(Clone, Debug, Default)]
pub(super) struct CameraImages {
    /// Images in order, all of the size of the first.
    pub(super) frames: Vec<Frame>,
}

/// The data that one step adds to the episode.
#[derive(Clone, Debug)]
pub(super) struct StepRow {
    /// The action as the policy gave it.
    pub(super) action: Vec<f32>,
    /// The action after clamping and scaling, if the environment reports it.
    pub(super) processed: Option<Vec<f32>>,
    /// Observation and state after the step.
    pub(super) after: StepSnapshot,
    /// Reward of this step.
    pub(super) reward: f32,
    /// True if the environment says that the step ended the episode.
    pub(super) done: bool,
}

/// An episode that has begun.
#[derive(Clone, Debug)]
pub(super) struct EpisodeRows {
    /// Number, seed and instruction of the episode.
    pub(super) meta: EpisodeMeta,
    /// The environment that runs it.
    pub(super) env: EnvIndex,
    /// Values of `initial_state/…`: one row each.
    pub(super) initial: BTreeMap<String, Vec<f32>>,
    /// Columns `obs/…`, `states/…`, `actions`, `processed_actions`.
    pub(super) columns: BTreeMap<String, EpisodeColumn>,
    /// Images of `obs/<camera>`.
    pub(super) pictures: BTreeMap<String, CameraImages>,
    /// Rewards, `[rows]`.
    pub(super) rewards: Vec<f32>,
    /// Done flags, `[rows]`, 0 or 1.
    pub(super) dones: Vec<u8>,
    before: StepSnapshot,
    cameras: bool,
}

impl EpisodeRows {
    /// Begins an episode with the observation of the reset; `cameras` says whether to keep images.
    pub(super) fn begin(
        env: EnvIndex,
        meta: EpisodeMeta,
        first: StepSnapshot,
        cameras: bool,
    ) -> Self {
        Self {
            meta,
            env,
            initial: first.sim_state.clone(),
            columns: BTreeMap::new(),
            pictures: BTreeMap::new(),
            rewards: Vec::new(),
            dones: Vec::new(),
            before: first,
            cameras,
        }
    }

    /// Returns the number of steps so far.
    pub(super) fn rows(&self) -> usize {
        self.rewards.len()
    }

    /// Adds a step. After an error the episode cannot become a demo.
    pub(super) fn push(&mut self, row: StepRow) -> Result<(), String> {
        let before = std::mem::replace(&mut self.before, row.after);
        for (name, values) in &before.state {
            add(&mut self.columns, format!("obs/{name}"), values)?;
        }
        for (name, values) in &self.before.sim_state {
            add(&mut self.columns, format!("states/{name}"), values)?;
        }
        add(&mut self.columns, "actions".to_owned(), &row.action)?;
        if let Some(processed) = &row.processed {
            add(&mut self.columns, "processed_actions".to_owned(), processed)?;
        }
        if self.cameras {
            self.push_pictures(&before.video)?;
        }
        self.rewards.push(row.reward);
        self.dones.push(u8::from(row.done));
        Ok(())
    }

    /// Ends the episode with its last row, whoever has ended it: the environment, a success, a limit
    /// of the job or the policy.
    pub(super) fn end(&mut self) {
        if let Some(done) = self.dones.last_mut() {
            *done = 1;
        }
    }

    /// Checks that every name has a value in every row.
    pub(super) fn complete(&self) -> Result<(), String> {
        let rows = self.rows();
        let short = self
            .columns
            .iter()
            .find(|(_, column)| column.values.len() != rows * column.width);
        if let Some((name, column)) = short {
            let found = column.values.len() / column.width.max(1);
            return Err(format!("`{name}` has {found} rows, the episode has {rows}"));
        }
        let mut pictures = self.pictures.iter();
        match pictures.find(|(_, pictures)| pictures.frames.len() != rows) {
            Some((camera, CameraImages { frames })) => {
                let found = frames.len();
                Err(format!(
                    "camera `{camera}` has {found} pictures, the episode has {rows} rows"
                ))
            }
            None => Ok(()),
        }
    }

    /// Returns the bytes of all values before compression.
    pub(super) fn bytes(&self) -> u64 {
        let columns: usize = self
            .columns
            .values()
            .map(|column| column.values.len() * size_of::<f32>())
            .sum();
        let pictures: usize = self
            .pictures
            .values()
            .flat_map(|p| &p.frames)
            .map(|frame| frame.rgb.len())
            .sum();
        (columns + pictures + self.rows() * 5) as u64
    }

    fn push_pictures(&mut self, video: &BTreeMap<String, Frame>) -> Result<(), String> {
        for (name, frame) in video {
            check_bytes(name, frame)?;
            let frames = &mut self.pictures.entry(name.clone()).or_default().frames;
            if let Some(first) = frames.first() {
                check_size(name, first.size(), frame.size())?;
            }
            frames.push(frame.clone());
        }
        Ok(())
    }
}

fn add(
    columns: &mut BTreeMap<String, EpisodeColumn>,
    name: String,
    values: &[f32],
) -> Result<(), String> {
    let column = columns
        .entry(name.clone())
        .or_insert_with(|| EpisodeColumn {
            width: values.len(),
            values: Vec::new(),
        });
    let (before, now) = (column.width, values.len());
    if before != now {
        return Err(format!("`{name}` changed from {before} to {now} values"));
    }
    column.values.extend_from_slice(values);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOINTS: &str = "articulation/robot/joint_position";

    fn snapshot(state: &[f32], sim: f32) -> StepSnapshot {
        let mut snapshot = StepSnapshot::default();
        snapshot.state.insert("q".to_owned(), state.to_vec());
        snapshot.sim_state.insert(JOINTS.to_owned(), vec![sim]);
        snapshot
    }

    fn begin() -> EpisodeRows {
        let meta = EpisodeMeta {
            episode: 3,
            seed: 9,
            language: Arc::from("lift"),
        };
        EpisodeRows::begin(EnvIndex(0), meta, snapshot(&[1.0, 2.0], 10.0), false)
    }

    fn step(after: StepSnapshot) -> StepRow {
        StepRow {
            action: vec![0.5],
            processed: None,
            after,
            reward: 1.0,
            done: false,
        }
    }

    #[test]
    fn a_row_holds_the_observation_before_and_the_state_after() {
        let mut episode = begin();
        episode.push(step(snapshot(&[3.0, 4.0], 11.0))).unwrap();
        assert_eq!(episode.columns["obs/q"].values, [1.0, 2.0]);
        let after = &episode.columns[&format!("states/{JOINTS}")];
        assert_eq!(after.values, [11.0]);
        assert_eq!(episode.initial[JOINTS], [10.0]);
        episode.complete().unwrap();
    }

    #[test]
    fn a_changed_width_is_refused_by_name() {
        let mut episode = begin();
        episode.push(step(snapshot(&[3.0], 11.0))).unwrap();
        let reason = episode.push(step(snapshot(&[3.0, 4.0], 11.0))).unwrap_err();
        assert_eq!(reason, "`obs/q` changed from 2 to 1 values");
    }

    #[test]
    fn a_name_that_comes_late_is_refused_at_the_end() {
        let mut episode = begin();
        let mut late = step(snapshot(&[3.0, 4.0], 11.0));
        episode.push(late.clone()).unwrap();
        late.processed = Some(vec![1.0, 1.0]);
        episode.push(late).unwrap();
        let reason = episode.complete().unwrap_err();
        assert_eq!(reason, "`processed_actions` has 1 rows, the episode has 2");
    }
}
