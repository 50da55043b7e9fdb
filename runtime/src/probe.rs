//! `rrun-rank probe QUESTION`: answers a question of `rrun doctor` about this machine, because only
//! the rank binary has libtorch, MuJoCo and CUDA. Question and answer are in
//! [`jobs::rank_probe`]; each runs in a process of its own, which may hang or crash.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use jobs::rank_probe::{
    ComputedOnGpu, ComputedOnGpus, DrawnPicture, LoadedLibraries, RankQuestion, RoundTrip, WORD,
};
use serde::Serialize;
use tch::{Device, Kind, Tensor};
use tcpstore::{Store, StoreAddr};
use torchlib::cuda::{self, Cuda};
use torchlib::libtorch;
use torchlib::nccl::NcclGroup;
use torchlib::torch_error::{caught_of_libtorch, first_line};

use crate::clock::now;
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
        (Some(RankQuestion::Nccl), []) => answer(lead),
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
    let joined = caught_of_libtorch(|| join(port as u16, rank, world));
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

/// Timeout of the store. Processes need a second to start; a slow file system with libtorch's
/// libraries takes longer. Whoever asked has a time limit for the rest.
const PATIENCE: Duration = Duration::from_secs(20);

/// Number of values of the reduced tensor, 4 bytes each.
const VALUES: i64 = 1 << 18;

/// Number of timed all-reduces.
const TIMES: usize = 11;

/// The processes that take part, which are killed when this one has no more use for them.
struct Peers(Vec<Child>);

impl Drop for Peers {
    fn drop(&mut self) {
        for peer in &mut self.0 {
            // One that has ended cannot be killed, and needs not.
            let _ = peer.kill();
            let _ = peer.wait();
        }
    }
}

/// Starts a process for each further GPU, and reduces with them.
///
/// # Errors
/// Returns the reason why the processes do not reach each other, or a wrong result.
fn lead() -> Result<RoundTrip, String> {
    let start = now();
    let cuda = cuda::load().map_err(text)?;
    let world = cuda.device_count().map_err(text)?;
    let store = connect(0, world, true)?;
    let _peers = Peers::start(store.port(), world)?;
    let mut times = Vec::new();
    let mut meeting_s = None;
    reduce(&store, 0, world, |took| {
        meeting_s.get_or_insert_with(|| start.elapsed().as_secs_f64());
        times.push(took.as_secs_f64());
    })?;
    times.remove(0); // that in which the group formed
    times.sort_by(f64::total_cmp);
    Ok(RoundTrip {
        processes: world,
        bytes: VALUES as u64 * size_of::<f32>() as u64,
        all_reduce_s: times[TIMES / 2],
        meeting_s: meeting_s.unwrap_or_default(),
    })
}

/// Takes part in the all-reduces of [`lead`].
///
/// # Errors
/// Returns the reason why it does not reach the other processes, or a wrong result.
fn join(port: u16, rank: usize, world: usize) -> Result<(), String> {
    reduce(&connect(port, world, false)?, rank, world, |_| {})
}

impl Peers {
    /// Starts one process for each rank but the first.
    fn start(port: u16, world: usize) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(text)?;
        let mut peers = Self(Vec::new());
        for rank in 1..world {
            let words = [port.to_string(), rank.to_string(), world.to_string()];
            let peer = Command::new(&program)
                .args([WORD, RankQuestion::Nccl.name()])
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            peers.0.push(peer.map_err(text)?);
        }
        Ok(peers)
    }
}

/// Connects to the store at a port of the loopback address; with `serve`, hosts it.
fn connect(port: u16, world: usize, serve: bool) -> Result<Store, String> {
    Store::connect(&StoreAddr::local(port), world, serve, PATIENCE).map_err(text)
}

/// Sums a tensor over the GPUs of all ranks, [`TIMES`] times after the first one; calls `on` with
/// the time of each.
fn reduce(
    store: &Store,
    rank: usize,
    world: usize,
    mut on: impl FnMut(Duration),
) -> Result<(), String> {
    let group = NcclGroup::join(store, rank, world, rank, PATIENCE).map_err(text)?;
    let device = Device::Cuda(rank);
    let mut tensor = Tensor::f_zeros([VALUES], (Kind::Float, device)).map_err(text)?;
    for _ in 0..=TIMES {
        let start = now();
        // Both are small numbers, which are exact.
        drop(tensor.f_fill_((rank + 1) as f64).map_err(text)?);
        group.all_reduce_sum(&mut tensor).map_err(text)?;
        let (expected, [least, most]) = ((world * (world + 1) / 2) as f64, ends(&tensor)?);
        if least != expected || most != expected {
            return Err(format!(
                "the sum over {world} processes is {least} to {most}, expected {expected}"
            ));
        }
        on(start.elapsed());
    }
    group.close().map_err(text)
}

/// Returns the smallest and the largest value, which waits for the collective.
fn ends(tensor: &Tensor) -> Result<[f64; 2], String> {
    let value = |of: Result<Tensor, tch::TchError>| of.and_then(|it| it.f_double_value(&[]));
    let least = value(tensor.f_min()).map_err(text)?;
    let most = value(tensor.f_max()).map_err(text)?;
    Ok([least, most])
}

fn text(err: impl ToString) -> String {
    err.to_string()
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
