//! Selects the GPU for a test.

use std::env;
use std::path::PathBuf;

use tch::Device;
use torchlib::cuda::{self, Cuda};

/// A usable GPU.
pub struct Card {
    pub cuda: Cuda,
    pub index: usize,
}

impl Card {
    pub fn device(&self) -> Device {
        Device::Cuda(self.index)
    }
}

/// Returns the device of `RRUN_DEVICE`. With `cpu`, tests that need no GPU run without one.
pub fn device() -> Device {
    asked().map_or(Device::Cpu, |index| usable(index).device())
}

/// Returns the GPU of `RRUN_DEVICE`, or prints the reason and returns `None` if it is `cpu`.
///
/// # Panics
/// Panics if the requested GPU cannot be used: a run that is meant for a GPU must not pass without
/// one.
pub fn card() -> Option<Card> {
    let index = asked();
    if index.is_none() {
        println!("skipped: RRUN_DEVICE is cpu, this needs a card");
    }
    index.map(usable)
}

/// Returns the index of the GPU in `RRUN_DEVICE`; `None` for `cpu`.
fn asked() -> Option<usize> {
    let asked = env::var("RRUN_DEVICE").unwrap_or_default();
    let number = match asked.as_str() {
        "cpu" => return None,
        "cuda" => Some(0),
        other => other.strip_prefix("cuda:").and_then(|it| it.parse().ok()),
    };
    assert!(
        number.is_some(),
        "RRUN_DEVICE is `{asked}`, expected cpu, cuda or cuda:N"
    );
    number
}

fn usable(index: usize) -> Card {
    let cuda =
        cuda::load().unwrap_or_else(|none| panic!("RRUN_DEVICE asks for a card, but: {none}"));
    let count = cuda.device_count().unwrap();
    assert!(
        index < count,
        "RRUN_DEVICE asks for card {index}, there are {count}"
    );
    cuda.select(index).unwrap();
    Card { cuda, index }
}

/// Returns the checkout: `RRUN_ROOT`, or the one in which this program was built.
pub fn root() -> PathBuf {
    let root = env::var_os("RRUN_ROOT").map_or_else(rig::root, PathBuf::from);
    std::path::absolute(root).unwrap()
}

/// Returns the checkpoint of the demo: a GR00T model of 3.5 million parameters.
pub fn demo_policy() -> PathBuf {
    root().join("jobs/suites/demo_policy")
}
