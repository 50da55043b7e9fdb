//! Creates the initial weights of the network.
//!
//! The patch projection is computed and not trained. Its filters combine four opponent colours
//! (light, green against red and blue, yellow against blue, red against green) with eleven
//! low-frequency cosines over a patch; each is scaled to deviation 1 on the samples. The second
//! colour detects a green ball, and its cosines tell where in the patch the ball is: 96 pixels must
//! be enough to locate it. Twenty channels are left free for the position in the image. All other
//! weights are random.

use models::Named;
use models::gr00t::model::Gr00t;
use models::gr00t::{ModelConfig, VlmConfig};
use models::weights::{Spec, random_tensor};
use tch::{Device, Kind, Tensor};

use crate::network::{GRID, PATCH, VISION};

/// Standard deviation of [`random_tensor`].
const RANDOM: f64 = 0.02;

/// The colour filters: weights of red, green and blue.
const COLOURS: [[f32; 3]; 4] = [
    [1.0, 1.0, 1.0],
    [-0.5, 1.0, -0.5],
    [0.5, 0.5, -1.0],
    [1.0, -1.0, 0.0],
];

/// Number of half waves along the rows and columns of a patch.
const WAVES: [[i64; 2]; 11] = [
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
    [0, 2],
    [2, 0],
    [1, 2],
    [2, 1],
    [2, 2],
    [0, 3],
    [3, 0],
];

/// Number of channels of the projection that see colour.
const SEEING: i64 = (COLOURS.len() * WAVES.len()) as i64;

/// Returns all initial weights. `patches` (`[n, 1536]`) are a selection of the samples' patches.
pub fn weights(model: &ModelConfig, vlm: &VlmConfig, seed: i64, patches: &Tensor) -> Named {
    let specs = Gr00t::tensors(model, vlm).into_iter().flatten();
    specs
        .map(|spec| (spec.0.clone(), weight(&spec, seed, patches)))
        .collect()
}

/// Returns whether a tensor is not trained.
pub fn is_fixed(name: &str) -> bool {
    name.contains("patch_embed")
}

fn weight((name, shape): &Spec, seed: i64, patches: &Tensor) -> Tensor {
    if name.ends_with("patch_embed.proj.weight") {
        return projection(patches).0.view(shape.as_slice());
    }
    if name.ends_with("patch_embed.proj.bias") {
        return projection(patches).1;
    }
    if name.ends_with("pos_embed.weight") {
        return positions();
    }
    random_tensor(seed, name, shape, Kind::Float, Device::Cpu) * gain(name, shape)
}

/// Returns the factor for [`random_tensor`]: 1 / sqrt(inputs), and less at the end of a residual
/// branch and for layers that compute a modulation.
fn gain(name: &str, shape: &[i64]) -> f64 {
    let is_embodiment = name.ends_with(".W");
    if name.ends_with("embed_tokens.weight") {
        return 0.5 / RANDOM;
    }
    if shape.len() < 2 || name.ends_with(".b") || name.ends_with("position_embedding.weight") {
        return 1.0;
    }
    let inputs = if is_embodiment {
        shape[1]
    } else {
        shape[shape.len() - 1]
    };
    let branch_ends = [
        "attn.proj",
        "mlp.linear_fc2",
        "o_proj",
        "down_proj",
        "to_out.0",
        "ff.net.2",
    ];
    let small = if name.contains("norm1.linear")
        || name.contains("proj_out_1")
        || name.ends_with("decoder.layer2.W")
    {
        0.1
    } else if branch_ends.iter().any(|end| name.contains(end)) {
        0.5
    } else {
        1.0
    };
    small / (RANDOM * (inputs as f64).sqrt())
}

/// Returns the weight `[VISION, 1536]` and the bias of the patch projection.
fn projection(patches: &Tensor) -> (Tensor, Tensor) {
    let filters: Vec<_> = COLOURS
        .iter()
        .flat_map(|colour| WAVES.map(|wave| filter(*colour, wave)))
        .collect();
    let filters = Tensor::stack(&filters, 0);
    let answers = patches.matmul(&filters.tr());
    let (mean, deviation) = (
        answers.mean_dim(0, false, Kind::Float),
        answers.std_dim(0, true, false),
    );
    let pad = |x: Tensor| {
        let mut shape = x.size();
        shape[0] = VISION - SEEING;
        Tensor::cat(&[x, Tensor::zeros(shape, (Kind::Float, Device::Cpu))], 0)
    };
    (
        pad(filters / deviation.unsqueeze(1)),
        pad(-mean / deviation),
    )
}

/// Returns one filter, `[1536]`, in the order colour, two equal frames, rows, columns.
fn filter(colour: [f32; 3], [down, across]: [i64; 2]) -> Tensor {
    let plane =
        cosine(down).unsqueeze(1) * cosine(across).unsqueeze(0) / (2 * PATCH * PATCH) as f64;
    let colour = Tensor::from_slice(&colour).view([3, 1, 1, 1]);
    (colour * plane.unsqueeze(0).unsqueeze(0))
        .expand([3, 2, PATCH, PATCH], false)
        .reshape([-1])
}

fn cosine(half_waves: i64) -> Tensor {
    let x = (Tensor::arange(PATCH, (Kind::Float, Device::Cpu)) + 0.5)
        * (half_waves as f64 / PATCH as f64);
    let scale = if half_waves == 0 {
        1.0
    } else {
        std::f64::consts::SQRT_2
    };
    (x * std::f64::consts::PI).cos() * scale
}

/// Returns the position embedding, `[GRID², VISION]`: column and row of a patch, as values and as
/// waves, in the channels that see no colour.
fn positions() -> Tensor {
    let line = Tensor::linspace(-1.0, 1.0, GRID, (Kind::Float, Device::Cpu));
    let across = line.unsqueeze(0).expand([GRID, GRID], false).reshape([-1]);
    let down = line.unsqueeze(1).expand([GRID, GRID], false).reshape([-1]);
    let mut channels = vec![across.shallow_clone(), down.shallow_clone()];
    for axis in [across, down] {
        for waves in [0.5, 1.0, 1.5, 2.0] {
            let angle = &axis * (std::f64::consts::PI * waves);
            channels.extend([angle.sin(), angle.cos()]);
        }
    }
    let seen = Tensor::zeros([GRID * GRID, SEEING], (Kind::Float, Device::Cpu));
    let place = Tensor::stack(&channels, 1);
    let free = Tensor::zeros(
        [GRID * GRID, VISION - SEEING - place.size()[1]],
        (Kind::Float, Device::Cpu),
    );
    Tensor::cat(&[seen, place, free], 1)
}
