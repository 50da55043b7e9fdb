//! One row of an inference and its answer: what policies remember from one row of an episode to the
//! next, and when the failure of rows is that of their policy.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jobs::seed;

use crate::env::{EnvIndex, Observation};
use crate::policy::{Chunk, PolicyError, RowError};

/// Number of rows that fail in succession, with none answered between them, until their policy has
/// failed: more than a few states that a network cannot take, and few of a job's episodes.
const MOST_FAILED_ROWS: usize = 16;

/// One row of an inference: an episode that needs a chunk, and what its environment has shown.
#[derive(Clone, Debug)]
pub struct PolicyRow {
    /// The environment, under which a policy keeps what it remembers of the episode.
    pub env: EnvIndex,
    /// Index of the episode within its job, `0..num_episodes`.
    pub episode: u64,
    /// Seed of the episode: all randomness of a policy is derived from it.
    pub seed: u64,
    /// Number of chunks that the episode has had; 0: it begins with this row. An inference that
    /// failed does not count, so it has the same noise when it is tried again.
    pub inference: u64,
    /// The observations of the latest steps.
    pub window: Window,
    /// How the new chunk follows the previous one of the episode; `None` for the first.
    pub continues: Option<Continuation>,
    /// The noise that a client of the checkpoint's own keys has chosen in place of its episode's.
    pub noise: Option<RowNoise>,
}

/// The noise from which the denoising of a chunk starts.
#[derive(Clone, Debug, PartialEq)]
pub enum RowNoise {
    /// Noise drawn from this seed.
    Seed(u64),
    /// The noise itself, of the shape in [`crate::policy::ClientKeys::noise_shape`], row-major.
    Given(Vec<f32>),
}

impl PolicyRow {
    /// Returns the observation before the next step.
    pub fn now(&self) -> &Observation {
        self.window.now()
    }

    /// Returns the seed of the row's noise for a policy with the seed `policy`.
    pub fn noise_seed(&self, policy: u64) -> u64 {
        seed::noise(policy, self.seed, self.inference)
    }
}

/// How a chunk follows the previous one of its episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// Number of steps between the observations of the two.
    pub steps: usize,
    /// Number of steps that will be taken from the previous chunk before this one arrives: exact
    /// for a fixed latency, otherwise the most so far in the episode.
    pub delay: usize,
}

/// The observations of an episode's latest steps, at least one.
#[derive(Clone, Debug)]
pub struct Window<T = Observation> {
    now: Arc<T>,
    /// Those before, the oldest first.
    past: VecDeque<Arc<T>>,
}

impl<T> Window<T> {
    /// Begins with the first observation of an episode.
    pub fn new(first: Arc<T>) -> Self {
        let past = VecDeque::new();
        Self { now: first, past }
    }

    /// Returns the window of these observations, the last of which is now.
    pub fn of(seen: impl IntoIterator<Item = T>) -> Option<Self> {
        let mut past: VecDeque<_> = seen.into_iter().map(Arc::new).collect();
        let now = past.pop_back()?;
        Some(Self { now, past })
    }

    /// Adds the observation of the next step for a policy that looks back by so many steps.
    pub fn push(&mut self, next: Arc<T>, looks_back: usize) {
        self.past.push_back(std::mem::replace(&mut self.now, next));
        while self.past.len() > looks_back {
            self.past.pop_front();
        }
    }

    /// Returns the observation of the last step.
    pub fn now(&self) -> &Arc<T> {
        &self.now
    }

    /// Returns all observations.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.past.iter().chain([&self.now]).map(|seen| &**seen)
    }

    /// Returns the observation at each of `deltas` steps from now, where 0 is now. Steps before
    /// the first observation repeat that one, as the reference's `MultiStepWrapper` does.
    pub fn at(&self, deltas: &[i64]) -> Vec<&T> {
        let at = |delta: &i64| {
            let back = usize::try_from(delta.saturating_neg())
                .unwrap_or(0)
                .min(self.past.len());
            self.past.get(self.past.len() - back).unwrap_or(&self.now)
        };
        deltas.iter().map(|delta| &**at(delta)).collect()
    }
}

/// Returns by how many steps a policy looks back whose inputs are at these steps from now.
pub fn looks_back(deltas: &[i64]) -> usize {
    let back = |delta: &i64| usize::try_from(delta.saturating_neg()).unwrap_or(0);
    deltas.iter().map(back).max().unwrap_or(0)
}

/// What a policy remembers of the episodes under way, by environment.
#[derive(Debug)]
pub struct PerEpisode<T>(BTreeMap<EnvIndex, T>);

impl<T> Default for PerEpisode<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> PerEpisode<T> {
    /// Returns the memory of a row's episode, made anew if it begins with the row.
    pub fn of(&mut self, row: &PolicyRow, new: impl FnOnce() -> T) -> &mut T {
        if row.inference == 0 {
            self.0.remove(&row.env);
        }
        self.0.entry(row.env).or_insert_with(new)
    }

    /// Returns the memory of a row's episode, if it began with an earlier one.
    pub fn get(&self, row: &PolicyRow) -> Option<&T> {
        self.0.get(&row.env).filter(|_| row.inference > 0)
    }

    /// Forgets an episode that is over, and returns its memory.
    pub fn end(&mut self, env: EnvIndex) -> Option<T> {
        self.0.remove(&env)
    }
}

/// What the inference of a row gives.
#[derive(Clone, Debug, PartialEq)]
pub enum RowAnswer {
    /// The actions of the next steps.
    Chunk(Chunk),
    /// The policy ends the episode: no step is taken, and the episode counts as not solved unless
    /// it was solved before.
    End,
    /// The inference of the row failed. It costs the row's episode or request, and no other.
    Failed(RowError),
}

impl RowAnswer {
    /// Returns the chunk, if there is one.
    pub fn chunk(&self) -> Option<&Chunk> {
        match self {
            Self::Chunk(chunk) => Some(chunk),
            Self::End | Self::Failed(_) => None,
        }
    }

    /// Returns why the inference failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(RowError(reason)) => Some(reason),
            Self::Chunk(_) | Self::End => None,
        }
    }
}

impl From<Result<Chunk, RowError>> for RowAnswer {
    fn from(result: Result<Chunk, RowError>) -> Self {
        match result {
            Ok(chunk) => Self::Chunk(chunk),
            Err(err) => Self::Failed(err),
        }
    }
}

/// Refuses actions of `width` numbers each if a number is not finite: what moves by them is an
/// environment, or a robot. `name` names a component of an action.
///
/// # Errors
/// Returns the error for the first such number.
pub fn check_finite(
    policy: &str,
    values: &[f32],
    width: usize,
    name: impl FnOnce(usize) -> String,
) -> Result<(), RowError> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(place) => Err(RowError(format!(
            "policy `{policy}` gave {} as `{}` of action {}",
            values[place],
            name(place % width),
            place / width
        ))),
    }
}

/// The rows of a policy that have failed since it last answered one.
#[derive(Debug, Default)]
pub struct FailedRows(usize);

impl FailedRows {
    /// Counts the failures of a call.
    ///
    /// # Errors
    /// Returns an error with the reason of the last row if the policy answers no row any more.
    pub fn count(&mut self, policy: &str, answers: &[RowAnswer]) -> Result<(), PolicyError> {
        let reasons: Option<Vec<_>> = answers.iter().map(RowAnswer::failure).collect();
        let Some(reason) = reasons.and_then(|mut reasons| reasons.pop()) else {
            self.0 = 0;
            return Ok(());
        };
        self.0 += answers.len();
        if self.0 < MOST_FAILED_ROWS {
            return Ok(());
        }
        Err(PolicyError::Failed(format!(
            "policy `{policy}` has answered none of {} observations in succession, at last: \
             {reason}",
            self.0
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::row;

    fn observation(step: f32) -> Arc<Observation> {
        let mut observation = Observation::default();
        observation.state.insert("step".to_owned(), vec![step]);
        Arc::new(observation)
    }

    fn steps(window: &Window, deltas: &[i64]) -> Vec<f32> {
        let seen = window.at(deltas).into_iter();
        seen.map(|seen| seen.state["step"][0]).collect()
    }

    #[test]
    fn before_the_first_observation_there_is_the_first() {
        let mut window = Window::new(observation(0.0));
        assert_eq!(steps(&window, &[-3, 0]), [0.0, 0.0]);
        window.push(observation(1.0), 3);
        assert_eq!(steps(&window, &[-3, -1, 0]), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn no_more_is_kept_than_is_looked_at() {
        let deltas = [-3, 0];
        assert_eq!((looks_back(&deltas), looks_back(&[0])), (3, 0));
        for (looks_back, kept) in [(3, 3), (0, 0)] {
            let mut window = Window::new(observation(0.0));
            (1..10).for_each(|step| window.push(observation(step as f32), looks_back));
            assert_eq!(window.past.len(), kept);
            assert_eq!(steps(&window, &deltas), [9.0 - kept as f32, 9.0]);
        }
    }

    #[test]
    fn an_episode_is_remembered_until_another_begins_in_its_environment() {
        let mut memory = PerEpisode::default();
        let mut first = row(3, Observation::default());
        assert_eq!(*memory.of(&first, || 1), 1);
        first.inference = 1;
        assert_eq!(*memory.of(&first, || 2), 1);
        assert_eq!(*memory.of(&row(4, Observation::default()), || 5), 5);
        first.inference = 0;
        assert_eq!(*memory.of(&first, || 6), 6);
        assert_eq!(
            (memory.end(EnvIndex(3)), memory.end(EnvIndex(3))),
            (Some(6), None)
        );
    }

    fn answered() -> RowAnswer {
        RowAnswer::Chunk(Chunk::new(1, vec![0.0]))
    }

    fn failed(reason: &str) -> RowAnswer {
        RowAnswer::Failed(RowError(reason.to_owned()))
    }

    #[test]
    fn a_number_that_is_not_finite_is_refused_with_policy_and_component() {
        let name = |component: usize| ["dx", "gripper"][component].to_owned();
        check_finite("torchscript", &[0.0, 1.0], 2, name).unwrap();
        for (values, reason) in [
            (
                &[0.0, 1.0, 2.0, f32::NAN][..],
                "gave NaN as `gripper` of action 1",
            ),
            (&[f32::NEG_INFINITY, 1.0], "gave -inf as `dx` of action 0"),
        ] {
            let refused = check_finite("torchscript", values, 2, name).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("policy `torchscript` {reason}")
            );
        }
    }

    #[test]
    fn a_policy_that_answers_no_row_any_more_has_failed() {
        let mut failures = FailedRows::default();
        let mut count = |answers: &[RowAnswer]| failures.count("torchscript", answers);
        for _ in 0..100 {
            count(&vec![failed("a"); MOST_FAILED_ROWS - 1]).unwrap();
            count(&[failed("a"), answered(), failed("a")]).unwrap();
        }
        for _ in 0..MOST_FAILED_ROWS - 1 {
            count(&[failed("b")]).unwrap();
        }
        let lost = count(&[failed("c")]).unwrap_err().to_string();
        let wanted = "has answered none of 16 observations in succession, at last: c";
        assert_eq!(lost, format!("policy `torchscript` {wanted}"));
    }

    #[test]
    fn an_episode_that_its_policy_ends_was_answered() {
        let mut failures = FailedRows::default();
        for _ in 0..2 {
            failures.count("python", &vec![failed("a"); 10]).unwrap();
            failures.count("python", &[RowAnswer::End]).unwrap();
        }
    }
}
