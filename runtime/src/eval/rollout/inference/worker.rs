//! The inference thread itself: answers requests until their channel is closed or the GPU is lost.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use jobs::job::Job;
use tch::Device;

use crate::clock::now;
use crate::env::EnvSpec;
use crate::eval::rollout::inference::request::{InferenceReply, InferenceRequest, InferenceResult};
use crate::policy::{
    self, Account, Checkpoints, FailedRows, InferenceError, Lifeline, Made, Over, PolicyError,
    PolicyFacts, PolicyRow, RowAnswer, Shortage, check_finite,
};
use c10d::cuda;

/// The owner of checkpoints and policy.
pub struct InferenceWorker {
    device: Device,
    lifeline: Lifeline,
    /// The policy of the current job. It is freed before the checkpoints, which stand below.
    made: Option<Made>,
    face: Arc<ActionFace>,
    failures: FailedRows,
    models: Checkpoints,
    is_gpu_lost: bool,
}

impl InferenceWorker {
    /// Creates a worker without a policy. Call it in the inference thread, because CUDA's current
    /// device is a property of each thread; policies name their device wherever they can.
    pub fn new(device: Device, lifeline: Lifeline) -> Self {
        if let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load())
            && let Err(err) = cuda.select(index)
        {
            tracing::warn!("policy thread on cuda:{index}: {err}");
        }
        Self {
            device,
            models: Checkpoints::heard_by(device, lifeline.clone()),
            lifeline,
            made: None,
            face: Arc::default(),
            failures: FailedRows::default(),
            is_gpu_lost: false,
        }
    }

    /// Answers requests until the channel is closed or the GPU is lost.
    pub fn serve(mut self, requests: &Receiver<InferenceRequest>) {
        for request in requests {
            self.answer(request);
            if self.is_gpu_lost {
                // libtorch aborts the process if it cannot free GPU memory. Leak it, so that the
                // process can first report the reason.
                std::mem::forget(self);
                return;
            }
        }
    }

    fn answer(&mut self, request: InferenceRequest) {
        match request {
            InferenceRequest::Make {
                job,
                env,
                folder,
                reply,
            } => {
                // The receiver is gone if the loop was stopped meanwhile.
                let _ = reply.send(self.make(&job, &env, folder));
            }
            InferenceRequest::WarmUp { rows, max_rows } => {
                if let Some(made) = &mut self.made {
                    made.policy.warm_up(rows, max_rows);
                }
            }
            InferenceRequest::Infer {
                rows,
                max_batch,
                reply,
            } => self.infer(rows, max_batch, reply),
            InferenceRequest::End(over, reply) => {
                // The receiver is gone if the loop was stopped meanwhile.
                let _ = reply.send(self.end(&over));
            }
        }
    }

    fn make(
        &mut self,
        job: &Job,
        env: &EnvSpec,
        folder: PathBuf,
    ) -> Result<PolicyFacts, PolicyError> {
        // Free the memory of the previous policy before the next one is loaded.
        self.made = None;
        let (name, config) = (&job.policy_type, &job.policy_config);
        let (models, lifeline) = (&mut self.models, &self.lifeline);
        let made = policy::using(self.device, || {
            policy::make(name, config, env, models, lifeline)
        });
        self.is_gpu_lost = matches!(made, Err(PolicyError::DeviceLost(_)));
        let mut made = made?;
        let facts = made.facts.clone();
        if let Some(planner) = made.policy.planner() {
            planner.keep_in(folder);
        }
        self.made = Some(made);
        self.failures = FailedRows::default();
        self.face = Arc::new(ActionFace {
            policy: job.policy_type.clone(),
            names: env.action.names.clone(),
        });
        Ok(facts)
    }

    fn infer(&mut self, rows: Vec<PolicyRow>, max_batch: usize, reply: InferenceReply) {
        let started = now();
        let face = Arc::clone(&self.face);
        let give = move |answers: Result<Vec<RowAnswer>, _>, shortage| {
            reply.give(InferenceResult {
                answers,
                took: started.elapsed(),
                shortage,
            });
        };
        let Some(made) = &mut self.made else {
            let none = PolicyError::from(InferenceError::NoPolicy);
            return give(Err(none), Shortage::default());
        };
        if let Some(planner) = made.policy.planner() {
            let give = move |answers: Result<_, _>| {
                give(
                    answers.map(|answers| face.checked(answers)),
                    Shortage::default(),
                );
            };
            planner.act_later(rows, Box::new(give));
            return;
        }
        let answers = policy::using(self.device, || act(made, &rows, max_batch));
        self.is_gpu_lost = matches!(answers, Err(PolicyError::DeviceLost(_)));
        let answers = answers.and_then(|answers| {
            let answers = face.checked(answers);
            self.failures.count(&face.policy, &answers)?;
            Ok(answers)
        });
        give(answers, made.policy.shortage());
    }

    fn end(&mut self, over: &Over) -> Result<Account, PolicyError> {
        let planner = self.made.as_mut().and_then(|made| made.policy.planner());
        planner.map_or(Ok(Account::default()), |planner| planner.end(over))
    }
}

fn act(
    made: &mut Made,
    rows: &[PolicyRow],
    max_batch: usize,
) -> Result<Vec<RowAnswer>, PolicyError> {
    let mut answers = Vec::with_capacity(rows.len());
    for rows in rows.chunks(max_batch.max(1)) {
        answers.extend(made.policy.act(rows)?);
    }
    Ok(answers)
}

/// The policy of a job, and the components of its actions.
#[derive(Debug, Default)]
struct ActionFace {
    policy: String,
    names: Vec<String>,
}

impl ActionFace {
    /// Returns the answers, in which a chunk that no environment can take is a failure of its row.
    fn checked(&self, answers: Vec<RowAnswer>) -> Vec<RowAnswer> {
        answers
            .into_iter()
            .map(|answer| self.refusal(&answer).unwrap_or(answer))
            .collect()
    }

    fn refusal(&self, answer: &RowAnswer) -> Option<RowAnswer> {
        let chunk = answer.chunk()?;
        let name = |at: usize| {
            self.names
                .get(at)
                .cloned()
                .unwrap_or_else(|| at.to_string())
        };
        let checked = check_finite(&self.policy, chunk.values(), chunk.action_dim(), name);
        Some(RowAnswer::Failed(checked.err()?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Chunk, RowError};

    #[test]
    fn a_chunk_that_no_environment_can_take_fails_its_row_alone() {
        let face = ActionFace {
            policy: "pi0_remote".to_owned(),
            names: vec!["x".to_owned(), "gripper".to_owned()],
        };
        let chunk = |last: f32| RowAnswer::Chunk(Chunk::new(2, vec![0.0, 1.0, 2.0, last]));
        let reason = "policy `pi0_remote` gave inf as `gripper` of action 1".to_owned();
        assert_eq!(
            face.checked(vec![chunk(3.0), chunk(f32::INFINITY), RowAnswer::End]),
            [
                chunk(3.0),
                RowAnswer::Failed(RowError(reason)),
                RowAnswer::End
            ]
        );
    }
}
