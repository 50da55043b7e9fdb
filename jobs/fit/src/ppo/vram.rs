//! Estimates the GPU memory of a training from the figures in s003.
//!
//! The table of s003 says that 512 environments take about 6 GB, 1024 take 9, 1536 take 12 and 2048
//! take 15. That is a line, 3 GB plus 5.9 MB per environment, for WildRobot's scene and networks.
//! Other scenes have other lines, which two short runs and nvidia-smi give.

/// Bytes without an environment: JAX, XLA, the compiled steps and the networks.
const BASE: u64 = 3_000_000_000;

/// Bytes of 512 environments, which avoids a fraction for one.
const OF_512: u64 = 3_000_000_000;

/// Returns the bytes on each of `devices` GPUs.
pub fn bytes(num_envs: u64, devices: u64) -> u64 {
    let on_one = num_envs.div_ceil(devices.max(1));
    BASE.saturating_add(on_one.saturating_mul(OF_512) / 512)
}

/// Returns the largest number of environments, over all devices, with which no GPU holds more than
/// `bytes`; 0 if not even the base fits.
pub fn most_envs(bytes: u64, devices: u64) -> u64 {
    let on_one = u128::from(bytes.saturating_sub(BASE)) * 512 / u128::from(OF_512);
    u64::try_from(on_one)
        .unwrap_or(u64::MAX)
        .saturating_mul(devices.max(1))
}
