//! The sizes of a network with random weights. All have the released depth, so that they launch the
//! same number of operators.

use models::gr00t::{
    DiffusionConfig, ModelConfig, RopeScaling, TextConfig, VisionConfig, VlSelfAttention, VlmConfig,
};

/// Size of a network.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Size {
    /// The released network: 3.14 B parameters.
    Full,
    /// About a quarter of the released widths: 160 M parameters.
    #[value(name = "160m")]
    Middle,
    /// Widths of a few dozen: 1.5 M parameters.
    Tiny,
}

impl Size {
    /// Returns the configurations of the network and of its backbone. The token ids are those of
    /// the small tokenizer.
    pub fn configs(self) -> (ModelConfig, VlmConfig) {
        let vlm = VlmConfig {
            image_token_id: 668,
            video_token_id: 669,
            vision_start_token_id: 665,
            vision_end_token_id: 666,
            ..VlmConfig::released()
        };
        match self {
            Self::Full => (ModelConfig::released(), vlm),
            Self::Middle => MIDDLE.configs(vlm),
            Self::Tiny => tiny(vlm),
        }
    }
}

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

const MIDDLE: Widths = Widths {
    text: [512, 8, 64, 1536],
    mrope: [12, 10, 10],
    vision: [256, 8, 1024],
    hidden: 256,
    dit: [8, 48],
};

const TINY: Widths = Widths {
    text: [48, 4, 16, 96],
    mrope: [4, 2, 2],
    vision: [24, 2, 48],
    hidden: 40,
    dit: [4, 10],
};

impl Widths {
    fn configs(&self, vlm: VlmConfig) -> (ModelConfig, VlmConfig) {
        let [width, heads, head_dim, intermediate_size] = self.text;
        let text = TextConfig {
            hidden_size: width,
            num_attention_heads: heads,
            num_key_value_heads: heads / 2,
            head_dim,
            intermediate_size,
            rope_scaling: RopeScaling {
                mrope_section: self.mrope,
            },
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
        let vlm = VlmConfig {
            text,
            vision,
            ..vlm
        };
        (model, vlm)
    }
}

/// Shortens what else takes time: position tables, states, actions, and chunks.
fn tiny(vlm: VlmConfig) -> (ModelConfig, VlmConfig) {
    let (model, mut vlm) = TINY.configs(vlm);
    vlm.vision.num_position_embeddings = 144;
    let model = ModelConfig {
        max_state_dim: 20,
        max_action_dim: 18,
        action_horizon: 16,
        max_seq_len: 64,
        max_num_embodiments: 3,
        ..model
    };
    (model, vlm)
}
