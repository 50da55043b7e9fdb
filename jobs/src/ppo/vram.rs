//! Memory of a GPU that a training takes, by s003's own figures.
//!
//! s003's table: 512 environments take about 6 GB, 1024 take 9, 1536 take 12, 2048 take 15. That is one line, 3 GB and 5.9 MB
//! an environment, for WildRobot's scene and networks. Other scenes have another line: two short runs of one's own, and
//! nvidia-smi, give it.

/// Bytes without an environment: JAX, XLA, the compiled steps, the networks.
const BASE: u64 = 3_000_000_000;

/// Of one environment, as a fraction: 3 GB for 512.
const OF_512: u64 = 3_000_000_000;

/// Bytes on each of `devices` GPUs.
pub fn bytes(num_envs: u64, devices: u64) -> u64 {
    let on_one = num_envs.div_ceil(devices.max(1));
    BASE.saturating_add(on_one.saturating_mul(OF_512) / 512)
}

/// The most environments, over all devices, with which each holds no more than `bytes`; 0 if not even the base fits.
pub fn most_envs(bytes: u64, devices: u64) -> u64 {
    let on_one = u128::from(bytes.saturating_sub(BASE)) * 512 / u128::from(OF_512);
    u64::try_from(on_one).unwrap_or(u64::MAX).saturating_mul(devices.max(1))
}
