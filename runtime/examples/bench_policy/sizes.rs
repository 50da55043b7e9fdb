//! The sizes of the network that are measured. All have the released depth, horizon and number of
//! steps, and therefore the same number of operators.

use gr00t::{DiffusionConfig, ModelConfig, TextConfig, VisionConfig, VlSelfAttention, VlmConfig};

/// Widths and heads of every part, from which the other sizes follow.
struct Widths {
    /// Language model: width, query heads (twice the key heads), width of a head, width of the MLP.
    text: [i64; 4],
    /// Rotary frequencies per axis; they add up to half the width of a head.
    mrope: [i64; 3],
    /// Vision tower: width, heads, width of the MLP.
    vision: [i64; 3],
    /// Hidden width of the embodiment MLPs.
    hidden: i64,
    /// Action transformer: number of heads, width of a head.
    dit: [i64; 2],
}

/// Returns the configuration of `tiny` (widths of 32) or `160m` (about a quarter of the released
/// widths); `None` for another name.
pub fn of(size: &str) -> Option<(ModelConfig, VlmConfig)> {
    let widths = match size {
        "tiny" => Widths {
            text: [32, 4, 8, 96],
            mrope: [2, 1, 1],
            vision: [32, 2, 64],
            hidden: 32,
            dit: [4, 8],
        },
        "160m" => Widths {
            text: [512, 8, 64, 1536],
            mrope: [12, 10, 10],
            vision: [256, 8, 1024],
            hidden: 256,
            dit: [8, 48],
        },
        _ => return None,
    };
    Some(widths.configs())
}

impl Widths {
    fn configs(&self) -> (ModelConfig, VlmConfig) {
        let vlm = VlmConfig::released();
        let [width, heads, head_dim, intermediate_size] = self.text;
        let text = TextConfig {
            hidden_size: width,
            num_attention_heads: heads,
            num_key_value_heads: heads / 2,
            head_dim,
            intermediate_size,
            mrope_section: self.mrope,
            vocab_size: 704,
            ..vlm.text
        };
        let [hidden_size, num_heads, intermediate_size] = self.vision;
        let vision = VisionConfig {
            hidden_size,
            num_heads,
            intermediate_size,
            out_hidden_size: width,
            ..vlm.vision
        };
        let [dit_heads, dit_head_dim] = self.dit;
        let released = ModelConfig::released();
        let model = ModelConfig {
            backbone_embedding_dim: width,
            hidden_size: self.hidden,
            input_embedding_dim: dit_heads * dit_head_dim,
            max_num_embodiments: 8,
            vl_self_attention_cfg: Some(VlSelfAttention {
                num_layers: 4,
                num_attention_heads: heads,
                attention_head_dim: width / heads,
            }),
            diffusion_model_cfg: DiffusionConfig {
                num_attention_heads: dit_heads,
                attention_head_dim: dit_head_dim,
                output_dim: self.hidden,
                ..released.diffusion_model_cfg
            },
            ..released
        };
        let ids = [668, 669, 665, 666];
        let [
            image_token_id,
            video_token_id,
            vision_start_token_id,
            vision_end_token_id,
        ] = ids;
        let vlm = VlmConfig {
            image_token_id,
            video_token_id,
            vision_start_token_id,
            vision_end_token_id,
            text,
            vision,
        };
        (model, vlm)
    }
}
