//! One episode in memory: columns that grow by one row per step.
//!
//! Row `t` holds the observation before action `t`, the action, and the results: reward, done,
//! simulator state.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::env::{EnvIndex, Frame, Observation, Step};
use crate::record::{check_bytes, check_size};

/// Values of one name: `[rows, width]`, row-major.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct EpisodeColumn {
    /// Number of values in a row.
    pub(super) width: usize,
    /// All rows, one after the other.
    pub(super) values: Vec<f32>,
}

/// An episode that has begun.
#[derive(Clone, Debug)]
pub(super) struct EpisodeRows {
    /// Number of the episode in the job.
    pub(super) episode: u64,
    /// Seed of its reset.
    pub(super) seed: u64,
    /// The task instruction.
    pub(super) language: Arc<str>,
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
    /// True if images are kept.
    has_pictures: bool,
    /// State and images before the next step.
    before: (BTreeMap<String, Vec<f32>>, BTreeMap<String, Frame>),
    /// Why the episode cannot become a demo.
    fault: Option<String>,
}

impl EpisodeRows {
    /// Begins an episode with the observation of the reset.
    pub(super) fn begin(
        env: EnvIndex,
        episode: u64,
        seed: u64,
        first: &Observation,
        has_pictures: bool,
    ) -> Self {
        let mut rows = Self {
            episode,
            seed,
            language: Arc::clone(&first.language),
            env,
            initial: first.sim_state.clone(),
            columns: BTreeMap::new(),
            pictures: BTreeMap::new(),
            rewards: Vec::new(),
            dones: Vec::new(),
            has_pictures,
            before: Default::default(),
            fault: None,
        };
        rows.before = rows.kept(first);
        rows
    }

    /// Returns the number of steps so far.
    pub(super) fn rows(&self) -> usize {
        self.rewards.len()
    }

    /// Adds a step with `action`, as the policy gave it.
    pub(super) fn push(&mut self, action: &[f32], step: &Step) {
        if self.fault.is_none() {
            self.fault = self.try_push(action, step).err();
        }
    }

    fn try_push(&mut self, action: &[f32], step: &Step) -> Result<(), String> {
        let now = self.kept(&step.observation);
        let (state, pictures) = std::mem::replace(&mut self.before, now);
        for (name, values) in &state {
            self.add(format!("obs/{name}"), values)?;
        }
        for (name, values) in &step.observation.sim_state {
            self.add(format!("states/{name}"), values)?;
        }
        self.add("actions".to_owned(), action)?;
        if !step.processed_action.is_empty() {
            self.add("processed_actions".to_owned(), &step.processed_action)?;
        }
        for (name, frame) in pictures {
            check_bytes(&name, &frame)?;
            let frames = self.pictures.entry(name.clone()).or_default();
            if let Some(first) = frames.first() {
                check_size(&name, first.size(), frame.size())?;
            }
            frames.push(frame);
        }
        self.rewards.push(step.reward);
        self.dones.push(u8::from(step.terminated || step.truncated));
        Ok(())
    }

    /// Returns the parts of an observation that belong to the next row.
    fn kept(&self, seen: &Observation) -> (BTreeMap<String, Vec<f32>>, BTreeMap<String, Frame>) {
        let pictures = self.has_pictures.then(|| seen.video.clone());
        (seen.state.clone(), pictures.unwrap_or_default())
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
        let frames = self.pictures.values().flatten();
        let pictures = frames.map(|frame| frame.rgb.len());
        (columns.chain(pictures).sum::<usize>() + self.rows() * 5) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::step_to;

    #[test]
    fn a_changed_width_is_refused_by_name() {
        let seen = |state: &[f32]| Observation {
            state: [("q".to_owned(), state.to_vec())].into(),
            ..Observation::default()
        };
        let mut episode = EpisodeRows::begin(EnvIndex(0), 3, 9, &seen(&[1.0, 2.0]), false);
        episode.push(&[0.5], &step_to(seen(&[3.0])));
        episode.push(&[0.5], &step_to(seen(&[3.0, 4.0])));
        let reason = episode.end().unwrap_err();
        assert_eq!(reason, "`obs/q` changed from 2 to 1 values");
    }
}
