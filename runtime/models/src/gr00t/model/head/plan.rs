//! A sampler for one embodiment with everything precomputed that does not depend on the inputs.
//!
//! Two linear layers with nothing between them are multiplied into one: the encoder's first layer
//! and the action half of its second, and the DiT's projection and the decoder's first layer. The
//! time half of the encoder's second layer becomes a bias, the position embedding becomes a bias of
//! its third layer, and the length of a step is multiplied into the decoder's second layer.

use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use crate::gr00t::model::head::dit::{Dit, OUT_EPS};
use crate::gr00t::model::head::rtc::SamplerStart;
use crate::gr00t::model::head::time::{TimeModulation, bucket, sinusoid};
use crate::gr00t::model::head::{ActionHead, Conditions};
use crate::nn::{is_heard, note};
use torchlib::operators;

/// The constants for one number of steps and one embodiment.
pub(in crate::gr00t::model) struct SamplerPlan {
    pub(super) embodiment: i64,
    times: Rc<Vec<TimeModulation>>,
    /// First two encoder layers, from actions to E: `[in, out]`.
    encoder_in: Tensor,
    /// Bias of `encoder_in` for each step, `[E]`.
    encoder_in_bias: Vec<Tensor>,
    /// Third encoder layer, `[out, in]` like the decoder layers.
    encoder_out: Tensor,
    /// Bias plus position embedding of every action token, `[T, E]`.
    token_bias: Tensor,
    decoder_in: Tensor,
    decoder_in_bias: Tensor,
    decoder_out: Tensor,
    decoder_out_bias: Tensor,
}

/// Returns the modulations of every step.
pub(super) fn times(head: &ActionHead, steps: i64) -> Vec<TimeModulation> {
    let (kind, device) = kind_and_device(head);
    let at = |k| {
        let bucket = bucket(k, steps, head.config.num_timestep_buckets, device);
        head.dit.times(&head.dit.time.forward(&bucket, kind))
    };
    (0..steps).map(at).collect()
}

/// Returns dtype and device of the weights.
fn kind_and_device(head: &ActionHead) -> (Kind, Device) {
    let weight = &head.encoder[0].weight;
    (weight.kind(), weight.device())
}

impl SamplerPlan {
    pub(super) fn new(head: &ActionHead, times: Rc<Vec<TimeModulation>>, embodiment: i64) -> Self {
        let (kind, device) = kind_and_device(head);
        let wide = |x: &Tensor| x.to_kind(Kind::Float);
        let narrow = |x: Tensor| x.to_kind(kind);
        let (width, steps) = (head.config.input_embedding_dim, times.len() as i64);

        let encoder = head.encoder.each_ref();
        let [(w1, b1), (w2, b2), (w3, b3)] = encoder.map(|layer| layer.of(embodiment));
        let half = |half: i64| wide(&w2.narrow(0, half * width, width));
        let (action, time) = (half(0), half(1));
        let bias = wide(&b1).unsqueeze(0).mm(&action) + wide(&b2);
        let wave = |k| {
            let bucket = bucket(k, steps, head.config.num_timestep_buckets, device);
            wide(&sinusoid(&bucket, width, kind))
        };
        let position = head
            .position
            .as_ref()
            .map(|position| position.narrow(0, 0, head.config.action_horizon));
        let decoder = head.decoder.layers.each_ref();
        let [(d1, c1), (d2, c2)] = decoder.map(|layer| layer.of(embodiment));
        let (projection, offset) = head.dit.projection.parts();
        let offset = offset.map(|offset| wide(offset).unsqueeze(0).mm(&wide(&d1)));
        let step = 1.0 / steps as f64;
        Self {
            embodiment,
            encoder_in: narrow(wide(&w1).mm(&action)),
            encoder_in_bias: (0..steps)
                .map(|k| narrow((wave(k).mm(&time) + &bias).view(-1)))
                .collect(),
            encoder_out: w3.tr(),
            token_bias: match position {
                Some(position) => position + &b3,
                None => b3.unsqueeze(0).repeat([head.config.action_horizon, 1]),
            },
            decoder_in: narrow(wide(&projection).mm(&wide(&d1))).tr(),
            decoder_in_bias: narrow(
                offset.map_or_else(|| wide(&c1), |offset| (offset + wide(&c1)).view(-1)),
            ),
            decoder_out: (&d2 * step).tr(),
            decoder_out_bias: &c2 * step,
            times,
        }
    }

    /// Denoises `start.actions`, `[B, T, max_action_dim]`.
    pub(super) fn run(&self, dit: &Dit, conditions: &Conditions, start: SamplerStart) -> Tensor {
        let (rows, horizon, action) = start
            .actions
            .size3()
            .expect("actions are [B, T, max_action_dim]");
        let width = self.encoder_out.size()[1];
        let token_bias = self
            .token_bias
            .expand([rows, horizon, width], false)
            .reshape([rows * horizon, width]);
        let strength = start.strength.map(|s| {
            s.expand([rows, horizon, action], false)
                .reshape([-1, action])
        });
        let mut actions = start.actions.reshape([rows * horizon, action]);
        let shape = [rows, horizon, action];
        for (k, (times, bias)) in (0..).zip(self.times.iter().zip(&self.encoder_in_bias)) {
            note(format_args!("step{k}.actions_in"), &actions, Some(&shape));
            let hidden = bias.addmm(&actions, &self.encoder_in).silu();
            let encoded = operators::linear_plus(&token_bias, &hidden, &self.encoder_out, None);
            let x = Tensor::cat(
                &[&conditions.state, &encoded.view([rows, horizon, width])],
                1,
            );
            note(format_args!("step{k}.dit_in"), &x, None);
            let x = x.view([-1, width]);
            let x = dit.blocks(x, times, &conditions.keys, (rows, k));
            let x = x.view([rows, 1 + horizon, width]).narrow(1, 1, horizon);
            let normed = times.out.apply(&x, OUT_EPS).view([-1, width]);
            let hidden = operators::linear_relu(&normed, &self.decoder_in, &self.decoder_in_bias);
            let bias = Some(&self.decoder_out_bias);
            if is_heard() {
                let velocity = hidden.linear(&self.decoder_out, bias) * self.times.len() as f64;
                note(format_args!("step{k}.velocity"), &velocity, Some(&shape));
            }
            actions = match &strength {
                Some(strength) => {
                    actions.addcmul(&hidden.linear(&self.decoder_out, bias), strength)
                }
                None => operators::linear_plus(&actions, &hidden, &self.decoder_out, bias),
            };
        }
        actions.view(shape)
    }
}
