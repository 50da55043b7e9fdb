//! `rrun-rank probe QUESTION`: answers a question of `rrun doctor` about this machine, because only
//! the rank binary has libtorch, MuJoCo and CUDA. The answer is what was found, see
//! [`jobs::finding`]; each question has a process of its own, which may hang or crash.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::finding::{Finding, Grade, PROBE};
use jobs::installed::{INSTALL_TORCH, is_torch_of_ours};
use tch::{Device, Kind, Tensor};
use tcpstore::{Store, StoreAddr};
use torchlib::cuda::{self, Cuda};
use torchlib::libtorch;
use torchlib::nccl::NcclGroup;
use torchlib::torch_error::{caught_of_libtorch, first_line};

use crate::clock::now;
use crate::device::gpu::of_machine;
use crate::env::egl::EglRequest;
use crate::env::mujoco::{DrawnPicture, draw_pair};
use crate::versions::versions;

/// What makes rendering work.
const INSTALL_EGL: &str = "install libegl1 libegl-mesa0 libgl1-mesa-dri (RHEL: mesa-libEGL \
                           mesa-dri-drivers) or the GPU driver's EGL, or evaluate without cameras \
                           (--no-video)";

/// What makes GPUs compute, or do without them.
const CUDA_HELP: &str = "update the driver (torch 2.11 and 2.12 have CUDA 13, which needs 580 or \
                         newer), or run on the CPU with CUDA_VISIBLE_DEVICES=''";

/// What tells why processes do not reach each other.
const NCCL_HELP: &str = "NCCL_DEBUG=INFO with `rrun-rank probe nccl` tells why; \
                         NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 may help";

/// Answers the question in `words`.
pub fn main(words: &[OsString]) -> ExitCode {
    let words = words.iter().map(|word| word.to_str().unwrap_or_default());
    match words.collect::<Vec<_>>()[..] {
        ["libraries", launcher] => answer("rrun-rank", INSTALL_TORCH, || Ok(loaded(launcher))),
        ["cuda"] => answer("CUDA", CUDA_HELP, computed),
        ["egl"] => answer("EGL", INSTALL_EGL, drawn),
        ["nccl"] => answer("NCCL", NCCL_HELP, lead),
        ["nccl", port, rank, world] => joined([port, rank, world]),
        _ => usage(),
    }
}

/// Prints what `ask` finds. A reason why it finds nothing is a failure of what has this name, with
/// what to do.
fn answer(
    name: &str,
    remedy: &str,
    ask: impl FnOnce() -> Result<Vec<Finding>, String>,
) -> ExitCode {
    let found = caught_of_libtorch(ask).unwrap_or_else(Err);
    let found =
        found.unwrap_or_else(|reason| vec![Finding::failed(name, first_line(&reason), remedy)]);
    let line = serde_json::to_string(&found).expect("findings are texts");
    // Nobody is left to be told if standard output is closed.
    let _ = writeln!(std::io::stdout(), "{line}");
    let has_failed = found.iter().any(|one| one.grade == Grade::Failed);
    ExitCode::from(u8::from(has_failed))
}

/// Takes part in the round trip of another process, which reports it and has started this one with
/// these numbers: the port of its store, rank and world size.
fn joined(numbers: [&str; 3]) -> ExitCode {
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
    eprintln!(
        "rrun-rank {}: expected `{PROBE} QUESTION`, one of libraries VERSION, cuda, nccl, egl; \
         `rrun doctor` asks them",
        env!("CARGO_PKG_VERSION")
    );
    ExitCode::from(2)
}

/// Returns the libraries of this process, without CUDA's. `launcher` is the version of the
/// launcher.
fn loaded(launcher: &str) -> Vec<Finding> {
    let versions = versions();
    let version = |name: &str| versions.get(name).map_or("", String::as_str);
    let own = env!("CARGO_PKG_VERSION");
    let program = std::env::current_exe().unwrap_or_default();
    let found = format!("{}, `{}`", version("rrun"), program.display());
    let binary = if launcher == own {
        Finding::ok("rrun-rank", found)
    } else {
        let remedy = "install rrun again: both programs must come from one build";
        Finding::failed(
            "rrun-rank",
            format!("{found}, but rrun is {launcher}"),
            remedy,
        )
    };
    let mujoco = Finding::ok("MuJoCo", version("mujoco"));
    vec![binary, of_libtorch(version("libtorch")), mujoco]
}

/// Judges the version of libtorch; an empty one is unknown.
fn of_libtorch(version: &str) -> Finding {
    let name = "libtorch";
    let folder = libtorch::folder().ok();
    let half = match &folder {
        Some(folder) if folder.join("libtorch_cuda.so").is_file() => "with CUDA",
        _ => "CPU only",
    };
    let folder = folder.map(|folder| folder.display().to_string());
    let place = format!(
        "{half}, in `{}`",
        folder.as_deref().unwrap_or("an unknown folder")
    );
    match version {
        "" => Finding::warning(name, format!("of unknown version, {place}"), INSTALL_TORCH),
        _ if is_torch_of_ours(version) => Finding::ok(name, format!("{version}, {place}")),
        _ => {
            let found = format!("{version}, {place}: expected 2.11 or 2.12");
            Finding::failed(name, found, INSTALL_TORCH)
        }
    }
}

/// Edge of the matrices of the product: every GPU has a kernel for it, and the result is exact.
const EDGE: i64 = 64;

/// Multiplies two matrices on every GPU.
///
/// # Errors
/// Returns the reason why this process cannot use CUDA.
fn computed() -> Result<Vec<Finding>, String> {
    let cuda = cuda::load().map_err(text)?;
    let count = cuda.device_count().map_err(text)?;
    let versions = versions();
    let version = |name: &str| versions.get(name).map_or("", String::as_str);
    let found = format!(
        "runtime {}, NCCL {}, a product on {}",
        version("cuda"),
        version("nccl"),
        counted(count, "GPU")
    );
    let wrong =
        (0..count).filter_map(|index| Some(of_gpu(cuda, index, &product(cuda, index).err()?)));
    Ok(std::iter::once(Finding::ok("CUDA", found))
        .chain(wrong)
        .collect())
}

/// Describes a GPU that does not compute.
fn of_gpu(cuda: Cuda, index: usize, error: &str) -> Finding {
    let gpu = cuda.device(index).map(|facts| facts.name);
    let found = format!("{} does not compute: {error}", gpu.unwrap_or_default());
    let remedy = "see `nvidia-smi` and `dmesg`; leave it out with CUDA_VISIBLE_DEVICES";
    Finding::failed(format!("cuda:{index}"), found, remedy)
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
fn drawn() -> Result<Vec<Finding>, String> {
    let count = cuda::load().ok().and_then(|cuda| cuda.device_count().ok());
    let mut requests: Vec<EglRequest> = (0..count.unwrap_or(0)).map(request).collect();
    if requests.is_empty() {
        requests.push(EglRequest::default());
    }
    let picture = |request: &EglRequest| {
        let gpu = request.gpu.as_ref().map(|gpu| gpu.index);
        draw_pair(request).map(|picture| of_picture(gpu, &picture))
    };
    let pictures = requests.iter().map(picture).collect::<Result<_, _>>();
    pictures.map_err(|err| {
        // What to install stands in the remedy.
        let reason = err.to_string();
        let mut parts = reason.split("; install the packages");
        parts.next().unwrap_or_default().to_owned()
    })
}

/// Describes a picture that was drawn for the GPU with this CUDA index, or for none.
fn of_picture(gpu: Option<usize>, picture: &DrawnPicture) -> Finding {
    let name = gpu.map_or("EGL".to_owned(), |gpu| format!("EGL cuda:{gpu}"));
    let found = format!(
        "{}, device `{}`, two pictures of 224 x 224 in {:.1} ms",
        picture.renderer,
        picture.device,
        picture.time.as_secs_f64() * 1e3
    );
    match &picture.note {
        // The note says more about what to do.
        Some(note) => {
            let found = format!("{found}: {note}");
            Finding::warning(name, found, "install the GPU driver's EGL")
        }
        None => Finding::ok(name, found),
    }
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
fn lead() -> Result<Vec<Finding>, String> {
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
    let found = format!(
        "{world} processes met in {:.1} s, an all-reduce of {} takes {:.1} ms",
        meeting_s.unwrap_or_default(),
        ByteSize(VALUES as u64 * size_of::<f32>() as u64),
        times[TIMES / 2] * 1e3
    );
    Ok(vec![Finding::ok("NCCL", found)])
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
                .args([PROBE, "nccl"])
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
    fn this_process_has_libraries_and_belongs_to_a_launcher_of_its_version() {
        let grades = |launcher: &str| {
            let found = loaded(launcher);
            found.iter().map(|one| one.grade).collect::<Vec<_>>()
        };
        assert_eq!(grades(env!("CARGO_PKG_VERSION")), [Grade::Ok; 3]);
        assert_eq!(grades("9.9.9")[0], Grade::Failed);
    }

    #[test]
    fn the_supported_torch_is_ok_and_another_fails() {
        assert_eq!(of_libtorch("2.13.0").grade, Grade::Failed);
        assert_eq!(of_libtorch("").grade, Grade::Warning);
        let found = of_libtorch("2.12.1+cu130");
        assert_eq!(found.grade, Grade::Ok);
        assert!(found.found.starts_with("2.12.1+cu130, "), "{found:?}");
    }

    #[test]
    fn a_picture_of_another_device_is_a_warning_that_says_why() {
        let drawn = |gpu, note: Option<&str>| {
            let picture = DrawnPicture {
                renderer: "llvmpipe".to_owned(),
                device: "Mesa on the CPU".to_owned(),
                note: note.map(str::to_owned),
                time: Duration::from_micros(13_200),
            };
            of_picture(gpu, &picture)
        };
        let found = "llvmpipe, device `Mesa on the CPU`, two pictures of 224 x 224 in 13.2 ms";
        assert_eq!(drawn(None, None), Finding::ok("EGL", found));
        let elsewhere = drawn(Some(1), Some("no EGL device belongs to cuda:1"));
        assert_eq!(
            (&*elsewhere.name, elsewhere.grade),
            ("EGL cuda:1", Grade::Warning)
        );
        assert!(
            elsewhere
                .found
                .ends_with("ms: no EGL device belongs to cuda:1")
        );
    }
}
