//! Random weights, from which the training of a network starts.

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use tch::{Device, Kind, Tensor};

/// Standard deviation of all tensors that are neither norms nor biases (the backbone's
/// `initializer_range`).
const DEVIATION: f32 = 0.02;
/// Number of values that are generated at a time; changing it changes the random values.
const CHUNK: usize = 1 << 20;
/// Number of values that one task generates; changing it changes the random values.
const TASK: usize = 1 << 14;

/// Returns the tensor with this name: norm weights are 1, biases are 0, the rest is normally
/// distributed. The result depends only on the arguments.
pub fn random_tensor(seed: i64, name: &str, shape: &[i64], kind: Kind, device: Device) -> Tensor {
    let path: Vec<_> = name.split('.').collect();
    let last = *path.last().unwrap_or(&name);
    if last == "bias" || last == "b" {
        return Tensor::zeros(shape, (kind, device));
    }
    if shape.len() == 1
        && last == "weight"
        && (name.contains("norm") || name.ends_with("vlln.weight"))
    {
        return Tensor::ones(shape, (kind, device));
    }
    normal(stream(seed, name), shape, kind, device)
}

fn normal(stream: u64, shape: &[i64], kind: Kind, device: Device) -> Tensor {
    let tensor = Tensor::empty(shape, (kind, device));
    let flat = tensor.view(-1);
    let count = tensor.numel();
    let mut values = vec![0.0; CHUNK.min(count)];
    for begin in (0..count).step_by(CHUNK) {
        let chunk = &mut values[..CHUNK.min(count - begin)];
        let tasks = chunk.par_chunks_mut(TASK).enumerate();
        tasks.for_each(|(task, values)| {
            fill(mix(stream ^ mix((begin + task * TASK) as u64)), values)
        });
        flat.narrow(0, begin as i64, chunk.len() as i64)
            .copy_(&Tensor::from_slice(chunk));
    }
    tensor
}

/// Generates normal values by the Box–Muller transform.
fn fill(mut state: u64, values: &mut [f32]) {
    for pair in values.chunks_mut(2) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = mix(state);
        // Never 0, so that the logarithm is finite.
        let first = ((bits >> 40) + 1) as f32 / (1 << 24) as f32;
        let second = (bits & 0xff_ffff) as f32 / (1 << 24) as f32;
        let radius = DEVIATION * (-2.0 * first.ln()).sqrt();
        let (sine, cosine) = (std::f32::consts::TAU * second).sin_cos();
        pair.iter_mut()
            .zip([radius * cosine, radius * sine])
            .for_each(|(value, normal)| *value = normal);
    }
}

/// Returns the initial state of a tensor's random numbers: FNV-1a of the name, mixed with the seed.
fn stream(seed: i64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(hash ^ mix(seed.cast_unsigned()))
}

/// Output function of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
