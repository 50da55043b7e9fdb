//! Asks the rank binary, which has libtorch, MuJoCo and CUDA, whether they work: which libraries it
//! runs with, and what comes of computing on GPUs, reaching other processes and rendering.

mod answer;

use std::path::Path;

use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::rank_probe::{ComputedOnGpus, DrawnPicture, LoadedLibraries, RankQuestion, RoundTrip};
use serde::de::DeserializeOwned;

use crate::installed::rank_binary;
use crate::tools::doctor::Site;
use crate::tools::doctor::check::Finding;
use crate::tools::doctor::rank::answer::{TORCH, Unanswered};

/// Name of the finding that the binary starts.
pub(super) const NAME: &str = "rrun-rank";

/// Versions of torch with which `rrun-rank` works.
const KNOWN: [&str; 2] = ["2.11.", "2.12."];

/// What makes rendering work.
const INSTALL_EGL: &str = "install libegl1 libegl-mesa0 libgl1-mesa-dri (RHEL: mesa-libEGL \
                           mesa-dri-drivers) or the GPU driver's EGL, or evaluate without cameras \
                           (--no-video)";

/// What makes a GPU render its own pictures.
const OTHER_DEVICE: &str = "install the GPU driver's EGL; in a container, docker run -e \
                            NVIDIA_DRIVER_CAPABILITIES=all, or apptainer --nv; `eval --egl-device \
                            N` chooses a device";

/// Examines whether the rank binary is there and finds its libraries.
pub(super) fn libraries(site: &Site) -> Vec<Finding> {
    match rank_binary(&site.node.executable) {
        Ok(binary) => {
            let answer = answer::ask(&binary, RankQuestion::Libraries, site.timeout);
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
    of_cuda(&ask(site, RankQuestion::Cuda))
}

pub(super) fn nccl(site: &Site) -> Vec<Finding> {
    if site.visible_gpus() < 2 {
        return Vec::new();
    }
    vec![of_nccl(&ask(site, RankQuestion::Nccl))]
}

pub(super) fn egl(site: &Site) -> Vec<Finding> {
    of_egl(&ask(site, RankQuestion::Egl))
}

fn ask<T: DeserializeOwned>(site: &Site, question: RankQuestion) -> Result<T, Unanswered> {
    let binary = rank_binary(&site.node.executable);
    let binary = binary.unwrap_or_else(|missing| missing);
    answer::ask(&binary, question, site.timeout)
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
    if KNOWN.iter().any(|known| version.starts_with(known)) {
        return Finding::ok(name, found);
    }
    let found = format!("{found}: expected 2.11 or 2.12");
    Finding::failed(name, found, TORCH)
}

fn of_cuda(answer: &Result<ComputedOnGpus, Unanswered>) -> Vec<Finding> {
    let name = "CUDA";
    let computed = match answer {
        Ok(computed) => computed,
        Err(unanswered) => {
            let usual = "update the driver (torch 2.11 and 2.12 have CUDA 13, which needs 580 or \
                         newer), or run on the CPU with CUDA_VISIBLE_DEVICES=''";
            return vec![failed(name, unanswered, usual)];
        }
    };
    let mut all = vec![Finding::ok(
        name,
        format!(
            "runtime {}, NCCL {}, a product on {}",
            computed.runtime,
            computed.nccl,
            counted(computed.gpus.len(), "GPU")
        ),
    )];
    for (index, gpu) in computed.gpus.iter().enumerate() {
        if let Some(error) = &gpu.error {
            let found = format!("{} does not compute: {error}", gpu.name);
            let remedy = "see `nvidia-smi` and `dmesg`; leave it out with CUDA_VISIBLE_DEVICES";
            all.push(Finding::failed(format!("cuda:{index}"), found, remedy));
        }
    }
    all
}

fn of_nccl(answer: &Result<RoundTrip, Unanswered>) -> Finding {
    match answer {
        Ok(trip) => Finding::ok(
            "NCCL",
            format!(
                "{} met in {:.1} s, an all-reduce of {} takes {:.1} ms",
                format_args!("{} processes", trip.processes),
                trip.meeting_s,
                ByteSize(trip.bytes),
                trip.all_reduce_s * 1e3
            ),
        ),
        Err(unanswered) => {
            let usual = "NCCL_DEBUG=INFO with `rrun-rank probe nccl` tells why; \
                         NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 may help";
            failed("NCCL", unanswered, usual)
        }
    }
}

fn of_egl(answer: &Result<Vec<DrawnPicture>, Unanswered>) -> Vec<Finding> {
    match answer {
        Ok(pictures) => pictures.iter().map(of_picture).collect(),
        Err(unanswered) => {
            // The reason of the rank repeats what to install.
            let (reason, _) = unanswered
                .found
                .split_once("; install the packages")
                .unwrap_or((&unanswered.found, ""));
            let unanswered = Unanswered {
                found: reason.to_owned(),
                ..unanswered.clone()
            };
            vec![failed("EGL", &unanswered, INSTALL_EGL)]
        }
    }
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

fn failed(name: &str, unanswered: &Unanswered, usual: &'static str) -> Finding {
    let remedy = unanswered.remedy.unwrap_or(usual);
    Finding::failed(name, &unanswered.found, remedy)
}

#[cfg(test)]
mod tests {
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
        let unanswered = Unanswered {
            found: "`libtorch_cpu.so` is missing".to_owned(),
            remedy: Some(TORCH),
        };
        let all = of_libraries(Path::new("/bin/rrun-rank"), &Err(unanswered));
        let found = "`/bin/rrun-rank` does not start: `libtorch_cpu.so` is missing";
        assert_eq!(all, [Finding::failed(NAME, found, TORCH)]);
    }

    fn unanswered(found: &str) -> Unanswered {
        Unanswered {
            found: found.to_owned(),
            remedy: None,
        }
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
        let all = of_cuda(&Ok(computed));
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
        let found = of_nccl(&Ok(trip)).found;
        assert_eq!(
            found,
            "2 processes met in 0.6 s, an all-reduce of 1 MiB takes 2.1 ms"
        );
        let failed = of_nccl(&Err(unanswered("timed out")));
        assert_eq!(failed.grade, Grade::Failed);
        assert!(failed.remedy.unwrap().contains("NCCL_DEBUG=INFO"));
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
        let all = of_egl(&Err(unanswered(reason)));
        assert_eq!(
            all[0].found,
            "cannot render without a display: libEGL.so.1 is missing"
        );
        assert_eq!(all[0].remedy.as_deref(), Some(INSTALL_EGL));
    }
}
