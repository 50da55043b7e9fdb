//! The inference thread itself: answers requests until their channel is closed or the GPU is lost.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;

use jobs::job::Job;
use tch::Device;

use crate::clock::now;
use crate::device::gpu;
use crate::env::EnvSpec;
use crate::eval::rollout::inference::request::{
    InferenceReply, InferenceRequest, InferenceResult, PolicyInfo,
};
use crate::policy::{
    self, Account, Checkpoints, Chunk, InferenceError, Lifeline, Made, Over, PolicyError,
    PolicyRow, Shortage,
};
use c10d::cuda;

/// The owner of checkpoints and policy.
pub struct InferenceWorker {
    device: Device,
    lifeline: Lifeline,
    /// The policy of the current job. It is freed before the checkpoints, which stand below.
    made: Option<Made>,
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
                self.tell(|policy| policy.warm_up(rows, max_rows));
            }
            InferenceRequest::Reset(start) => self.tell(|policy| policy.reset(&[start])),
            InferenceRequest::Observe(env, observation) => {
                self.tell(|policy| policy.observe(env, &observation));
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
    ) -> Result<PolicyInfo, PolicyError> {
        // Free the memory of the previous policy before the next one is loaded.
        self.made = None;
        let (name, config) = (&job.policy_type, &job.policy_config);
        let (models, lifeline) = (&mut self.models, &self.lifeline);
        let made = gpu::using(self.device, || {
            policy::make(name, config, env, models, lifeline)
        });
        self.is_gpu_lost = matches!(made, Err(PolicyError::DeviceLost(_)));
        let mut made = made?;
        let info = info(&mut made);
        if let Some(planner) = made.policy.planner() {
            planner.keep_in(folder);
        }
        self.made = Some(made);
        Ok(info)
    }

    /// Tells the policy something that has no answer.
    fn tell(&mut self, tell: impl FnOnce(&mut dyn policy::Policy)) {
        if let Some(made) = &mut self.made {
            tell(made.policy.as_mut());
        }
    }

    fn infer(&mut self, rows: Vec<PolicyRow>, max_batch: usize, reply: InferenceReply) {
        let started = now();
        let give = move |chunks, shortage| {
            reply.give(InferenceResult {
                chunks,
                took: started.elapsed(),
                shortage,
            });
        };
        let Some(made) = &mut self.made else {
            let none = PolicyError::from(InferenceError::NoPolicy);
            return give(Err(none), Shortage::default());
        };
        if let Some(planner) = made.policy.planner() {
            let give = move |chunks| give(chunks, Shortage::default());
            planner.act_later(rows, Box::new(give));
            return;
        }
        let chunks = gpu::using(self.device, || act(made, &rows, max_batch));
        self.is_gpu_lost = matches!(chunks, Err(PolicyError::DeviceLost(_)));
        give(chunks, made.policy.shortage());
    }

    fn end(&mut self, over: &Over) -> Result<Account, PolicyError> {
        let planner = self.made.as_mut().and_then(|made| made.policy.planner());
        planner.map_or(Ok(Account::default()), |planner| planner.end(over))
    }
}

fn act(made: &mut Made, rows: &[PolicyRow], max_batch: usize) -> Result<Vec<Chunk>, PolicyError> {
    let mut chunks = Vec::with_capacity(rows.len());
    for rows in rows.chunks(max_batch.max(1)) {
        chunks.extend(made.policy.act(rows)?);
    }
    Ok(chunks)
}

/// Returns the properties of a policy.
fn info(made: &mut Made) -> PolicyInfo {
    let spec = made.policy.spec();
    let seeds = (0..spec.num_episodes.unwrap_or(0))
        .map(|episode| made.policy.episode_seed(episode))
        .collect();
    let facts = made
        .policy
        .facts()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let (notes, is_planner) = (made.policy.notes(), made.policy.planner().is_some());
    PolicyInfo {
        spec,
        chunk_length: made.chunk_length,
        seeds,
        facts,
        is_planner,
        notes,
        is_remote: made.is_remote,
    }
}
