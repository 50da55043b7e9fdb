//! The policy's thread itself: carries out orders until their channel is closed or the GPU is lost.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use jobs::serve_args::PolicyChoice;
use tch::Device;

use crate::clock::now;
use crate::env::EnvSpec;
use crate::policy::thread::{Give, Inferred};
use crate::policy::{
    self, Checkpoints, Lifeline, Made, Over, PolicyError, PolicyFacts, PolicyRow, RowAnswer,
    Shortage, check_finite,
};
use torchlib::cuda;

/// What the thread is told to do. The receiver of a reply is gone if the caller was stopped
/// meanwhile.
pub(super) type Order = Box<dyn FnOnce(&mut PolicyWorker) + Send>;

/// The owner of checkpoints and policy.
pub(super) struct PolicyWorker {
    device: Device,
    lifeline: Lifeline,
    /// The policy. It is freed before the checkpoints, which stand below.
    made: Option<Made>,
    /// Its facts.
    facts: Arc<PolicyFacts>,
    models: Checkpoints,
    is_gpu_lost: bool,
}

impl PolicyWorker {
    /// Creates a worker without a policy. Call it in the policy's thread, because CUDA's current
    /// device is a property of each thread; policies name their device wherever they can.
    pub(super) fn new(device: Device, lifeline: Lifeline) -> Self {
        if let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load())
            && let Err(err) = cuda.select(index)
        {
            tracing::warn!("policy thread on cuda:{index}: {err}");
        }
        Self {
            device,
            models: Checkpoints::new(device, lifeline.clone()),
            lifeline,
            made: None,
            facts: Arc::default(),
            is_gpu_lost: false,
        }
    }

    /// Carries out orders until the channel is closed or the GPU is lost.
    pub(super) fn serve(mut self, orders: &Receiver<Order>) {
        for order in orders {
            order(&mut self);
            if self.is_gpu_lost {
                // libtorch aborts the process if it cannot free GPU memory. Leak it, so that the
                // process can first report the reason.
                std::mem::forget(self);
                return;
            }
        }
    }

    pub(super) fn warm_up(&mut self, rows: usize, max_rows: usize) {
        if let Some(made) = &mut self.made {
            made.policy.warm_up(rows, max_rows);
        }
    }

    pub(super) fn make(
        &mut self,
        choice: &PolicyChoice,
        env: Option<&EnvSpec>,
        folder: Option<PathBuf>,
    ) -> Result<PolicyFacts, PolicyError> {
        // Free the memory of the previous policy before the next one is loaded.
        self.made = None;
        let (name, config) = (&choice.policy_type, &choice.config);
        let (models, lifeline) = (&mut self.models, &self.lifeline);
        let made = policy::using(self.device, || {
            policy::make(name, config, env, models, lifeline)
        });
        self.is_gpu_lost = matches!(made, Err(PolicyError::DeviceLost(_)));
        let mut made = made?;
        if let Some(folder) = folder {
            made.policy.keep_in(folder);
        }
        let facts = made.facts.clone();
        self.facts = Arc::new(facts.clone());
        self.made = Some(made);
        Ok(facts)
    }

    pub(super) fn infer(&mut self, rows: Vec<PolicyRow>, max_rows: usize, give: Give) {
        let started = now();
        let (facts, count) = (Arc::clone(&self.facts), rows.len());
        let give = move |answers: Result<Vec<RowAnswer>, _>, shortage| {
            give.give(Inferred {
                answers: answers.and_then(|answers| checked(answers, count, &facts)),
                took: started.elapsed(),
                shortage,
            });
        };
        let Some(made) = &mut self.made else {
            let none = PolicyError::Failed("no policy was made".to_owned());
            return give(Err(none), Shortage::default());
        };
        if made.facts.is_planner {
            let give = move |answers| give(answers, Shortage::default());
            return made.policy.act_later(rows, Box::new(give));
        }
        let answers = policy::using(self.device, || {
            let calls = rows.chunks(max_rows.max(1));
            let answers = calls.map(|rows| made.policy.act(rows));
            Ok(answers.collect::<Result<Vec<_>, _>>()?.concat())
        });
        self.is_gpu_lost = matches!(answers, Err(PolicyError::DeviceLost(_)));
        give(answers, made.policy.shortage());
    }

    pub(super) fn end(&mut self, over: &Over) -> Result<BTreeMap<String, f64>, PolicyError> {
        let made = self.made.as_mut();
        made.map_or(Ok(BTreeMap::new()), |made| made.policy.end(over))
    }
}

/// Returns the answers for `rows` rows, in which a chunk that nothing can be moved by is a failure
/// of its row.
fn checked(
    answers: Vec<RowAnswer>,
    rows: usize,
    facts: &PolicyFacts,
) -> Result<Vec<RowAnswer>, PolicyError> {
    let dim = facts.action_names.len();
    let mut chunks = answers.iter().filter_map(RowAnswer::chunk);
    if answers.len() != rows || chunks.any(|chunk| chunk.action_dim() != dim) {
        return Err(PolicyError::Failed(format!(
            "policy `{}` gave {} chunks for {rows} rows of {dim} actions",
            facts.policy,
            answers.len()
        )));
    }
    let finite = |answer: RowAnswer| {
        let name = |at: usize| facts.action_names[at].clone();
        let checked = answer
            .chunk()
            .map(|chunk| check_finite(facts.policy, chunk.values(), dim, name));
        match checked {
            Some(Err(err)) => RowAnswer::Failed(err),
            _ => answer,
        }
    };
    Ok(answers.into_iter().map(finite).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Chunk, RowError};

    #[test]
    fn a_chunk_that_nothing_can_be_moved_by_fails_its_row_alone() {
        let facts = PolicyFacts {
            policy: "pi0_remote",
            action_names: vec!["x".to_owned(), "gripper".to_owned()],
            ..PolicyFacts::default()
        };
        let chunk = |last: f32| RowAnswer::Chunk(Chunk::new(2, vec![0.0, 1.0, 2.0, last]));
        let failed = |value: &str| {
            let reason = format!("policy `pi0_remote` gave {value} as `gripper` of action 1");
            RowAnswer::Failed(RowError(reason))
        };
        let given = vec![
            chunk(3.0),
            chunk(f32::INFINITY),
            chunk(f32::NAN),
            RowAnswer::End,
        ];
        let wanted = vec![chunk(3.0), failed("inf"), failed("NaN"), RowAnswer::End];
        assert_eq!(checked(given.clone(), 4, &facts).unwrap(), wanted);
        let wrong = checked(given, 5, &facts).unwrap_err().to_string();
        let wanted = "policy `pi0_remote` gave 4 chunks for 5 rows of 2 actions";
        assert_eq!(wrong, wanted);
        let short = vec![RowAnswer::Chunk(Chunk::new(1, vec![0.0]))];
        assert!(checked(short, 1, &facts).is_err());
    }
}
