//! Selects the GPU for a test, or skips the test with a reason.

use std::env;
use std::path::{Path, PathBuf};

use c10d::cuda::{self, Cuda};
use tch::Device;

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

/// The value of `RRUN_DEVICE`.
enum Asked {
    Nothing,
    Cpu,
    Card(usize),
}

/// Returns the device of `RRUN_DEVICE`, or prints the reason and returns `None` if it is not set.
/// With `cpu`, tests that need no GPU run without one.
pub fn device() -> Option<Device> {
    match asked() {
        Asked::Nothing => skip("RRUN_DEVICE is not set, cuda runs it"),
        Asked::Cpu => Some(Device::Cpu),
        Asked::Card(index) => Some(usable(index).device()),
    }
}

/// Returns the GPU of `RRUN_DEVICE`, or prints the reason and returns `None` if it names none.
///
/// # Panics
/// Panics if the requested GPU cannot be used: a run that is meant for a GPU must not pass without
/// one.
pub fn card() -> Option<Card> {
    match asked() {
        Asked::Nothing => skip("RRUN_DEVICE is not set, cuda runs it"),
        Asked::Cpu => skip("RRUN_DEVICE is cpu, this needs a card"),
        Asked::Card(index) => Some(usable(index)),
    }
}

fn asked() -> Asked {
    let asked = env::var("RRUN_DEVICE").unwrap_or_default();
    match asked.as_str() {
        "" => Asked::Nothing,
        "cpu" => Asked::Cpu,
        "cuda" => Asked::Card(0),
        other => {
            let number = other
                .strip_prefix("cuda:")
                .and_then(|number| number.parse().ok());
            Asked::Card(number.unwrap_or_else(|| {
                panic!("RRUN_DEVICE is `{other}`, expected cpu, cuda or cuda:N")
            }))
        }
    }
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

fn skip<T>(reason: &str) -> Option<T> {
    println!("skipped: {reason}");
    None
}

/// Returns the checkout: `RRUN_ROOT`, or the one in which this program was built.
pub fn root() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    env::var_os("RRUN_ROOT").map_or_else(built, PathBuf::from)
}

/// Returns the checkpoint of the demo: a GR00T model of 3.5 million parameters.
pub fn demo_policy() -> PathBuf {
    root().join("jobs/suites/demo_policy")
}
