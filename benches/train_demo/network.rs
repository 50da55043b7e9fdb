//! The sizes of the demo network: 1.8 million weights, two images of 96 x 96 pixels, chunks of 8
//! actions.

use models::gr00t::{
    DiffusionConfig, ModelConfig, RopeScaling, TextConfig, VisionConfig, VlSelfAttention, VlmConfig,
};

/// Width of the vision tower.
pub const VISION: i64 = 64;

/// Width of the language model and of the action transformer.
pub const WIDTH: i64 = 96;

/// Width and height of an image as the network sees it, in pixels.
pub const EDGE: usize = 96;

/// Number of images in a sample.
pub const CAMERAS: usize = 2;

/// Width and height of a patch, in pixels.
pub const PATCH: i64 = 16;

/// Number of patches along an edge of an image.
pub const GRID: i64 = EDGE as i64 / PATCH;

/// Number of tokens of an image.
pub const TOKENS: usize = (GRID * GRID / 4) as usize;

/// Number of actions in a chunk.
pub const CHUNK: i64 = 8;

/// Width to which a state is padded.
pub const STATE: i64 = 16;

/// Number of components of an action; actions are not padded.
pub const ACTION: i64 = 7;

/// Returns the contents of `config.json`.
pub fn model() -> ModelConfig {
    ModelConfig {
        select_layer: 2,
        backbone_embedding_dim: WIDTH,
        max_state_dim: STATE,
        max_action_dim: ACTION,
        action_horizon: CHUNK,
        hidden_size: WIDTH,
        input_embedding_dim: WIDTH,
        max_seq_len: CHUNK,
        // Block 0 attends to the text, 2 and 4 to the images, 1, 3 and 5 to the actions.
        attend_text_every_n_blocks: 3,
        vl_self_attention_cfg: Some(VlSelfAttention {
            num_layers: 1,
            num_attention_heads: 3,
            attention_head_dim: 32,
        }),
        diffusion_model_cfg: DiffusionConfig {
            num_layers: 6,
            num_attention_heads: 3,
            attention_head_dim: 32,
            output_dim: WIDTH,
            ..DiffusionConfig::default()
        },
        max_num_embodiments: 1,
        ..ModelConfig::default()
    }
}

/// Returns the contents of `vlm/config.json`, with the token ids and the vocabulary of `tokens`.
pub fn vlm(tokens: &VlmConfig) -> VlmConfig {
    VlmConfig {
        text: TextConfig {
            hidden_size: WIDTH,
            num_hidden_layers: 2,
            num_attention_heads: 3,
            num_key_value_heads: 1,
            head_dim: 32,
            intermediate_size: 2 * WIDTH,
            rope_scaling: RopeScaling {
                mrope_section: [6, 5, 5],
            },
            ..tokens.text.clone()
        },
        vision: VisionConfig {
            depth: 3,
            hidden_size: VISION,
            num_heads: 2,
            intermediate_size: 4 * VISION,
            num_position_embeddings: GRID * GRID,
            out_hidden_size: WIDTH,
            deepstack_visual_indexes: vec![0, 1],
            ..tokens.vision.clone()
        },
        ..tokens.clone()
    }
}
