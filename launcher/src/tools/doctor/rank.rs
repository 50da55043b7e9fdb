//! Asks the rank binary, which has libtorch, MuJoCo and CUDA, whether they work: which libraries it
//! runs with, and what comes of computing on GPUs, reaching other processes and rendering.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::rank_probe::{
    ComputedOnGpus, DrawnPicture, LoadedLibraries, RankQuestion, RoundTrip, WORD,
};
use serde::de::DeserializeOwned;

use crate::installed::{is_torch_of_ours, rank_binary};
use crate::process::timed::{self, EndedProgram};
use crate::tools::doctor::Site;
use crate::tools::doctor::check::Finding;

/// Name of the finding that the binary starts.
pub(super) const NAME: &str = "rrun-rank";

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

/// What makes a GPU render its own pictures.
const OTHER_DEVICE: &str = "install the GPU driver's EGL; in a container, docker run -e \
                            NVIDIA_DRIVER_CAPABILITIES=all, or apptainer --nv; `eval --egl-device \
                            N` chooses a device";

/// Examines whether the rank binary is there and finds its libraries.
pub(super) fn libraries(site: &Site) -> Vec<Finding> {
    match rank_binary(&site.node.executable) {
        Ok(binary) => {
            let answer = ask(site, RankQuestion::Libraries);
            of_libraries(&binary, &answer)
        }
        Err(missing) => {
            let found = format!("`{}` does not exist", missing.display());
            let remedy = "install rrun again with pip, or build it with `make`; rrun and rrun-rank \
                          stay in one folder";
            vec![Finding::failed(NAME, found, remedy)]
        }
    }
}

pub(super) fn cuda(site: &Site) -> Vec<Finding> {
    if site.visible_gpus() == 0 {
        return Vec::new();
    }
    judged("CUDA", ask(site, RankQuestion::Cuda), CUDA_HELP, of_cuda)
}

pub(super) fn nccl(site: &Site) -> Vec<Finding> {
    if site.visible_gpus() < 2 {
        return Vec::new();
    }
    judged("NCCL", ask(site, RankQuestion::Nccl), NCCL_HELP, of_nccl)
}

pub(super) fn egl(site: &Site) -> Vec<Finding> {
    let answer = ask(site, RankQuestion::Egl);
    let of = |pictures: &Vec<DrawnPicture>| pictures.iter().map(of_picture).collect();
    judged("EGL", answer, INSTALL_EGL, of)
}

/// Judges an answer by `of`. Without an answer, the reason may say what to do, otherwise it is
/// `usual`.
fn judged<T>(
    name: &str,
    answer: Result<T, Unanswered>,
    usual: &str,
    of: impl FnOnce(&T) -> Vec<Finding>,
) -> Vec<Finding> {
    let Unanswered { found, remedy } = match answer {
        Ok(answer) => return of(&answer),
        Err(unanswered) => unanswered,
    };
    // The reason of the rank repeats what to install.
    let mut reasons = found.split("; install the packages");
    let reason = reasons.next().unwrap_or_default();
    vec![Finding::failed(name, reason, remedy.unwrap_or(usual))]
}

/// Runs the rank binary with a question, and returns its answer.
fn ask<T: DeserializeOwned>(site: &Site, question: RankQuestion) -> Result<T, Unanswered> {
    let binary = rank_binary(&site.node.executable);
    let mut command = Command::new(binary.unwrap_or_else(|missing| missing));
    command.args([WORD, question.name()]);
    // A log would be mixed with the reason on standard error.
    command.env_remove("RRUN_LOG").env_remove("RUST_LOG");
    match timed::run(&mut command, site.timeout) {
        Ok(ended) => read(&ended),
        Err(err) => Err(Unanswered::new(format!("{err:#}"), None)),
    }
}

fn of_libraries(binary: &Path, answer: &Result<LoadedLibraries, Unanswered>) -> Vec<Finding> {
    match answer {
        Ok(libraries) => vec![
            of_binary(binary, libraries),
            of_libtorch(libraries),
            Finding::ok("MuJoCo", &libraries.mujoco),
        ],
        Err(Unanswered { found, remedy }) => {
            let found = format!("`{}` does not start: {found}", binary.display());
            let remedy = remedy.unwrap_or("install rrun again with pip, or build it with `make`");
            vec![Finding::failed(NAME, found, remedy)]
        }
    }
}

fn of_binary(binary: &Path, libraries: &LoadedLibraries) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    let found = format!("{}, `{}`", libraries.rrun, binary.display());
    let version = libraries.rrun.split(' ').next();
    if version == Some(own) {
        return Finding::ok(NAME, found);
    }
    let found = format!("{found}, but rrun is {own}");
    let remedy = "install rrun again: both programs must come from one build";
    Finding::failed(NAME, found, remedy)
}

fn of_libtorch(libraries: &LoadedLibraries) -> Finding {
    let name = "libtorch";
    let folder = libraries.libtorch_folder.as_deref();
    let folder = folder.unwrap_or("an unknown folder");
    let half = match libraries.has_cuda_half {
        true => "with CUDA",
        false => "CPU only",
    };
    let Some(version) = &libraries.libtorch else {
        let found = format!("of unknown version, {half}, in `{folder}`");
        return Finding::warning(name, found, TORCH);
    };
    let found = format!("{version}, {half}, in `{folder}`");
    if is_torch_of_ours(version) {
        return Finding::ok(name, found);
    }
    let found = format!("{found}: expected 2.11 or 2.12");
    Finding::failed(name, found, TORCH)
}

fn of_cuda(computed: &ComputedOnGpus) -> Vec<Finding> {
    let (runtime, nccl) = (&computed.runtime, &computed.nccl);
    let gpus = counted(computed.gpus.len(), "GPU");
    let found = format!("runtime {runtime}, NCCL {nccl}, a product on {gpus}");
    let mut all = vec![Finding::ok("CUDA", found)];
    for (index, gpu) in computed.gpus.iter().enumerate() {
        if let Some(error) = &gpu.error {
            let found = format!("{} does not compute: {error}", gpu.name);
            let remedy = "see `nvidia-smi` and `dmesg`; leave it out with CUDA_VISIBLE_DEVICES";
            all.push(Finding::failed(format!("cuda:{index}"), found, remedy));
        }
    }
    all
}

fn of_nccl(trip: &RoundTrip) -> Vec<Finding> {
    let found = format!(
        "{} processes met in {:.1} s, an all-reduce of {} takes {:.1} ms",
        trip.processes,
        trip.meeting_s,
        ByteSize(trip.bytes),
        trip.all_reduce_s * 1e3
    );
    vec![Finding::ok("NCCL", found)]
}

fn of_picture(picture: &DrawnPicture) -> Finding {
    let name = match picture.gpu {
        Some(gpu) => format!("EGL cuda:{gpu}"),
        None => "EGL".to_owned(),
    };
    let found = format!(
        "{}, device `{}`, two pictures of 224 x 224 in {:.1} ms",
        picture.renderer,
        picture.device,
        picture.pair_s * 1e3
    );
    match (&picture.note, picture.gpu, picture.is_software) {
        (Some(note), _, _) => {
            let found = format!("{found}: {}", without_advice(note));
            Finding::warning(name, found, OTHER_DEVICE)
        }
        (None, Some(_), true) => Finding::warning(name, found, OTHER_DEVICE),
        _ => Finding::ok(name, found),
    }
}

/// Returns the note of a rank without what it advises.
fn without_advice(note: &str) -> &str {
    ["; a container gets", "; --egl-device"]
        .into_iter()
        .filter_map(|advice| note.find(advice))
        .min()
        .map_or(note, |end| &note[..end])
}

/// The torch that rrun supports, as `pip` writes it.
const TORCH: &str = "`pip install 'torch>=2.11,<2.13'` into the venv of rrun (in the \
                                source: ./setup.sh)";

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unanswered {
    /// What was found.
    found: String,
    /// What to do, if that follows from it.
    remedy: Option<&'static str>,
}

impl Unanswered {
    fn new(found: impl Into<String>, remedy: Option<&'static str>) -> Self {
        Self {
            found: found.into(),
            remedy,
        }
    }
}

/// Finds the answer between the lines of libraries.
fn read<T: DeserializeOwned>(ended: &EndedProgram) -> Result<T, Unanswered> {
    let answers = ended.stdout.lines().rev();
    let answer = answers
        .filter_map(|line| serde_json::from_str::<Result<T, String>>(line).ok())
        .next();
    match answer {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(reason)) => Err(Unanswered::new(reason, None)),
        None => Err(explained(ended)),
    }
}

/// Explains the end of a program that has not answered: most often the dynamic loader has ended it.
fn explained(ended: &EndedProgram) -> Unanswered {
    /// signal(7): illegal instruction.
    const SIGILL: i32 = 4;

    let stderr = &ended.stderr;
    if let Some(library) = missing_library(stderr) {
        let remedy = match library {
            _ if library.starts_with("libtorch") || library.starts_with("libc10") => TORCH,
            _ if library.starts_with("libmujoco") => {
                "`pip install mujoco==3.17.0` into the venv of rrun (in the source: ./setup.sh)"
            }
            _ => "install the package with this library",
        };
        return Unanswered::new(format!("`{library}` is missing"), Some(remedy));
    }
    if let Some(line) = line_with(stderr, "undefined symbol") {
        let found = format!("it needs another version of a library: {line}");
        return Unanswered::new(found, Some(TORCH));
    }
    if let Some(line) = line_with(stderr, "GLIBC") {
        let remedy = "use a system with glibc 2.34 or newer, or a container (deploy/)";
        return Unanswered::new(format!("the system is too old: {line}"), Some(remedy));
    }
    if ended.status.signal() == Some(SIGILL) {
        let remedy = "use another machine; in a virtual machine, pass the host's CPU model on";
        return Unanswered::new("the CPU lacks an instruction that it needs", Some(remedy));
    }
    let last = stderr.lines().rfind(|line| !line.trim().is_empty());
    let last = last.map_or_else(String::new, |line| format!(": {line}"));
    Unanswered::new(format!("it ended with {}{last}", ended.status), None)
}

/// Returns the library that the dynamic loader has not found.
fn missing_library(stderr: &str) -> Option<&str> {
    let (_, rest) = stderr.split_once("error while loading shared libraries: ")?;
    let (library, _) = rest.split_once(": cannot open shared object file")?;
    Some(library)
}

fn line_with<'a>(text: &'a str, part: &str) -> Option<&'a str> {
    text.lines().find(|line| line.contains(part))
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use jobs::rank_probe::ComputedOnGpu;

    use super::*;
    use crate::tools::doctor::check::Grade;

    fn libraries(rrun: &str, libtorch: Option<&str>) -> LoadedLibraries {
        LoadedLibraries {
            rrun: rrun.to_owned(),
            libtorch: libtorch.map(str::to_owned),
            libtorch_folder: Some("/venv/torch/lib".to_owned()),
            has_cuda_half: false,
            mujoco: "3.17.0".to_owned(),
        }
    }

    fn all(rrun: &str, libtorch: Option<&str>) -> Vec<Grade> {
        let answer = Ok(libraries(rrun, libtorch));
        let all = of_libraries(Path::new("/bin/rrun-rank"), &answer);
        all.iter().map(|one| one.grade).collect()
    }

    #[test]
    fn the_supported_torch_is_ok_and_another_fails() {
        let own = concat!(env!("CARGO_PKG_VERSION"), " (1a2b3c4d5e6f)");
        assert_eq!(all(own, Some("2.11.0+cpu")), [Grade::Ok; 3]);
        assert_eq!(all(own, Some("2.13.0"))[1], Grade::Failed);
        assert_eq!(all(own, None)[1], Grade::Warning);
        let found = of_libtorch(&libraries(own, Some("2.12.1+cu130"))).found;
        assert_eq!(found, "2.12.1+cu130, CPU only, in `/venv/torch/lib`");
    }

    #[test]
    fn a_rank_of_another_version_fails() {
        assert_eq!(all("9.9.9", Some("2.11.0"))[0], Grade::Failed);
    }

    #[test]
    fn a_rank_that_does_not_start_fails_with_the_reason() {
        let unanswered = Unanswered::new("`libtorch_cpu.so` is missing", Some(TORCH));
        let all = of_libraries(Path::new("/bin/rrun-rank"), &Err(unanswered));
        let found = "`/bin/rrun-rank` does not start: `libtorch_cpu.so` is missing";
        assert_eq!(all, [Finding::failed(NAME, found, TORCH)]);
    }

    #[test]
    fn a_gpu_that_does_not_compute_fails_alone() {
        let gpu = |error: Option<&str>| ComputedOnGpu {
            name: "NVIDIA H200".to_owned(),
            error: error.map(str::to_owned),
        };
        let computed = ComputedOnGpus {
            runtime: "13.0".to_owned(),
            nccl: "2.28.9".to_owned(),
            gpus: vec![gpu(None), gpu(Some("CUDA error: ECC"))],
        };
        let all = of_cuda(&computed);
        assert_eq!(
            all[0].found,
            "runtime 13.0, NCCL 2.28.9, a product on 2 GPUs"
        );
        assert_eq!((&*all[1].name, all[1].grade), ("cuda:1", Grade::Failed));
    }

    #[test]
    fn a_round_trip_is_told_with_its_time() {
        let trip = RoundTrip {
            processes: 2,
            bytes: 1 << 20,
            all_reduce_s: 0.0021,
            meeting_s: 0.62,
        };
        assert_eq!(
            of_nccl(&trip)[0].found,
            "2 processes met in 0.6 s, an all-reduce of 1 MiB takes 2.1 ms"
        );
        let unanswered = Err(Unanswered::new("timed out", None));
        let failed = Finding::failed("NCCL", "timed out", NCCL_HELP);
        assert_eq!(judged("NCCL", unanswered, NCCL_HELP, of_nccl), [failed]);
    }

    #[test]
    fn a_picture_on_the_cpu_is_a_warning_only_for_a_gpu() {
        let drawn = |gpu: Option<usize>, note: Option<&str>| {
            of_picture(&DrawnPicture {
                renderer: "llvmpipe".to_owned(),
                device: "Mesa on the CPU".to_owned(),
                is_software: true,
                gpu,
                note: note.map(str::to_owned),
                pair_s: 0.0132,
            })
        };
        let alone = drawn(None, None);
        assert_eq!(alone.grade, Grade::Ok);
        assert_eq!(
            alone.found,
            "llvmpipe, device `Mesa on the CPU`, two pictures of 224 x 224 in 13.2 ms"
        );
        assert_eq!(drawn(Some(0), None).grade, Grade::Warning);
        let note = "EGL draws pictures on the CPU: no EGL device belongs to cuda:1 (0: Mesa; 1: \
                    Mesa); a container gets it with x; --egl-device takes another";
        let elsewhere = drawn(Some(1), Some(note));
        assert_eq!(elsewhere.name, "EGL cuda:1");
        assert!(elsewhere.found.ends_with("cuda:1 (0: Mesa; 1: Mesa)"));
    }

    #[test]
    fn without_egl_the_packages_are_named_once() {
        let reason = "cannot render without a display: libEGL.so.1 is missing; install the \
                      packages libegl1";
        let unanswered = Err(Unanswered::new(reason, None));
        let all = judged("EGL", unanswered, INSTALL_EGL, |(): &()| Vec::new());
        assert_eq!(
            all[0].found,
            "cannot render without a display: libEGL.so.1 is missing"
        );
        assert_eq!(all[0].remedy.as_deref(), Some(INSTALL_EGL));
    }

    fn ended(raw_status: i32, stdout: &str, stderr: &str) -> EndedProgram {
        EndedProgram {
            status: ExitStatus::from_raw(raw_status),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    #[test]
    fn an_answer_is_found_between_other_lines() {
        let answer = read::<u32>(&ended(0, "hello\n{\"Ok\":7}\n[W] bye\n", ""));
        assert_eq!(answer, Ok(7));
        let failed = read::<u32>(&ended(256, "{\"Err\":\"no device\"}\n", "x"));
        assert_eq!(failed, Err(Unanswered::new("no device", None)));
    }

    #[test]
    fn a_program_that_does_not_answer_is_told_with_what_it_lacks_or_its_last_words() {
        let library = "rrun-rank: error while loading shared libraries: libtorch_cpu.so: cannot \
                       open shared object file: No such file or directory\n";
        let symbol = "rrun-rank: undefined symbol: _ZN3c10\n";
        let system = "libc.so.6: version `GLIBC_2.34' not found\n";
        for (status, stderr, found, remedy) in [
            (
                127 << 8,
                library,
                "`libtorch_cpu.so` is missing",
                Some(TORCH),
            ),
            (127 << 8, symbol, "", Some(TORCH)),
            (1 << 8, system, "the system is too old", None),
            (4, "", "the CPU lacks an instruction that it needs", None),
            (11, "first\nlast\n\n", "it ended with signal: 11", None),
        ] {
            let reason = read::<u32>(&ended(status, "", stderr)).unwrap_err();
            assert!(reason.found.starts_with(found), "{reason:?}");
            assert!(remedy.is_none() || reason.remedy == remedy, "{reason:?}");
            assert_eq!(reason.found.ends_with(": last"), status == 11, "{reason:?}");
        }
    }
}
