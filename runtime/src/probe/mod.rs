//! `rrun-rank probe QUESTION`: answers a question of `rrun doctor` about this machine, because only
//! the rank binary has libtorch, MuJoCo and CUDA. Question and answer are in
//! [`jobs::rank_probe`]; each runs in a process of its own, which may hang or crash.

mod round_trip;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use jobs::rank_probe::{
    ComputedOnGpu, ComputedOnGpus, DrawnPicture, LoadedLibraries, RankQuestion, WORD,
};
use serde::Serialize;
use tch::{Device, Kind, Tensor};
use torchlib::cuda::{self, Cuda};
use torchlib::libtorch;
use torchlib::torch_error::{caught_of_libtorch, first_line};

use crate::device::gpu::of_machine;
use crate::env::egl::EglRequest;
use crate::env::mujoco::draw_pair;
use crate::versions::versions;

/// Answers the question in `words`.
pub fn main(words: &[OsString]) -> ExitCode {
    let words: Vec<&str> = words
        .iter()
        .map(|word| word.to_str().unwrap_or_default())
        .collect();
    let question = words.first().and_then(|name| RankQuestion::of(name));
    match (question, &words[words.len().min(1)..]) {
        (Some(RankQuestion::Libraries), []) => answer(|| Ok(loaded())),
        (Some(RankQuestion::Cuda), []) => answer(computed),
        (Some(RankQuestion::Egl), []) => answer(drawn),
        (Some(RankQuestion::Nccl), []) => answer(round_trip::lead),
        (Some(RankQuestion::Nccl), numbers @ [_, _, _]) => joined(numbers),
        _ => usage(),
    }
}

/// Prints what `ask` returns.
fn answer<T: Serialize>(ask: impl FnOnce() -> Result<T, String>) -> ExitCode {
    let answer = caught_of_libtorch(ask).unwrap_or_else(Err);
    let answer = answer.map_err(|reason| first_line(&reason).to_owned());
    let line = match serde_json::to_string(&answer) {
        Ok(line) => line,
        Err(err) => {
            eprintln!("rrun-rank: cannot write the answer: {err}");
            return ExitCode::FAILURE;
        }
    };
    // Nobody is left to be told if standard output is closed.
    let _ = writeln!(std::io::stdout(), "{line}");
    match answer {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Takes part in the round trip of another process, which reports it and has started this one with
/// these numbers: the port of its store, rank and world size.
fn joined(numbers: &[&str]) -> ExitCode {
    let numbers: Result<Vec<usize>, _> = numbers.iter().map(|number| number.parse()).collect();
    let Ok(&[port, rank, world]) = numbers.as_deref() else {
        return usage();
    };
    let joined = caught_of_libtorch(|| round_trip::join(port as u16, rank, world));
    match joined.unwrap_or_else(Err) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("rrun-rank: process {rank}: {}", first_line(&reason));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let names = RankQuestion::ALL.map(RankQuestion::name).join(", ");
    eprintln!("rrun-rank: expected `{WORD} QUESTION`, one of {names}; `rrun doctor` asks them");
    ExitCode::from(2)
}

/// Edge of the matrices of the product: every GPU has a kernel for it, and the result is exact.
const EDGE: i64 = 64;

/// Returns the libraries of this process, without CUDA's.
fn loaded() -> LoadedLibraries {
    let mut versions = versions();
    let folder = libtorch::folder().ok();
    LoadedLibraries {
        rrun: versions.remove("rrun").unwrap_or_default(),
        libtorch: versions.remove("libtorch"),
        has_cuda_half: folder
            .as_ref()
            .is_some_and(|folder| folder.join("libtorch_cuda.so").is_file()),
        libtorch_folder: folder.map(|folder| folder.display().to_string()),
        mujoco: versions.remove("mujoco").unwrap_or_default(),
    }
}

/// Multiplies two matrices on every GPU.
///
/// # Errors
/// Returns the reason why this process cannot use CUDA.
fn computed() -> Result<ComputedOnGpus, String> {
    let cuda = cuda::load().map_err(|err| err.to_string())?;
    let count = cuda.device_count().map_err(|err| err.to_string())?;
    let mut versions = versions();
    let mut of = |name: &str| versions.remove(name).unwrap_or_default();
    Ok(ComputedOnGpus {
        runtime: of("cuda"),
        nccl: of("nccl"),
        gpus: (0..count).map(|index| on_gpu(cuda, index)).collect(),
    })
}

fn on_gpu(cuda: Cuda, index: usize) -> ComputedOnGpu {
    let name = cuda.device(index).map(|facts| facts.name);
    ComputedOnGpu {
        name: name.unwrap_or_default(),
        error: product(cuda, index).err(),
    }
}

/// Computes the sum of the product of two matrices of ones on a GPU, and checks it.
fn product(cuda: Cuda, index: usize) -> Result<(), String> {
    cuda.select(index).map_err(|err| err.to_string())?;
    let sum = || {
        let ones = Tensor::f_ones([EDGE, EDGE], (Kind::Float, Device::Cuda(index)))?;
        ones.f_matmul(&ones)?
            .f_sum(Kind::Float)?
            .f_double_value(&[])
    };
    let found = sum().map_err(|err| err.to_string())?;
    let expected = (EDGE * EDGE * EDGE) as f64;
    if found == expected {
        Ok(())
    } else {
        Err(format!("a sum is {found}, expected {expected}"))
    }
}

/// Draws as ranks do: a pair of pictures for each GPU on the EGL device that belongs to it, or one
/// pair on the CPU without GPUs.
///
/// # Errors
/// Returns the reason why nothing can be rendered.
fn drawn() -> Result<Vec<DrawnPicture>, String> {
    let count = cuda::load().ok().and_then(|cuda| cuda.device_count().ok());
    let mut requests: Vec<EglRequest> = (0..count.unwrap_or(0)).map(request).collect();
    if requests.is_empty() {
        requests.push(EglRequest::default());
    }
    let pictures = requests.iter().map(draw_pair);
    pictures
        .collect::<Result<_, _>>()
        .map_err(|err| err.to_string())
}

/// Returns the request of the only rank on a GPU.
fn request(index: usize) -> EglRequest {
    EglRequest {
        gpu: of_machine(Device::Cuda(index)),
        local_rank: index,
        ..EglRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_libtorch_and_mujoco() {
        let loaded = loaded();
        assert!(loaded.libtorch.is_some(), "{loaded:?}");
        assert!(loaded.libtorch_folder.is_some() && !loaded.mujoco.is_empty());
    }
}
