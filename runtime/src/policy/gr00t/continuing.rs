//! Chunks that continue the previous one of their episode (`rtc_ramp_rate`), the real-time
//! chunking of NVIDIA's action head.
//!
//! ```text
//! previous chunk   ● ● ● ● │ ● ● ● ●            taken │ left when the inference begins
//! new chunk                │ ● ● ○ ○ · · · ·    ● frozen: taken before it arrives
//!                                               ○ freed step by step   · from noise
//! ```
//! NVIDIA's policy class has no way to reach this, so a client has to keep the previous chunk,
//! as the network predicted it, and to count the steps. Here the rank does both.

use std::collections::BTreeMap;

use models::gr00t::model::{Rtc, SamplerStart};
use models::gr00t::processor::Processor;
use tch::Tensor;

use crate::env::EnvIndex;
use crate::policy::{PolicyError, PolicyRow, argument};

/// The newest chunk of each environment.
#[derive(Debug)]
pub(super) struct PreviousChunks {
    /// Rate at which the actions that are not frozen become free to change.
    ramp_rate: f64,
    /// As the network has predicted them: `[action_horizon, max_action_dim]`, normalised.
    pub(super) predicted: BTreeMap<EnvIndex, Vec<f32>>,
}

impl PreviousChunks {
    /// Returns an empty set, for chunks that continue each other with this rate.
    ///
    /// # Errors
    /// Returns an error if actions are relative to the state at the observation of their own chunk:
    /// they mean something else in the next one.
    pub fn new(ramp_rate: f64, processor: &Processor) -> Result<Self, PolicyError> {
        if let Some(key) = processor.numbers.relative_keys().first() {
            let wanted = format!(
                "expected none: action `{key}` of the checkpoint is relative to the state at its \
                 own observation, so the next chunk cannot begin with it"
            );
            return Err(argument("rtc_ramp_rate", &ramp_rate.to_string(), &wanted));
        }
        Ok(Self {
            ramp_rate,
            predicted: BTreeMap::new(),
        })
    }

    /// Returns where the denoising of a row starts: from what is left of the first `horizon`
    /// actions of the previous chunk, and then from noise, `[action_horizon, max_action_dim]`.
    pub fn start(&self, row: &PolicyRow, noise: &Tensor, horizon: usize) -> SamplerStart {
        let (previous, overlap, delay) = match (row.continues, self.predicted.get(&row.env)) {
            (Some(continues), Some(predicted)) => (
                Tensor::from_slice(predicted).view_as(noise),
                horizon.saturating_sub(continues.steps),
                continues.delay,
            ),
            _ => (noise.shallow_clone(), 0, 0),
        };
        let rtc = Rtc {
            previous: &previous,
            action_horizon: horizon as i64,
            overlap_steps: overlap as i64,
            frozen_steps: delay.min(overlap) as i64,
            ramp_rate: self.ramp_rate,
        };
        SamplerStart::after(noise, &rtc)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use tch::Device;

    use crate::env::{EnvIndex, EnvSpec, Observation};
    use crate::policy::tests::{chunks, env_with, frame};
    use crate::policy::{
        Checkpoints, Chunk, Continuation, Lifeline, Policy, PolicyRow, Window, make,
    };

    const SIZE: [u32; 2] = [96, 96];

    fn env() -> EnvSpec {
        let mut env = env_with(&["front", "wrist"], SIZE);
        // The demo's policy was trained with both fingers.
        for (name, width) in &mut env.state {
            if name == "gripper_position" {
                *width = 2;
            }
        }
        env
    }

    /// Returns the demo's policy, whose chunks have 8 actions, in an episode.
    fn policy(rtc: Value) -> Box<dyn Policy> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites/demo_policy");
        let config = json!({"model_path": path, "rtc_ramp_rate": rtc});
        let config: serde_json::Map<_, _> = config.as_object().unwrap().clone();
        let config = config.into_iter().filter(|(_, value)| !value.is_null());
        let (mut models, lifeline) = (
            Checkpoints::new(Device::Cpu, Lifeline::alone()),
            Lifeline::alone(),
        );
        let made = make(
            "gr00t",
            &config.collect(),
            Some(&env()),
            &mut models,
            &lifeline,
        );
        made.map_err(|err| err.to_string()).unwrap().policy
    }

    fn row(level: u8, continues: Option<Continuation>) -> PolicyRow {
        let mut seen = Observation::default();
        for (key, width) in env().interface.state {
            seen.state
                .insert(key, vec![f32::from(level) / 500.0; width]);
        }
        for camera in env().interface.cameras {
            seen.video.insert(camera.name, frame(SIZE, level));
        }
        seen.language = "reach".into();
        PolicyRow {
            env: EnvIndex(0),
            episode: 0,
            seed: 7,
            inference: 0,
            window: Window::new(Arc::new(seen)),
            continues,
            noise: None,
        }
    }

    fn after(steps: usize, delay: usize) -> Option<Continuation> {
        Some(Continuation { steps, delay })
    }

    fn act(policy: &mut dyn Policy, row: PolicyRow) -> Chunk {
        chunks(policy.act(&[row])).remove(0)
    }

    /// Asserts that two chunks differ by no more than rounding: a test beside this one may change
    /// the number of libtorch's threads.
    fn assert_alike(one: &Chunk, other: &Chunk) {
        assert_eq!(one.horizon(), other.horizon());
        for index in 0..one.horizon() {
            let [one, other] = [one, other].map(|chunk| chunk.action(index).unwrap());
            let pairs = one.iter().zip(other);
            assert!(
                pairs.clone().all(|(a, b)| (a - b).abs() < 1e-4),
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn a_new_chunk_begins_with_what_is_taken_of_the_previous_one_before_it_arrives() {
        let mut policy = policy(json!(5.0));
        let first = act(policy.as_mut(), row(40, None));
        let second = act(policy.as_mut(), row(200, after(3, 2)));
        assert_eq!(second.action(0), first.action(3));
        assert_eq!(second.action(1), first.action(4));
        assert_ne!(second.action(2), first.action(5), "it is free to change");
        let third = act(policy.as_mut(), row(90, after(4, 4)));
        for index in 0..4 {
            assert_eq!(third.action(index), second.action(4 + index));
        }
    }

    #[test]
    fn the_first_chunk_of_an_episode_continues_nothing() {
        let mut policy = policy(json!(5.0));
        let first = act(policy.as_mut(), row(40, None));
        act(policy.as_mut(), row(200, after(4, 4)));
        assert_alike(&act(policy.as_mut(), row(40, None)), &first);
    }

    #[test]
    fn without_the_setting_chunks_do_not_depend_on_each_other() {
        let mut policy = policy(Value::Null);
        act(policy.as_mut(), row(40, None));
        let second = act(policy.as_mut(), row(200, after(4, 4)));
        act(policy.as_mut(), row(90, None));
        assert_alike(&act(policy.as_mut(), row(200, None)), &second);
    }
}
