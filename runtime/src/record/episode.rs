//! One episode in memory: columns that grow by one row per step.
//!
//! Row `t` holds the observation before action `t`, the action, and the results: reward, done,
//! simulator state.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::env::{EnvIndex, Frame};
use crate::record::EpisodeMeta;
use crate::record::recorder::StepImages;
use crate::record::{check_bytes, check_size};

/// Values of one name: `[rows, width]`, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EpisodeColumn {
    /// Number of values in a row.
    pub(super) width: usize,
    /// All rows, one after the other.
    pub(super) values: Vec<f32>,
}

/// The data that one step adds to the episode.
#[derive(Clone, Debug, Default)]
pub(super) struct StepRow {
    /// The action as the policy gave it.
    pub(super) action: Vec<f32>,
    /// The action after clamping and scaling, if the environment reports it.
    pub(super) processed: Option<Vec<f32>>,
    /// State vectors after the step by name.
    pub(super) state: BTreeMap<String, Vec<f32>>,
    /// Simulator state after the step by recorder path.
    pub(super) sim_state: BTreeMap<String, Vec<f32>>,
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
    /// Images of `obs/<camera>`, all of the size of the first.
    pub(super) pictures: BTreeMap<String, Vec<Frame>>,
    /// Rewards, `[rows]`.
    pub(super) rewards: Vec<f32>,
    /// Done flags, `[rows]`, 0 or 1.
    pub(super) dones: Vec<u8>,
    /// The observation before the next step.
    before: (Arc<StepRow>, StepImages),
    /// Why the episode cannot become a demo.
    fault: Option<String>,
}

impl EpisodeRows {
    /// Begins an episode with the observation of the reset.
    pub(super) fn begin(
        env: EnvIndex,
        meta: EpisodeMeta,
        first: Arc<StepRow>,
        images: StepImages,
    ) -> Self {
        Self {
            meta,
            env,
            initial: first.sim_state.clone(),
            columns: BTreeMap::new(),
            pictures: BTreeMap::new(),
            rewards: Vec::new(),
            dones: Vec::new(),
            before: (first, images),
            fault: None,
        }
    }

    /// Returns the number of steps so far.
    pub(super) fn rows(&self) -> usize {
        self.rewards.len()
    }

    /// Adds a step.
    pub(super) fn push(&mut self, row: Arc<StepRow>, images: StepImages) {
        if self.fault.is_none() {
            self.fault = self.try_push(row, images).err();
        }
    }

    fn try_push(&mut self, row: Arc<StepRow>, images: StepImages) -> Result<(), String> {
        let (before, pictures) = std::mem::replace(&mut self.before, (Arc::clone(&row), images));
        for (name, values) in &before.state {
            self.add(format!("obs/{name}"), values)?;
        }
        for (name, values) in &row.sim_state {
            self.add(format!("states/{name}"), values)?;
        }
        self.add("actions".to_owned(), &row.action)?;
        if let Some(processed) = &row.processed {
            self.add("processed_actions".to_owned(), processed)?;
        }
        for (name, frame) in pictures.iter() {
            check_bytes(name, frame)?;
            let frames = self.pictures.entry(name.clone()).or_default();
            if let Some(first) = frames.first() {
                check_size(name, first.size(), frame.size())?;
            }
            frames.push(frame.clone());
        }
        self.rewards.push(row.reward);
        self.dones.push(u8::from(row.done));
        Ok(())
    }

    fn add(&mut self, name: String, values: &[f32]) -> Result<(), String> {
        let column = self.columns.entry(name.clone()).or_default();
        if column.values.is_empty() {
            column.width = values.len();
        }
        let (before, now) = (column.width, values.len());
        if before != now {
            return Err(format!("`{name}` changed from {before} to {now} values"));
        }
        column.values.extend_from_slice(values);
        Ok(())
    }

    /// Ends the episode with its last row, whoever has ended it: the environment, a success, a limit
    /// of the job or the policy. Fails unless every name has a value in every row.
    pub(super) fn end(&mut self) -> Result<(), String> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if let Some(done) = self.dones.last_mut() {
            *done = 1;
        }
        let rows = self.rows();
        for (name, column) in &self.columns {
            if column.values.len() != rows * column.width {
                let found = column.values.len() / column.width.max(1);
                return Err(format!("`{name}` has {found} rows, the episode has {rows}"));
            }
        }
        match self.pictures.iter().find(|(_, all)| all.len() != rows) {
            Some((camera, all)) => Err(format!(
                "camera `{camera}` has {} pictures, the episode has {rows} rows",
                all.len()
            )),
            None => Ok(()),
        }
    }

    /// Returns the bytes of all values before compression.
    pub(super) fn bytes(&self) -> u64 {
        let columns = self.columns.values().map(|column| column.values.len() * 4);
        let pictures = self
            .pictures
            .values()
            .flatten()
            .map(|frame| frame.rgb.len());
        (columns.chain(pictures).sum::<usize>() + self.rows() * 5) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOINTS: &str = "articulation/robot/joint_position";

    fn row(state: &[f32], sim: f32) -> StepRow {
        StepRow {
            action: vec![0.5],
            state: [("q".to_owned(), state.to_vec())].into(),
            sim_state: [(JOINTS.to_owned(), vec![sim])].into(),
            reward: 1.0,
            ..StepRow::default()
        }
    }

    fn begin() -> EpisodeRows {
        let meta = EpisodeMeta {
            episode: 3,
            seed: 9,
            language: Arc::from("lift"),
        };
        let first = Arc::new(row(&[1.0, 2.0], 10.0));
        EpisodeRows::begin(EnvIndex(0), meta, first, StepImages::default())
    }

    fn push(episode: &mut EpisodeRows, row: StepRow) {
        episode.push(Arc::new(row), StepImages::default());
    }

    #[test]
    fn a_row_holds_the_observation_before_and_the_state_after() {
        let mut episode = begin();
        push(&mut episode, row(&[3.0, 4.0], 11.0));
        assert_eq!(episode.columns["obs/q"].values, [1.0, 2.0]);
        let after = &episode.columns[&format!("states/{JOINTS}")];
        assert_eq!(after.values, [11.0]);
        assert_eq!(episode.initial[JOINTS], [10.0]);
        episode.end().unwrap();
        assert_eq!(episode.dones, [1]);
    }

    #[test]
    fn a_changed_width_is_refused_by_name() {
        let mut episode = begin();
        push(&mut episode, row(&[3.0], 11.0));
        push(&mut episode, row(&[3.0, 4.0], 11.0));
        let reason = episode.end().unwrap_err();
        assert_eq!(reason, "`obs/q` changed from 2 to 1 values");
    }

    #[test]
    fn a_name_that_comes_late_is_refused_at_the_end() {
        let mut episode = begin();
        let mut late = row(&[3.0, 4.0], 11.0);
        push(&mut episode, late.clone());
        late.processed = Some(vec![1.0, 1.0]);
        push(&mut episode, late);
        let reason = episode.end().unwrap_err();
        assert_eq!(reason, "`processed_actions` has 1 rows, the episode has 2");
    }
}
