//! Judges what the rank binary has tried: computing on GPUs, reaching other processes, rendering.

use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::rank_probe::{ComputedOnGpus, DrawnPicture, RoundTrip};

use crate::tools::doctor::diagnosis::Diagnosis;
use crate::tools::doctor::rank::answer::Unanswered;

/// What makes rendering work.
const INSTALL_EGL: &str = "install libegl1 libegl-mesa0 libgl1-mesa-dri (RHEL: mesa-libEGL \
                           mesa-dri-drivers) or the GPU driver's EGL, or evaluate without cameras \
                           (--no-video)";

/// What makes a GPU render its own pictures.
const OTHER_DEVICE: &str = "install the GPU driver's EGL; in a container, docker run -e \
                            NVIDIA_DRIVER_CAPABILITIES=all, or apptainer --nv; `eval --egl-device \
                            N` chooses a device";

pub(super) fn of_cuda(answer: &Result<ComputedOnGpus, Unanswered>) -> Vec<Diagnosis> {
    let name = "CUDA";
    let computed = match answer {
        Ok(computed) => computed,
        Err(unanswered) => {
            let usual = "update the driver (torch 2.11 and 2.12 have CUDA 13, which needs 580 or \
                         newer), or run on the CPU with CUDA_VISIBLE_DEVICES=''";
            return vec![failed(name, unanswered, usual)];
        }
    };
    let mut all = vec![Diagnosis::ok(
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
            all.push(Diagnosis::failed(format!("cuda:{index}"), found, remedy));
        }
    }
    all
}

pub(super) fn of_nccl(answer: &Result<RoundTrip, Unanswered>) -> Diagnosis {
    match answer {
        Ok(trip) => Diagnosis::ok(
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

pub(super) fn of_egl(answer: &Result<Vec<DrawnPicture>, Unanswered>) -> Vec<Diagnosis> {
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

fn of_picture(picture: &DrawnPicture) -> Diagnosis {
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
            Diagnosis::warning(name, found, OTHER_DEVICE)
        }
        (None, Some(_), true) => Diagnosis::warning(name, found, OTHER_DEVICE),
        _ => Diagnosis::ok(name, found),
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

fn failed(name: &str, unanswered: &Unanswered, usual: &'static str) -> Diagnosis {
    let remedy = unanswered.remedy.unwrap_or(usual);
    Diagnosis::failed(name, &unanswered.found, remedy)
}

#[cfg(test)]
mod tests {
    use jobs::rank_probe::ComputedOnGpu;

    use super::*;
    use crate::tools::doctor::diagnosis::Health;

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
        assert_eq!((&*all[1].name, all[1].health), ("cuda:1", Health::Failed));
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
        assert_eq!(failed.health, Health::Failed);
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
        assert_eq!(alone.health, Health::Ok);
        assert_eq!(
            alone.found,
            "llvmpipe, device `Mesa on the CPU`, two pictures of 224 x 224 in 13.2 ms"
        );
        assert_eq!(drawn(Some(0), None).health, Health::Warning);
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
