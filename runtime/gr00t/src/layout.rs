//! Lists every tensor of a checkpoint, with name and shape, from the configuration alone.
//!
//! Linear weights are `[out, in]`. Embodiment-specific weights (`W`, `b`) are `[embodiment, in,
//! out]` and `[embodiment, out]`.

use crate::{ModelConfig, VlmConfig};

/// Name prefix of the vision tower.
pub const VISION: &str = "backbone.model.model.visual";
/// Name prefix of the language model.
pub const LANGUAGE: &str = "backbone.model.model.language_model";
/// Name prefix of the action head.
pub const HEAD: &str = "action_head";
/// The token embedding table, which a checkpoint may store as [`LM_HEAD`] instead.
pub const EMBED_TOKENS: &str = "backbone.model.model.language_model.embed_tokens.weight";
/// Output layer of the language model: tied to the token embedding table and not used.
pub const LM_HEAD: &str = "backbone.model.lm_head.weight";
/// Last norm of the language model; GR00T takes the features before it.
pub const FINAL_NORM: &str = "backbone.model.model.language_model.norm.weight";
/// Training state found in a derivative of N1.7.
const DROPOUT: &str = "action_head.dropout_prob_by_embodiment";

/// Width of the sinusoid that encodes the sampler's time.
const TIME_FREQUENCIES: i64 = 256;

/// Name and shape of a tensor.
pub type Spec = (String, Vec<i64>);

/// Returns whether a checkpoint may contain this tensor although the network does not use it.
pub fn is_redundant(name: &str) -> bool {
    [LM_HEAD, FINAL_NORM, DROPOUT].contains(&name)
}

/// Returns the tensors that the network needs, in the order of the computation.
pub fn tensors(model: &ModelConfig, vlm: &VlmConfig) -> Vec<Spec> {
    let mut layout = LayoutSpecs(Vec::new());
    layout.vision(vlm);
    layout.language(model, vlm);
    layout.condition(model);
    layout.embodiment(model);
    layout.transformer(model);
    layout.0
}

struct LayoutSpecs(Vec<Spec>);

impl LayoutSpecs {
    fn vision(&mut self, vlm: &VlmConfig) {
        let vision = &vlm.vision;
        let (width, mlp) = (vision.hidden_size, vision.intermediate_size);
        let (frames, edge) = (vision.temporal_patch_size, vision.patch_size);
        self.add(
            format!("{VISION}.patch_embed.proj.weight"),
            &[width, vision.in_channels, frames, edge, edge],
        );
        self.add(format!("{VISION}.patch_embed.proj.bias"), &[width]);
        self.add(
            format!("{VISION}.pos_embed.weight"),
            &[vision.num_position_embeddings, width],
        );
        for block in (0..vision.depth).map(|at| format!("{VISION}.blocks.{at}")) {
            self.norm(&format!("{block}.norm1"), width);
            self.linear(&format!("{block}.attn.qkv"), width, 3 * width);
            self.linear(&format!("{block}.attn.proj"), width, width);
            self.norm(&format!("{block}.norm2"), width);
            self.linear(&format!("{block}.mlp.linear_fc1"), width, mlp);
            self.linear(&format!("{block}.mlp.linear_fc2"), mlp, width);
        }
        let (merged, out) = (vision.merged_size(), vision.out_hidden_size);
        let deepstack = (0..vision.deepstack_visual_indexes.len())
            .map(|at| format!("deepstack_merger_list.{at}"));
        // The last merger normalises single patches; the deepstack mergers normalise merged ones.
        for (merger, norm) in deepstack
            .map(|name| (name, merged))
            .chain([("merger".to_owned(), width)])
        {
            self.norm(&format!("{VISION}.{merger}.norm"), norm);
            self.linear(&format!("{VISION}.{merger}.linear_fc1"), merged, merged);
            self.linear(&format!("{VISION}.{merger}.linear_fc2"), merged, out);
        }
    }

    fn language(&mut self, model: &ModelConfig, vlm: &VlmConfig) {
        let text = &vlm.text;
        let (width, mlp, head) = (text.hidden_size, text.intermediate_size, text.head_dim);
        let (queries, keys) = (
            text.num_attention_heads * head,
            text.num_key_value_heads * head,
        );
        self.add(EMBED_TOKENS.to_owned(), &[text.vocab_size, width]);
        for layer in (0..model.select_layer).map(|at| format!("{LANGUAGE}.layers.{at}")) {
            self.add(format!("{layer}.input_layernorm.weight"), &[width]);
            self.add(
                format!("{layer}.self_attn.q_proj.weight"),
                &[queries, width],
            );
            self.add(format!("{layer}.self_attn.k_proj.weight"), &[keys, width]);
            self.add(format!("{layer}.self_attn.v_proj.weight"), &[keys, width]);
            self.add(
                format!("{layer}.self_attn.o_proj.weight"),
                &[width, queries],
            );
            self.add(format!("{layer}.self_attn.q_norm.weight"), &[head]);
            self.add(format!("{layer}.self_attn.k_norm.weight"), &[head]);
            self.add(format!("{layer}.post_attention_layernorm.weight"), &[width]);
            self.add(format!("{layer}.mlp.gate_proj.weight"), &[mlp, width]);
            self.add(format!("{layer}.mlp.up_proj.weight"), &[mlp, width]);
            self.add(format!("{layer}.mlp.down_proj.weight"), &[width, mlp]);
        }
    }

    fn condition(&mut self, model: &ModelConfig) {
        let width = model.backbone_embedding_dim;
        if model.use_vlln {
            self.norm(&format!("{HEAD}.vlln"), width);
        }
        let blocks = model
            .vl_self_attention_cfg
            .as_ref()
            .map_or(0, |attention| attention.num_layers);
        for block in
            (0..blocks).map(|at| format!("{HEAD}.vl_self_attention.transformer_blocks.{at}"))
        {
            self.norm(&format!("{block}.norm1"), width);
            self.attention(&block, width, width);
            self.norm(&format!("{block}.norm3"), width);
            self.feed_forward(&block, width);
        }
    }

    fn embodiment(&mut self, model: &ModelConfig) {
        let (width, inner, action) = (
            model.input_embedding_dim,
            model.hidden_size,
            model.max_action_dim,
        );
        let state = model.max_state_dim * model.state_history_length;
        let mut category = |name: &str, inputs, outputs| {
            self.add(
                format!("{HEAD}.{name}.W"),
                &[model.max_num_embodiments, inputs, outputs],
            );
            self.add(
                format!("{HEAD}.{name}.b"),
                &[model.max_num_embodiments, outputs],
            );
        };
        category("state_encoder.layer1", state, inner);
        category("state_encoder.layer2", inner, width);
        category("action_encoder.W1", action, width);
        category("action_encoder.W2", 2 * width, width);
        category("action_encoder.W3", width, width);
        category("action_decoder.layer1", inner, inner);
        category("action_decoder.layer2", inner, action);
        if model.add_pos_embed {
            self.add(
                format!("{HEAD}.position_embedding.weight"),
                &[model.max_seq_len, width],
            );
        }
    }

    fn transformer(&mut self, model: &ModelConfig) {
        let (width, dit) = (model.input_embedding_dim, &model.diffusion_model_cfg);
        let time = format!("{HEAD}.model.timestep_encoder.timestep_embedder");
        self.linear(&format!("{time}.linear_1"), TIME_FREQUENCIES, width);
        self.linear(&format!("{time}.linear_2"), width, width);
        for at in 0..dit.num_layers {
            let block = format!("{HEAD}.model.transformer_blocks.{at}");
            let is_self = dit.interleave_self_attention && at % 2 == 1;
            self.linear(&format!("{block}.norm1.linear"), width, 2 * width);
            self.attention(
                &block,
                width,
                if is_self {
                    width
                } else {
                    model.backbone_embedding_dim
                },
            );
            self.feed_forward(&block, width);
        }
        self.linear(&format!("{HEAD}.model.proj_out_1"), width, 2 * width);
        self.linear(&format!("{HEAD}.model.proj_out_2"), width, dit.output_dim);
    }

    /// Adds the attention layers of a block: inputs of `width`, keys and values computed from
    /// inputs of width `keys`.
    fn attention(&mut self, block: &str, width: i64, keys: i64) {
        self.linear(&format!("{block}.attn1.to_q"), width, width);
        self.linear(&format!("{block}.attn1.to_k"), keys, width);
        self.linear(&format!("{block}.attn1.to_v"), keys, width);
        self.linear(&format!("{block}.attn1.to_out.0"), width, width);
    }

    fn feed_forward(&mut self, block: &str, width: i64) {
        self.linear(&format!("{block}.ff.net.0.proj"), width, 4 * width);
        self.linear(&format!("{block}.ff.net.2"), 4 * width, width);
    }

    fn linear(&mut self, name: &str, inputs: i64, outputs: i64) {
        self.add(format!("{name}.weight"), &[outputs, inputs]);
        self.add(format!("{name}.bias"), &[outputs]);
    }

    fn norm(&mut self, name: &str, width: i64) {
        self.add(format!("{name}.weight"), &[width]);
        self.add(format!("{name}.bias"), &[width]);
    }

    fn add(&mut self, name: String, shape: &[i64]) {
        self.0.push((name, shape.to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(specs: &[Spec]) -> i64 {
        specs
            .iter()
            .map(|(_, shape)| shape.iter().product::<i64>())
            .sum()
    }

    #[test]
    fn the_released_network_has_its_published_size() {
        let specs = tensors(&ModelConfig::released(), &VlmConfig::released());
        assert_eq!(parameters(&specs) / 1_000_000, 3_144);
    }

    #[test]
    fn no_name_is_there_twice() {
        let specs = tensors(&ModelConfig::released(), &VlmConfig::released());
        let names: std::collections::BTreeSet<_> = specs.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), specs.len());
    }
}
