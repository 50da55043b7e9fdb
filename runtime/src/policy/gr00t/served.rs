//! A checkpoint that answers the clients of a server. Clients use the checkpoint's own keys, so
//! there is no environment, no wiring and no history.

use jobs::policies::PolicyType;
use jobs::seed;
use tch::{Kind, Tensor};

use crate::policy::gr00t::inference::{Gr00tInference, open_processor};
use crate::policy::gr00t::settings::Gr00tSettings;
use crate::policy::served::{Actions, Noise, PolicyRequest, Served, ServedSpec};
use crate::policy::{Checkpoints, InferenceError, PolicyError, RowError};
use gr00t::client::ClientObservations;
use gr00t::processor::{KeyActions, RowInputs};

/// A checkpoint that answers clients.
#[derive(Debug)]
pub struct Gr00tServed {
    inference: Gr00tInference,
    settings: Gr00tSettings,
}

/// The range of one request's rows within the batch.
type BatchPlace = Result<std::ops::Range<usize>, InferenceError>;

impl Gr00tServed {
    /// Loads the checkpoint that the settings name.
    ///
    /// # Errors
    /// Returns [`PolicyError::Checkpoint`] if files cannot be used.
    pub fn new(
        settings: Gr00tSettings,
        checkpoints: &mut Checkpoints,
    ) -> Result<Self, PolicyError> {
        let processor = open_processor(&settings)?;
        Ok(Self {
            inference: Gr00tInference::load(&settings, processor, checkpoints)?,
            settings,
        })
    }

    fn noise(&self, noise: &Noise) -> Tensor {
        match noise {
            Noise::Episode(row) => {
                let seed = seed::noise(self.settings.seed, row.seed, row.inference);
                self.inference.noise(seed)
            }
            Noise::Seed(seed) => self.inference.noise(*seed),
            Noise::Given(numbers) => Tensor::from_slice(numbers)
                .reshape(self.inference.noise_shape())
                .to_kind(Kind::Float),
        }
    }

    /// Returns the rows of a request, if there is noise for each row.
    fn rows<'a>(
        observations: &'a ClientObservations,
        noise: &[Noise],
    ) -> Result<Vec<RowInputs<'a>>, InferenceError> {
        let rows = observations.rows()?;
        match rows.len() {
            0 => Err(InferenceError::NoRows),
            rows if rows != noise.len() => Err(InferenceError::Noises {
                rows,
                noises: noise.len(),
            }),
            _ => Ok(rows),
        }
    }
}

impl Served for Gr00tServed {
    fn card(&self) -> ServedSpec {
        let processor = self.inference.processor();
        let numbers = processor.numbers();
        let [steps, width] = self
            .inference
            .noise_shape()
            .map(|edge| usize::try_from(edge).unwrap_or(0));
        ServedSpec {
            policy: PolicyType::Gr00t.name(),
            modalities: processor.modalities().clone(),
            view_sizes: Vec::new(),
            states: numbers
                .state_keys()
                .into_iter()
                .map(|(key, width)| (key.to_owned(), width))
                .collect(),
            actions: numbers
                .action_keys()
                .into_iter()
                .map(|(key, width)| (key.to_owned(), width))
                .collect(),
            action_names: Vec::new(),
            horizon: self.inference.horizon(),
            noise_shape: Some([steps, width]),
            seed: self.settings.seed,
            prompt: None,
            facts: self.inference.facts(&self.settings),
        }
    }

    fn answer(
        &mut self,
        requests: &[PolicyRequest],
        max_rows: usize,
    ) -> Result<Vec<Result<Actions, InferenceError>>, PolicyError> {
        let modalities = self.inference.processor().modalities();
        let observations = requests
            .iter()
            .map(|request| ClientObservations::read(&request.observation, modalities));
        let observations: Vec<_> = observations.collect();
        let (mut raws, mut noises, mut places) = (Vec::new(), Vec::new(), Vec::<BatchPlace>::new());
        for (request, observations) in requests.iter().zip(&observations) {
            let rows = match observations {
                Ok(observations) => Self::rows(observations, &request.noise),
                Err(err) => Err(err.clone().into()),
            };
            places.push(rows.map(|rows| {
                let from = raws.len();
                raws.extend(rows);
                noises.extend(request.noise.iter().map(|noise| self.noise(noise)));
                from..raws.len()
            }));
        }
        let mut rows: Vec<_> = self
            .inference
            .infer(&raws, &noises, max_rows)?
            .into_iter()
            .map(Some)
            .collect();
        let take = |place: BatchPlace| {
            place.and_then(|place| together(rows[place].iter_mut().filter_map(Option::take)))
        };
        Ok(places.into_iter().map(take).collect())
    }
}

/// Concatenates the rows of one request, key by key.
fn together(
    rows: impl Iterator<Item = Result<Vec<KeyActions>, RowError>>,
) -> Result<Actions, InferenceError> {
    let mut all = Actions {
        rows: 0,
        horizon: 0,
        keys: Vec::new(),
    };
    for row in rows {
        let row = row.map_err(|RowError(reason)| InferenceError::Row { reason })?;
        all.rows += 1;
        all.horizon = row
            .first()
            .map_or(0, |key| key.values.len() / key.width.max(1));
        if all.keys.is_empty() {
            all.keys = row;
        } else {
            all.keys
                .iter_mut()
                .zip(row)
                .for_each(|(all, key)| all.values.extend(key.values));
        }
    }
    Ok(all)
}
