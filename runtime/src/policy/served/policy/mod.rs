//! Any [`Policy`] as a server's policy: the robots of the clients are its environments.
//!
//! ```text
//! request of a client ─► rows ─► slot of each ─► act
//!        error of that request ◄─ RowAnswer::Failed, RowAnswer::End  Actions ◄─ chunks ◄┘
//! ```
//! A policy that looks back gets the steps before an observation from the client, as GR00T's
//! clients send them, because only the client has seen them all.

use std::ops::Range;

use gr00t::processor::{KeyActions, Modalities, ModalityConfig};
use jobs::policies::PolicyType;

use crate::env::{EnvIndex, EnvSpec};
use crate::policy::served::observation::ClientRows;
use crate::policy::served::request::{Actions, ClientId, Noise, PolicyRequest, Served, ServedSpec};
use crate::policy::served::slots::{ClientSlots, SlotEpisode};
use crate::policy::{
    InferenceError, Made, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError, Window,
};

/// Key of the instruction. In flat observations, GR00T's clients give it two names.
const LANGUAGE_KEY: &str = "task";

/// Key of the action vector.
const ACTION_KEY: &str = "action";

/// Seed of the episodes for which clients do not choose one.
const SEED: u64 = 10;

/// A policy that acts for the robots of clients.
pub struct ServedPolicy {
    policy_type: PolicyType,
    policy: Box<dyn Policy>,
    /// Clients get as many actions as are executed, and send the steps to which it looks back.
    facts: PolicyFacts,
    env: EnvSpec,
    slots: ClientSlots,
}

/// The rows of one request within the batch, and the slots that it has borrowed.
struct RequestPlace {
    rows: Range<usize>,
    borrowed: Vec<EnvIndex>,
}

impl ServedPolicy {
    /// Serves a policy that was made for the interface `env`.
    ///
    /// # Errors
    /// Refuses a policy that needs more than observations.
    pub fn new(policy_type: PolicyType, made: Made, env: &EnvSpec) -> Result<Self, PolicyError> {
        let Made { policy, facts } = made;
        if facts.is_planner {
            return Err(PolicyError::not_served(
                policy_type.name(),
                "it plans with the results of episodes",
            ));
        }
        if !facts.seeds.is_empty() {
            return Err(PolicyError::not_served(
                policy_type.name(),
                "it has episodes of its own",
            ));
        }
        Ok(Self {
            policy_type,
            policy,
            facts,
            env: env.clone(),
            slots: ClientSlots::default(),
        })
    }

    /// Adds the rows of a request to a batch. Tells the policy of episodes that start, and of the
    /// steps before.
    fn prepare(
        &mut self,
        request: &PolicyRequest,
        batch: &mut Vec<PolicyRow>,
    ) -> Result<RequestPlace, InferenceError> {
        let steps = self.facts.looks_back + 1;
        let size = [request.noise.len(), steps];
        let rows = ClientRows::read(
            &request.observation,
            &self.env,
            self.facts.needs_video,
            size,
        )?;
        let is_given = |noise: &Noise| matches!(noise, Noise::Given(_));
        if request.noise.is_empty() || request.noise.iter().any(is_given) {
            // `chosen_noise` has refused noise, because the policy has no shape of it.
            return Err(InferenceError::NoRows);
        }
        let mut place = RequestPlace {
            rows: batch.len()..batch.len() + request.noise.len(),
            borrowed: Vec::new(),
        };
        for (row, noise) in request.noise.iter().enumerate() {
            let SlotEpisode {
                env,
                episode,
                seed,
                inference,
            } = match noise {
                Noise::Episode(episode) => self.slots.slot(episode),
                Noise::Seed(seed) => {
                    let slot = self.slots.borrow(*seed);
                    place.borrowed.push(slot.env);
                    slot
                }
                Noise::Given(_) => continue,
            };
            let window = Window::of(rows.row(row));
            batch.extend(window.map(|window| PolicyRow {
                env,
                episode,
                seed,
                inference,
                window,
                continues: None,
            }));
        }
        Ok(place)
    }

    /// Returns the answer for each row.
    fn act(&mut self, rows: &[PolicyRow], max_rows: usize) -> Result<Vec<RowAnswer>, PolicyError> {
        let mut answers = Vec::with_capacity(rows.len());
        for rows in rows.chunks(max_rows.max(1)) {
            let given = self.policy.act(rows)?;
            let dim = self.env.action.names.len();
            let mut chunks = given.iter().filter_map(RowAnswer::chunk);
            if given.len() != rows.len() || chunks.any(|chunk| chunk.action_dim() != dim) {
                return Err(InferenceError::Chunks {
                    policy: self.policy_type.name().to_owned(),
                    found: given.len(),
                    rows: rows.len(),
                    dim,
                }
                .into());
            }
            answers.extend(given);
        }
        Ok(answers)
    }

    /// Appends the actions of one row.
    fn append(&self, answer: RowAnswer, values: &mut Vec<f32>) -> Result<(), InferenceError> {
        let policy = || self.policy_type.name().to_owned();
        let chunk = match answer {
            RowAnswer::Chunk(chunk) => chunk,
            RowAnswer::End => return Err(InferenceError::EpisodeEnded { policy: policy() }),
            RowAnswer::Failed(RowError(reason)) => return Err(InferenceError::Row { reason }),
        };
        for index in 0..self.facts.chunk_length {
            let action = chunk
                .action(index)
                .ok_or_else(|| InferenceError::ShortChunk {
                    policy: policy(),
                    found: chunk.horizon(),
                    wanted: self.facts.chunk_length,
                })?;
            values.extend_from_slice(action);
        }
        Ok(())
    }

    /// Returns the answer to one request.
    fn actions(&self, answers: Vec<RowAnswer>) -> Result<Actions, InferenceError> {
        let rows = answers.len();
        let mut values = Vec::new();
        for answer in answers {
            self.append(answer, &mut values)?;
        }
        let key = KeyActions {
            key: ACTION_KEY.to_owned(),
            width: self.env.action.names.len(),
            values,
        };
        Ok(Actions {
            rows,
            horizon: self.facts.chunk_length,
            keys: vec![key],
        })
    }
}

impl Served for ServedPolicy {
    fn card(&self) -> ServedSpec {
        let cameras = || self.env.cameras.iter().filter(|_| self.facts.needs_video);
        let back = i64::try_from(self.facts.looks_back).unwrap_or(0);
        let ahead = i64::try_from(self.facts.chunk_length).unwrap_or(0);
        let modality = |keys: Vec<String>, steps: Range<i64>| ModalityConfig {
            delta_indices: steps.collect(),
            keys,
            sin_cos_keys: None,
            mean_std_keys: None,
            actions: None,
        };
        let names = |(name, _): &(String, usize)| name.clone();
        let views = cameras().map(|camera| camera.name.clone()).collect();
        let states = self.env.state.iter();
        let size =
            |camera: &crate::env::CameraSpec| (camera.name.clone(), [camera.height, camera.width]);
        ServedSpec {
            policy: self.policy_type.name(),
            modalities: Modalities {
                video: modality(views, -back..1),
                state: modality(states.clone().map(names).collect(), -back..1),
                action: modality(vec![ACTION_KEY.to_owned()], 0..ahead),
                language: modality(vec![LANGUAGE_KEY.to_owned()], 0..1),
            },
            view_sizes: cameras().map(size).collect(),
            states: states
                .map(|(name, length)| (name.clone(), Some(*length)))
                .collect(),
            actions: vec![(ACTION_KEY.to_owned(), self.env.action.names.len())],
            action_names: self.env.action.names.clone(),
            horizon: self.facts.chunk_length,
            noise_shape: None,
            seed: SEED,
            prompt: Some(self.env.language.clone()),
            facts: self.facts.reported.clone(),
        }
    }

    fn notes(&self) -> Vec<String> {
        self.facts.notes.clone()
    }

    fn answer(
        &mut self,
        requests: &[PolicyRequest],
        max_rows: usize,
    ) -> Result<Vec<Result<Actions, InferenceError>>, PolicyError> {
        let mut batch = Vec::new();
        let places: Vec<_> = requests
            .iter()
            .map(|request| self.prepare(request, &mut batch))
            .collect();
        let rows = match &batch[..] {
            [] => Ok(Vec::new()),
            rows => self.act(rows, max_rows),
        };
        let borrowed = places.iter().flatten().flat_map(|place| &place.borrowed);
        borrowed.for_each(|env| self.slots.give_back(*env));
        let mut rows = rows?.into_iter();
        let answer = |place: Result<RequestPlace, InferenceError>| {
            let place = place?;
            self.actions(rows.by_ref().take(place.rows.len()).collect())
        };
        Ok(places.into_iter().map(answer).collect())
    }

    fn leave(&mut self, client: ClientId) {
        self.slots.leave(client);
    }
}

#[cfg(test)]
mod tests;
