//! The action head: flow matching, conditioned on the backbone's features and the robot's state.
//!
//! ```text
//! features ─► condition ─► keys and values of every cross-attention block   (once per inference)
//! state ────► state encoder ─► one token
//! actions ──► action encoder ─► T tokens ─► DiT ─► decoder ─► velocity      (once per step, `plan`)
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::Tensor;

use crate::cache::Cache;
use crate::gr00t::config::ModelConfig;
use crate::gr00t::model::prompt::PromptConstants;
use crate::gr00t::{BatchInputs, check_shape};
use crate::nn::note;
use crate::weights::Weights;
use condition::Condition;
use dit::{CrossKeys, Dit};
use embodiment::{CategoryLinear, CategoryMlp};
use time::TimeModulation;

mod condition;
mod dit;
mod embodiment;
mod plan;
mod rtc;
mod time;

pub(super) use plan::SamplerPlan;
pub use rtc::{Rtc, SamplerStart};

const PREFIX: &str = "action_head";

/// Number of combinations of steps and embodiment whose constants are kept.
const REMEMBERED: u64 = 8;

/// All weights after the backbone.
pub(super) struct ActionHead {
    condition: Condition,
    state: CategoryMlp,
    /// Encodes noisy actions and their flow time as tokens: from `max_action_dim` to E, from 2·E
    /// (action and time) to E, and from E to E.
    encoder: [CategoryLinear; 3],
    /// Position embedding, added to the action tokens: `[max_seq_len, E]`.
    position: Option<Tensor>,
    dit: Dit,
    decoder: CategoryMlp,
    config: ModelConfig,
    /// Modulations by number of steps; plans by steps and embodiment.
    times: RefCell<Cache<i64, Rc<Vec<TimeModulation>>>>,
    plans: RefCell<Cache<(i64, i64), Rc<SamplerPlan>>>,
}

/// The values that stay the same while a chunk is denoised.
pub(super) struct Conditions {
    /// Keys and values of the cross-attention blocks.
    keys: Vec<Option<CrossKeys>>,
    /// The state token, `[B, 1, E]`.
    state: Tensor,
}

impl ActionHead {
    pub(super) fn new(weights: &mut Weights, config: &ModelConfig) -> Self {
        let (hidden, embedding) = (config.hidden_size, config.input_embedding_dim);
        let (action, count) = (config.max_action_dim, config.max_num_embodiments);
        let state = config.state_history_length * config.max_state_dim;
        let mut mlp =
            |part: &str, widths: [i64; 3]| CategoryMlp::take(weights, part, count, widths);
        let state = mlp("state_encoder", [state, hidden, embedding]);
        let decoder = mlp("action_decoder", [hidden, hidden, action]);
        let condition = Condition::take(weights, config);
        let encoder = [
            ("W1", [action, embedding]),
            ("W2", [2 * embedding, embedding]),
            ("W3", [embedding, embedding]),
        ];
        let encoder = encoder.map(|(layer, widths)| {
            let name = format!("{PREFIX}.action_encoder.{layer}");
            CategoryLinear::take(weights, &name, count, widths)
        });
        let name = format!("{PREFIX}.position_embedding.weight");
        Self {
            condition,
            state,
            decoder,
            encoder,
            position: config
                .add_pos_embed
                .then(|| weights.take(&name, &[config.max_seq_len, embedding])),
            dit: Dit::take(weights, config),
            config: config.clone(),
            times: RefCell::new(Cache::new(REMEMBERED)),
            plans: RefCell::new(Cache::new(REMEMBERED)),
        }
    }

    /// Checks the inputs of [`Self::pass`] and computes the sampler that it needs.
    pub(super) fn constants(
        &self,
        rows: i64,
        inputs: &BatchInputs,
        noise: &Tensor,
        steps: i64,
    ) -> Result<Rc<SamplerPlan>, Refusal> {
        let config = &self.config;
        let wanted = [rows, config.action_horizon, config.max_action_dim];
        check_shape("noise", noise, &wanted)?;
        let wanted = [rows, config.state_history_length, config.max_state_dim];
        check_shape("state", &inputs.state, &wanted)?;
        let embodiment = inputs.embodiment_id;
        if !(0..config.max_num_embodiments).contains(&embodiment) {
            let last = config.max_num_embodiments - 1;
            return Err(Refusal::new(format_args!(
                "embodiment id is {embodiment}, expected 0 to {last}"
            )));
        }
        let mut times = self.times.borrow_mut();
        let times = times.get_or(steps, || Rc::new(plan::times(self, steps)));
        let mut plans = self.plans.borrow_mut();
        Ok(plans.get_or((steps, embodiment), || {
            Rc::new(SamplerPlan::new(self, times, embodiment))
        }))
    }

    /// Denoises `start` to actions of the same shape, in the dtype of the weights. All tensors are
    /// on the device and have the shapes for which the constants were made.
    pub(super) fn pass(
        &self,
        plan: &SamplerPlan,
        (features, prompt): (&Tensor, &PromptConstants),
        state: &Tensor,
        start: &SamplerStart,
    ) -> Tensor {
        let kind = features.kind();
        let start = SamplerStart {
            actions: start.actions.to_kind(kind),
            strength: start.strength.as_ref().map(|factor| factor.to_kind(kind)),
        };
        let vl = self.condition.forward(features);
        note(format_args!("head.vl_embeds"), &vl, Some(&features.size()));
        let state = state.to_kind(vl.kind()).view([prompt.rows, 1, -1]);
        let state = self.state.forward(plan.embodiment, &state);
        note(format_args!("head.state_features"), &state, None);
        let keys = self.dit.keys(&vl, prompt);
        let actions = plan.run(&self.dit, &Conditions { keys, state }, start);
        note(format_args!("action_pred"), &actions, None);
        actions
    }
}
