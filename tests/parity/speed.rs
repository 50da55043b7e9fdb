//! Where the time of an inference goes, at released depth and widths so small that an operator costs its dispatch.

use std::time::{Duration, Instant};

use runtime::policy::gr00t::inputs::Inputs;
use runtime::policy::gr00t::model::{Gr00t, NoTap, Robot, SamplerOptions};
use runtime::policy::gr00t::{
    DiffusionConfig, ModelConfig, TextConfig, VisionConfig, VlSelfAttention, VlmConfig, Weights,
};
use tch::{Device, Kind, Tensor};

/// Inferences of which the fastest counts.
const ROUNDS: usize = 200;

/// Placeholder of an image token.
const IMAGE: i64 = 7;

#[test]
#[ignore = "prints times; run it alone: `cargo test --release --test parity -- --ignored --nocapture`"]
fn parts_of_an_inference() {
    let _no_grad = tch::no_grad_guard();
    tch::set_num_threads(1);
    let (config, vlm) = tiny();
    for (name, lean) in [("as written", false), ("lean", true)] {
        let mut weights = Weights::random(1, Device::Cpu, Kind::Float);
        let network = Gr00t::new(&mut weights, &config, &vlm);
        drop(weights);
        let network = if lean { network.lean() } else { network };
        print(name, &network, &config);
    }
}

/// Released depth, widths of a few dozen, one small image.
fn tiny() -> (ModelConfig, VlmConfig) {
    let config = ModelConfig {
        backbone_embedding_dim: 32,
        action_horizon: 16,
        hidden_size: 32,
        input_embedding_dim: 32,
        max_num_embodiments: 2,
        vl_self_attention_cfg: Some(VlSelfAttention { num_layers: 4, num_attention_heads: 4, attention_head_dim: 8 }),
        diffusion_model_cfg: DiffusionConfig {
            num_attention_heads: 4,
            attention_head_dim: 8,
            output_dim: 32,
            ..ModelConfig::released().diffusion_model_cfg
        },
        ..ModelConfig::released()
    };
    let released = VlmConfig::released();
    let text = TextConfig {
        hidden_size: 32,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        intermediate_size: 96,
        mrope_section: [2, 1, 1],
        vocab_size: 512,
        ..released.text
    };
    let vision = VisionConfig {
        hidden_size: 16,
        num_heads: 2,
        intermediate_size: 64,
        num_position_embeddings: 144,
        out_hidden_size: 32,
        ..released.vision
    };
    (config, VlmConfig { image_token_id: IMAGE, text, vision, ..released })
}

fn print(name: &str, network: &Gr00t, config: &ModelConfig) {
    let float = (Kind::Float, Device::Cpu);
    let ids: Vec<i64> = [1; 4].into_iter().chain([IMAGE; 16]).chain([2; 15]).collect();
    let inputs = Inputs {
        input_ids: Tensor::from_slice(&ids).view([1, -1]),
        attention_mask: Tensor::ones([1, ids.len() as i64], (Kind::Int64, Device::Cpu)),
        pixel_values: Tensor::randn([64, 1536], float),
        image_grid_thw: vec![[1, 8, 8]],
        state: Tensor::randn([1, config.state_history_length, config.max_state_dim], float),
        embodiment_id: Tensor::from_slice(&[1i64]),
    };
    let noise = Tensor::randn([1, config.action_horizon, config.max_action_dim], float);
    let robot = Robot { state: &inputs.state, embodiment_id: &inputs.embodiment_id };
    let options = SamplerOptions { steps: config.num_inference_timesteps, rtc: None };
    let features = network.features(&inputs, &mut NoTap).unwrap();
    let backbone = fastest(|| drop(network.features(&inputs, &mut NoTap).unwrap()));
    let conditions = fastest(|| drop(network.head().conditions(&features, &robot, &mut NoTap).unwrap()));
    let head = fastest(|| drop(network.actions(&features, &robot, &noise, &options, &mut NoTap).unwrap()));
    println!(
        "{name}: backbone {backbone:.2?}, conditions {conditions:.2?}, sampler {:.2?}, together {:.2?}",
        head.saturating_sub(conditions),
        backbone + head
    );
}

#[expect(clippy::disallowed_methods, reason = "a measurement")]
fn fastest(mut work: impl FnMut()) -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let begin = Instant::now();
        work();
        begin.elapsed()
    });
    rounds.min().unwrap()
}
