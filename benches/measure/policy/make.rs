//! Creates random inputs for which every part of the network affects the result.

use models::gr00t::BatchInputs;
use models::gr00t::{ModelConfig, VlmConfig};
use tch::{Device, Kind, Tensor};

use super::Sample;

/// Number of words before and after the image.
const WORDS: [i64; 2] = [6, 18];
/// Number of token ids that words are drawn from: the first ones, of which none is special.
const WORD_IDS: i64 = 400;

const F32: (Kind, Device) = (Kind::Float, Device::Cpu);

/// Returns a sample with a square image of `patches` patches between words.
pub fn sample(patches: i64, model: &ModelConfig, vlm: &VlmConfig) -> Sample {
    tch::manual_seed(2);
    let edge = patches.isqrt();
    let vision = &vlm.vision;
    let tokens = patches / (vision.spatial_merge_size * vision.spatial_merge_size);
    let width =
        vision.in_channels * vision.temporal_patch_size * vision.patch_size * vision.patch_size;
    let words = |count| Tensor::randint(WORD_IDS, [count], (Kind::Int64, Device::Cpu));
    let one = |id: i64| Tensor::from_slice(&[id]);
    let ids = [
        words(WORDS[0]),
        one(vlm.vision_start_token_id),
        one(vlm.image_token_id).repeat([tokens]),
        one(vlm.vision_end_token_id),
        words(WORDS[1]),
    ];
    let input_ids = Tensor::cat(&ids, 0).unsqueeze(0);
    let inputs = BatchInputs {
        attention_mask: input_ids.ones_like(),
        input_ids,
        pixel_values: Tensor::rand([patches, width], F32) * 2.0 - 1.0,
        image_grid_thw: vec![[1, edge, edge]],
        state: Tensor::randn([1, model.state_history_length, model.max_state_dim], F32),
        embodiment_id: 2.min(model.max_num_embodiments - 1),
    };
    Sample {
        inputs,
        noise: Tensor::randn([1, model.action_horizon, model.max_action_dim], F32),
    }
}
