//! The sizes of a random checkpoint. All have the released depth, so that they launch the same
//! number of operators.

use gr00t::{DiffusionConfig, ModelConfig, TextConfig, VisionConfig, VlSelfAttention, VlmConfig};

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
            Self::Middle => middle(vlm),
            Self::Tiny => tiny(vlm),
        }
    }
}

fn middle(released: VlmConfig) -> (ModelConfig, VlmConfig) {
    let text = TextConfig {
        hidden_size: 512,
        num_attention_heads: 8,
        num_key_value_heads: 4,
        head_dim: 64,
        intermediate_size: 1536,
        mrope_section: [12, 10, 10],
        vocab_size: 704,
        ..released.text
    };
    let vision = VisionConfig {
        hidden_size: 256,
        num_heads: 8,
        intermediate_size: 1024,
        out_hidden_size: 512,
        ..released.vision
    };
    let model = ModelConfig {
        backbone_embedding_dim: 512,
        hidden_size: 256,
        input_embedding_dim: 384,
        max_num_embodiments: 8,
        vl_self_attention_cfg: Some(VlSelfAttention {
            num_layers: 4,
            num_attention_heads: 8,
            attention_head_dim: 64,
        }),
        diffusion_model_cfg: DiffusionConfig {
            num_layers: 32,
            num_attention_heads: 8,
            attention_head_dim: 48,
            output_dim: 256,
            interleave_self_attention: true,
        },
        ..ModelConfig::released()
    };
    (
        model,
        VlmConfig {
            text,
            vision,
            ..released
        },
    )
}

fn tiny(released: VlmConfig) -> (ModelConfig, VlmConfig) {
    let text = TextConfig {
        hidden_size: 48,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 16,
        intermediate_size: 96,
        mrope_section: [4, 2, 2],
        vocab_size: 704,
        ..released.text
    };
    let vision = VisionConfig {
        hidden_size: 24,
        num_heads: 2,
        intermediate_size: 48,
        num_position_embeddings: 144,
        out_hidden_size: 48,
        ..released.vision
    };
    let model = ModelConfig {
        backbone_embedding_dim: 48,
        max_state_dim: 20,
        max_action_dim: 18,
        action_horizon: 16,
        hidden_size: 40,
        input_embedding_dim: 40,
        max_seq_len: 64,
        max_num_embodiments: 3,
        vl_self_attention_cfg: Some(VlSelfAttention {
            num_layers: 4,
            num_attention_heads: 4,
            attention_head_dim: 12,
        }),
        diffusion_model_cfg: DiffusionConfig {
            num_layers: 32,
            num_attention_heads: 4,
            attention_head_dim: 10,
            output_dim: 40,
            interleave_self_attention: true,
        },
        ..ModelConfig::released()
    };
    (
        model,
        VlmConfig {
            text,
            vision,
            ..released
        },
    )
}
