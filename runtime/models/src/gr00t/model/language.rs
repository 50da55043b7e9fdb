//! The language model: decoder layers up to `select_layer`, without the final norm and without
//! `lm_head`.

use std::cell::OnceCell;
use std::fmt::Arguments;

use tch::{Kind, Tensor};

use crate::gr00t::config::{ModelConfig, TextConfig};
use crate::gr00t::model::prompt::PromptConstants;
use crate::gr00t::model::vision::Images;
use crate::nn::attention::{VisibleKeys, attend};
use crate::nn::layers::{Linear, RmsNorm};
use crate::nn::note;
use crate::nn::rope::TextRope;
use crate::weights::Weights;

const PREFIX: &str = "backbone.model.model.language_model";

/// The language model's token embeddings and decoder layers.
pub(super) struct Language {
    /// `[vocab_size, H]`.
    pub(super) embeddings: Tensor,
    layers: Vec<DecoderLayer>,
    /// The builder of rotary tables.
    pub(super) rope: TextRope,
}

impl Language {
    /// Takes the first `select_layer` layers.
    pub(super) fn new(
        weights: &mut Weights,
        config: &ModelConfig,
        text: &TextConfig,
        buffers: Option<Kind>,
    ) -> Self {
        let name = format!("{PREFIX}.embed_tokens.weight");
        let embeddings = weights.take(&name, &[text.vocab_size, text.hidden_size]);
        let kinds = (buffers.unwrap_or(embeddings.kind()), embeddings.kind());
        let device = embeddings.device();
        Self {
            layers: (0..config.select_layer)
                .map(|i| DecoderLayer::take(weights, &format!("{PREFIX}.layers.{i}"), text))
                .collect(),
            rope: TextRope::new(
                text.rope_theta,
                text.head_dim,
                text.rope_scaling.mrope_section,
                kinds,
                device,
            ),
            embeddings,
        }
    }

    /// Returns the hidden states after the last layer, `[rows, S, H]`, for tokens `ids`,
    /// `[rows·S]`.
    pub(super) fn forward(
        &self,
        ids: &Tensor,
        prompt: &PromptConstants,
        images: &Images,
    ) -> Tensor {
        let shape = [prompt.rows, -1, self.embeddings.size()[1]];
        let see = |name: Arguments<'_>, x: &Tensor| note(name, x, Some(&shape));
        note(format_args!("llm.position_ids"), &prompt.positions, None);
        note(format_args!("llm.rope_cos"), &prompt.tables.0, None);
        note(format_args!("llm.rope_sin"), &prompt.tables.1, None);
        let mut x = Tensor::embedding(&self.embeddings, ids, -1, false, false);
        see(format_args!("llm.token_embeds"), &x);
        if images.tokens.numel() > 0 {
            let _ = x.index_copy_(0, &prompt.image_rows, &images.tokens);
        }
        for (k, layer) in self.layers.iter().enumerate() {
            see(format_args!("llm.layer_in.{k:02}"), &x);
            x = layer.forward(x, prompt);
            see(format_args!("llm.layer_out.{k:02}"), &x);
            if let Some(deep) = images.deepstack.get(k) {
                let _ = x.index_add_(0, &prompt.image_rows, deep);
            }
        }
        x.view(shape)
    }
}

/// One decoder layer.
struct DecoderLayer {
    input_norm: RmsNorm,
    attention: GroupedAttention,
    output_norm: RmsNorm,
    gate_up: Linear,
    down: Linear,
}

impl DecoderLayer {
    fn take(weights: &mut Weights, name: &str, text: &TextConfig) -> Self {
        let (width, inner) = (text.hidden_size, text.intermediate_size);
        let mut norm = |part: &str| {
            RmsNorm::take(weights, &format!("{name}.{part}"), width, text.rms_norm_eps)
        };
        let (input_norm, output_norm) = (norm("input_layernorm"), norm("post_attention_layernorm"));
        let ups = ["gate_proj", "up_proj"].map(|part| (format!("{name}.mlp.{part}"), inner));
        Self {
            input_norm,
            output_norm,
            gate_up: Linear::joint_unbiased(weights, &ups, width),
            attention: GroupedAttention::take(weights, &format!("{name}.self_attn"), text),
            down: Linear::take_unbiased(weights, &format!("{name}.mlp.down_proj"), inner, width),
        }
    }

    /// Maps `[rows·S, H]` to the same shape.
    fn forward(&self, x: Tensor, prompt: &PromptConstants) -> Tensor {
        let normed = self.input_norm.forward(&x);
        let x = self.attention.add_to(x, &normed, prompt);
        let gate_up = self
            .gate_up
            .forward(&self.output_norm.forward(&x))
            .chunk(2, -1);
        self.down.add_to(x, &(gate_up[0].silu() * &gate_up[1]))
    }
}

/// Grouped-query attention with norms on queries and keys.
struct GroupedAttention {
    qkv: Linear,
    q_norm: Tensor,
    k_norm: Tensor,
    eps: f64,
    /// What follows from the weights of the norms.
    norm: OnceCell<HeadNorm>,
    out: Linear,
    heads: i64,
    kv_heads: i64,
    width: i64,
}

/// The norms of query heads and of key heads.
enum HeadNorm {
    /// One norm with a weight for each head.
    Joint(RmsNorm),
    /// One norm without a weight over all heads at once, including the values. The matrices
    /// `[heads, width, 2·width]` then multiply each query and key head by its weight, and also
    /// yield the same result with its halves swapped.
    Spread(Tensor),
}

/// Turns weights `[heads, d]` into matrices `[heads, d, 2·d]`. The product of a vector and such a
/// matrix is the weighted vector followed by the same vector with its halves swapped.
fn spread(weights: &Tensor) -> Tensor {
    let half = weights.size()[1] / 2;
    let diagonal = weights.diag_embed(0, 1, 2);
    Tensor::cat(&[&diagonal, &diagonal.roll([half], [2])], 2)
}

impl GroupedAttention {
    fn take(weights: &mut Weights, name: &str, text: &TextConfig) -> Self {
        let (heads, kv_heads, width) = (
            text.num_attention_heads,
            text.num_key_value_heads,
            text.head_dim,
        );
        let layer = |part: &str, count: i64| (format!("{name}.{part}"), count * width);
        let layers = [
            layer("q_proj", heads),
            layer("k_proj", kv_heads),
            layer("v_proj", kv_heads),
        ];
        let out = format!("{name}.o_proj");
        Self {
            qkv: Linear::joint_unbiased(weights, &layers, text.hidden_size),
            q_norm: weights.take(&format!("{name}.q_norm.weight"), &[width]),
            k_norm: weights.take(&format!("{name}.k_norm.weight"), &[width]),
            eps: text.rms_norm_eps,
            norm: OnceCell::new(),
            out: Linear::take_unbiased(weights, &out, heads * width, text.hidden_size),
            heads,
            kv_heads,
            width,
        }
    }

    /// Returns the norms, with a weight for each query and key head.
    fn head_norm(&self) -> HeadNorm {
        let weight = |norm: &Tensor, heads: i64| norm.expand([heads, self.width], false);
        let weights = [
            weight(&self.q_norm, self.heads),
            weight(&self.k_norm, self.kv_heads),
        ];
        let weights = Tensor::cat(&weights, 0);
        if weights.device().is_cuda() {
            HeadNorm::Spread(spread(&weights))
        } else {
            HeadNorm::Joint(RmsNorm::of(weights, self.eps))
        }
    }

    /// Returns normalised and rotated queries and keys, `[rows, S, heads, width]`.
    fn turned(&self, qkv: &Tensor, norm: &HeadNorm, prompt: &PromptConstants) -> Tensor {
        match norm {
            HeadNorm::Joint(norm) => {
                let heads = qkv.narrow(2, 0, self.heads + self.kv_heads);
                prompt.turn.apply(&norm.forward(&heads))
            }
            HeadNorm::Spread(weights) => self.turn_spread(qkv, weights, prompt),
        }
    }

    /// As [`Self::turned`], in four launches where a GPU would otherwise need seven: the product
    /// that applies the weights also swaps the halves (each of its sums has one term), and heads
    /// are normalised in place.
    fn turn_spread(&self, qkv: &Tensor, weights: &Tensor, prompt: &PromptConstants) -> Tensor {
        let turned = self.heads + self.kv_heads;
        let normed = qkv.rms_norm([self.width], None::<&Tensor>, self.eps);
        let heads = normed
            .view([-1, turned + self.kv_heads, self.width])
            .narrow(1, 0, turned)
            .transpose(0, 1);
        let both = heads
            .bmm(weights)
            .view([turned, prompt.rows, -1, 2 * self.width])
            .permute([1, 2, 0, 3]);
        prompt.turn.apply_swapped(
            &both.narrow(3, 0, self.width),
            &both.narrow(3, self.width, self.width),
        )
    }

    /// Returns `sum` plus the result for `x`, both `[rows·S, H]`.
    fn add_to(&self, sum: Tensor, x: &Tensor, prompt: &PromptConstants) -> Tensor {
        let turned = self.heads + self.kv_heads;
        let qkv = self
            .qkv
            .forward(x)
            .view([prompt.rows, -1, turned + self.kv_heads, self.width]);
        let norm = self.norm.get_or_init(|| self.head_norm());
        let qk = self.turned(&qkv, norm, prompt).transpose(1, 2);
        let v = qkv.narrow(2, turned, self.kv_heads).transpose(1, 2);
        let visible = prompt
            .causal
            .as_ref()
            .map_or(VisibleKeys::Causal, VisibleKeys::Where);
        let (q, k) = (
            qk.narrow(1, 0, self.heads),
            qk.narrow(1, self.heads, self.kv_heads),
        );
        self.out.add_to(sum, &attend(&q, &k, &v, visible))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_weight_gives_the_weighted_vector_and_its_swapped_halves() {
        let weights = Tensor::from_slice(&[2.0f32, 3.0, 5.0, 7.0]).view([1, 4]);
        let x = Tensor::from_slice(&[1.0f32, 10.0, 100.0, 1000.0]).view([1, 1, 4]);
        let found = Vec::<f32>::try_from(x.bmm(&spread(&weights)).view(-1)).unwrap();
        assert_eq!(found, [2.0, 30.0, 500.0, 7000.0, 500.0, 7000.0, 2.0, 30.0]);
    }
}
