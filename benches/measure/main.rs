//! What the benches in Python run beside what it replaces. The module of a word says its arguments
//! and what it prints; the figures are in `benches/README.md`.
//!
//! ```text
//! measure assign | bridge | exported | gpu | load | policy | record  ARGUMENTS
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tch::{Cuda, Device, Tensor};

mod assign;
mod bridge;
mod exported;
mod gpu;
mod load;
mod policy;
mod record;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    // `cargo bench` adds `--bench`.
    let words: Vec<_> = std::env::args().filter(|word| word != "--bench").collect();
    let words: Vec<_> = words.iter().skip(1).map(String::as_str).collect();
    let done = match words[..] {
        ["assign", ref rest @ ..] => assign::main(rest),
        ["bridge", ref rest @ ..] => bridge::main(rest),
        ["exported", ref rest @ ..] => exported::main(rest),
        ["gpu", ..] => gpu::main(&words),
        ["load", ref rest @ ..] => load::main(rest),
        ["policy", ref rest @ ..] => policy::main(rest),
        ["record", ref rest @ ..] => record::main(rest),
        _ => Err("expected what to measure, see benches/measure/main.rs".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("measure: {err}");
            ExitCode::FAILURE
        }
    }
}

/// Waits until the device has completed all queued work.
fn synchronize(device: Device) {
    if let Device::Cuda(index) = device {
        Cuda::synchronize(index as i64);
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a bench waits as what it measures"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Returns a tensor of a file.
fn take(tensors: &[(String, Tensor)], name: &str) -> Outcome<Tensor> {
    let found = tensors.iter().find(|(found, _)| found == name);
    let found = found.map(|(_, tensor)| tensor.shallow_clone());
    Ok(found.ok_or_else(|| format!("there is no `{name}`"))?)
}
