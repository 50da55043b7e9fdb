//! The action head: flow matching, conditioned on the backbone's features and the robot's state.
//!
//! ```text
//! features ─► condition ─► keys and values of every cross-attention block   (once per inference)
//! state ────► state encoder ─► one token
//! actions ──► action encoder ─► T tokens ─► DiT ─► decoder ─► velocity      (once per step)
//! ```

use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::{Device, Tensor};

use crate::config::ModelConfig;
use crate::inputs::check_shape;
use crate::model::attention::Heads;
use crate::model::memo::Memo;
use crate::model::tap::{NoTap, Tap, note};
use crate::model::{Features, Robot};
use crate::weights::Weights;
use category::{CategoryMlp, Embodiments};
use condition::Condition;
use cross::CrossKeys;
use dit::Dit;
use encoder::ActionEncoder;
use modulation::TimeModulation;
use plan::SamplerPlan;

mod category;
mod condition;
mod cross;
mod dit;
mod encoder;
mod modulation;
mod plan;
mod rtc;
mod time;

pub use rtc::{Rtc, SamplerStart};

const PREFIX: &str = "action_head";

/// Number of combinations of steps and embodiment whose constants are kept.
const REMEMBERED: usize = 8;

/// All weights after the backbone.
#[derive(Debug)]
pub struct ActionHead {
    condition: Condition,
    state: CategoryMlp,
    encoder: ActionEncoder,
    /// Position embedding, added to the action tokens: `[max_seq_len, E]`.
    position: Option<Tensor>,
    dit: Dit,
    decoder: CategoryMlp,
    sizes: HeadSizes,
    /// Modulations by number of steps; plans by steps and embodiment.
    times: Memo<i64, Rc<Vec<TimeModulation>>>,
    plans: Memo<(i64, i64), Rc<SamplerPlan>>,
    is_fused: bool,
}

/// The sizes that the head needs and checks.
#[derive(Clone, Copy, Debug)]
struct HeadSizes {
    history: i64,
    state: i64,
    horizon: i64,
    action: i64,
    embedding: i64,
    embodiments: i64,
    buckets: i64,
}

/// Options of the sampler.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOptions<'a> {
    /// Number of Euler steps.
    pub steps: i64,
    /// Options for continuing a chunk that is already being executed.
    pub rtc: Option<Rtc<'a>>,
}

/// The values that stay the same while a chunk is denoised.
#[derive(Debug)]
pub struct Conditions {
    /// Keys and values of the cross-attention blocks.
    keys: Vec<Option<CrossKeys>>,
    /// The state token, `[B, 1, E]`.
    state: Tensor,
    embodiments: Rc<Embodiments>,
}

/// The constants of the head for a batch shape.
#[derive(Debug)]
pub(super) struct HeadConstants {
    embodiments: Rc<Embodiments>,
    /// The precomputed sampler, if all rows have the same embodiment and the head is fused.
    plan: Option<Rc<SamplerPlan>>,
    steps: i64,
}

impl ActionHead {
    pub(super) fn new(weights: &mut Weights, config: &ModelConfig) -> Self {
        let sizes = HeadSizes {
            history: config.state_history_length,
            state: config.max_state_dim,
            horizon: config.action_horizon,
            action: config.max_action_dim,
            embedding: config.input_embedding_dim,
            embodiments: config.max_num_embodiments,
            buckets: config.num_timestep_buckets,
        };
        let (hidden, embedding) = (config.hidden_size, sizes.embedding);
        let mut mlp = |part: &str, widths: [i64; 3]| {
            CategoryMlp::take(
                weights,
                &format!("{PREFIX}.{part}"),
                sizes.embodiments,
                widths,
            )
        };
        let state = mlp(
            "state_encoder",
            [sizes.history * sizes.state, hidden, embedding],
        );
        let decoder = mlp("action_decoder", [hidden, hidden, sizes.action]);
        let name = format!("{PREFIX}.position_embedding.weight");
        Self {
            condition: Condition::take(weights, config),
            state,
            decoder,
            encoder: ActionEncoder::take(weights, sizes.embodiments, [sizes.action, embedding]),
            position: config
                .add_pos_embed
                .then(|| weights.take(&name, &[config.max_seq_len, embedding])),
            dit: Dit::take(weights, config),
            sizes,
            times: Memo::new(REMEMBERED),
            plans: Memo::new(REMEMBERED),
            is_fused: false,
        }
    }

    pub(super) fn make_lean(&mut self) {
        self.condition.make_lean();
        self.dit.make_lean();
        self.is_fused = true;
    }

    /// Computes everything that does not depend on the actions.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if state or embodiments do not fit the model.
    pub fn conditions(
        &self,
        features: &Features,
        robot: &Robot<'_>,
        tap: &mut dyn Tap,
    ) -> Result<Conditions, Refusal> {
        let device = features.features.device();
        let embodiments = self.embodiments(features.prompt.rows, robot, device)?;
        Ok(self.conditions_of(features, &robot.state.to_device(device), embodiments, tap))
    }

    /// Returns the embodiments of `rows` samples after checking the shape of the state.
    fn embodiments(
        &self,
        rows: i64,
        robot: &Robot<'_>,
        device: Device,
    ) -> Result<Rc<Embodiments>, Refusal> {
        check_shape(
            "state",
            robot.state,
            &[rows, self.sizes.history, self.sizes.state],
        )?;
        check_shape("embodiment_id", robot.embodiment_id, &[rows])?;
        Embodiments::new(robot.embodiment_id, self.sizes.embodiments, device).map(Rc::new)
    }

    fn conditions_of(
        &self,
        features: &Features,
        state: &Tensor,
        embodiments: Rc<Embodiments>,
        tap: &mut dyn Tap,
    ) -> Conditions {
        let vl = self.condition.forward(&features.features, tap);
        note(
            tap,
            format_args!("head.vl_embeds"),
            &vl,
            Some(&features.features.size()),
        );
        let state = self.state.forward(
            &state.to_kind(vl.kind()).view([features.prompt.rows, 1, -1]),
            &embodiments,
        );
        note(tap, format_args!("head.state_features"), &state, None);
        Conditions {
            keys: self.dit.keys(&vl, &features.prompt, self.is_fused),
            state,
            embodiments,
        }
    }

    /// Returns the velocity of the flow at `actions` (`[B, action_horizon, max_action_dim]`, same
    /// shape returned). Each row is at its own time `bucket` (`[B]`, `i64`, below
    /// `num_timestep_buckets`).
    pub fn velocity(
        &self,
        conditions: &Conditions,
        actions: &Tensor,
        bucket: &Tensor,
        tap: &mut dyn Tap,
    ) -> Tensor {
        self.step(conditions, actions, bucket, (0, tap))
    }

    fn step(
        &self,
        conditions: &Conditions,
        actions: &Tensor,
        bucket: &Tensor,
        at: (i64, &mut dyn Tap),
    ) -> Tensor {
        let (k, tap) = at;
        let rows = actions.size()[0];
        let temb = self.dit.time.forward(bucket, actions.kind());
        note(tap, format_args!("step{k}.temb"), &temb, None);
        let encoded = self
            .encoder
            .forward(actions, bucket, &conditions.embodiments);
        note(tap, format_args!("step{k}.action_encoder"), &encoded, None);
        let tokens = match &self.position {
            Some(position) => encoded + position.narrow(0, 0, self.sizes.horizon),
            None => encoded,
        };
        let x = Tensor::cat(&[&conditions.state, &tokens], 1);
        note(tap, format_args!("step{k}.dit_in"), &x, None);
        let times = self.dit.times(&temb);
        let x = self.dit.blocks(
            x.view([-1, self.sizes.embedding]),
            &times,
            &conditions.keys,
            (rows, k, &mut *tap),
        );
        let out = self
            .dit
            .out(&x, &times.out, rows)
            .view([rows, 1 + self.sizes.horizon, -1]);
        note(tap, format_args!("step{k}.dit_out"), &out, None);
        let velocity =
            self.decoder
                .forward(&out, &conditions.embodiments)
                .narrow(1, 1, self.sizes.horizon);
        note(tap, format_args!("step{k}.velocity"), &velocity, None);
        velocity
    }

    pub(super) fn actions(
        &self,
        features: &Features,
        robot: &Robot<'_>,
        noise: &Tensor,
        options: &SamplerOptions<'_>,
        tap: &mut dyn Tap,
    ) -> Result<Tensor, Refusal> {
        self.check_noise(noise, features.prompt.rows)?;
        let noise = noise
            .to_device(features.features.device())
            .to_kind(features.features.kind());
        let start = SamplerStart::new(noise, options.rtc.as_ref())?;
        let conditions = self.conditions(features, robot, tap)?;
        let actions = match self.plan(options.steps, &conditions.embodiments) {
            Some(plan) => plan.run(&self.dit, &conditions, start),
            None => self.euler(&conditions, start, options.steps, tap),
        };
        note(tap, format_args!("action_pred"), &actions, None);
        Ok(actions)
    }

    /// Checks the inputs of [`Self::pass`] and computes the constants that it needs.
    pub(super) fn constants(
        &self,
        rows: i64,
        robot: &Robot<'_>,
        noise: &Tensor,
        (steps, device): (i64, Device),
    ) -> Result<HeadConstants, Refusal> {
        self.check_noise(noise, rows)?;
        let embodiments = self.embodiments(rows, robot, device)?;
        Ok(HeadConstants {
            plan: self.plan(steps, &embodiments),
            embodiments,
            steps,
        })
    }

    /// As [`Self::actions`], for data that is already on the device: `state` and `start` must have
    /// the shapes for which the constants were made.
    pub(super) fn pass(
        &self,
        constants: &HeadConstants,
        features: &Features,
        state: &Tensor,
        start: &SamplerStart,
    ) -> Tensor {
        let kind = features.features.kind();
        let start = SamplerStart {
            actions: start.actions.to_kind(kind),
            strength: start.strength.as_ref().map(|factor| factor.to_kind(kind)),
        };
        let conditions = self.conditions_of(
            features,
            state,
            Rc::clone(&constants.embodiments),
            &mut NoTap,
        );
        match &constants.plan {
            Some(plan) => plan.run(&self.dit, &conditions, start),
            None => self.euler(&conditions, start, constants.steps, &mut NoTap),
        }
    }

    fn check_noise(&self, noise: &Tensor, rows: i64) -> Result<(), Refusal> {
        check_shape(
            "noise",
            noise,
            &[rows, self.sizes.horizon, self.sizes.action],
        )
    }

    fn euler(
        &self,
        conditions: &Conditions,
        start: SamplerStart,
        steps: i64,
        tap: &mut dyn Tap,
    ) -> Tensor {
        let SamplerStart {
            mut actions,
            strength,
        } = start;
        for k in 0..steps {
            note(tap, format_args!("step{k}.actions_in"), &actions, None);
            let bucket = time::bucket(
                k,
                steps,
                self.sizes.buckets,
                (actions.size()[0], actions.device()),
            );
            let moved =
                self.step(conditions, &actions, &bucket, (k, &mut *tap)) * (1.0 / steps as f64);
            actions = match &strength {
                Some(strength) => actions + moved * strength,
                None => actions + moved,
            };
        }
        actions
    }

    /// Returns the precomputed sampler if the head is fused and all rows have the same embodiment.
    fn plan(&self, steps: i64, embodiments: &Embodiments) -> Option<Rc<SamplerPlan>> {
        let embodiment = embodiments.only.filter(|_| self.is_fused)?;
        let times = self
            .times
            .get_or(steps, |&steps| Rc::new(plan::times(self, steps)));
        Some(self.plans.get_or((steps, embodiment), |_| {
            Rc::new(SamplerPlan::new(self, times, embodiment))
        }))
    }
}

/// Returns the attention heads of the DiT.
fn dit_heads(config: &ModelConfig) -> Heads {
    let dit = &config.diffusion_model_cfg;
    Heads {
        count: dit.num_attention_heads,
        width: dit.attention_head_dim,
    }
}
