//! Checks the GPUs by the files of the kernel and by NVML.

use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::finding::Finding;

use crate::node::nvml::{self, NvmlGpu, NvmlMachine};
use crate::tools::doctor::Site;

/// The name of the first result.
const NAME: &str = "NVIDIA driver";

/// How a container gets the driver's libraries.
const CONTAINER_HELP: &str = "install the driver's libraries; in a container, docker run --gpus \
                              all -e NVIDIA_DRIVER_CAPABILITIES=all, or apptainer --nv";

pub(super) fn examine(site: &Site) -> Vec<Finding> {
    let shown = site.env.visible_devices();
    let shown = shown.as_deref().map(|list| (list, site.visible_gpus()));
    judged(site.node.gpus.len(), shown, nvml::machine())
}

/// Judges the number of GPUs of the kernel's driver, the value of `CUDA_VISIBLE_DEVICES` with the
/// number of GPUs that it shows, and what NVML says.
fn judged(
    of_kernel: usize,
    shown: Option<(&str, usize)>,
    nvml: Result<NvmlMachine, String>,
) -> Vec<Finding> {
    let machine = match nvml {
        Ok(machine) => machine,
        Err(_) if of_kernel == 0 => {
            let found = "no NVIDIA GPU: policies and rendering run on the CPU";
            return vec![Finding::note(NAME, found)];
        }
        Err(reason) => {
            let gpus = counted(of_kernel, "GPU");
            let found = format!("{gpus}, but NVML cannot be used: {reason}");
            return vec![Finding::failed(NAME, found, CONTAINER_HELP)];
        }
    };
    let cuda = machine.cuda.as_ref();
    let cuda = cuda.map_or_else(String::new, |cuda| format!(", CUDA up to {cuda}"));
    let gpus = counted(machine.gpus.len(), "GPU");
    let found = format!("{}{cuda}, NVML, {gpus}", machine.driver);
    let first = match shown {
        Some((list, visible)) if visible < machine.gpus.len() => {
            let found = format!("{found}; CUDA_VISIBLE_DEVICES={list} shows {visible}");
            Finding::note(NAME, found)
        }
        _ => Finding::ok(NAME, found),
    };
    let gpus = machine.gpus.iter().enumerate();
    std::iter::once(first)
        .chain(gpus.map(|(index, gpu)| of_gpu(index, gpu)))
        .collect()
}

fn of_gpu(index: usize, gpu: &NvmlGpu) -> Finding {
    let name = format!("GPU {index}");
    let memory = gpu.memory;
    let model = match gpu.name.as_str() {
        "" => "unnamed GPU",
        name => name,
    };
    let found = format!(
        "{model}, {} free of {}",
        ByteSize(memory.total.saturating_sub(memory.used)),
        ByteSize(memory.total)
    );
    if gpu.is_exclusive {
        let found = format!("{found}; its compute mode lets only one process use it");
        let remedy = "start one rank per GPU, or `nvidia-smi --compute-mode=0`";
        return Finding::warning(name, found, remedy);
    }
    if memory.used > memory.total / 2 {
        let remedy = "`nvidia-smi` names the processes that use it; choose other GPUs with \
                      CUDA_VISIBLE_DEVICES";
        return Finding::warning(name, format!("{found}: it is in use"), remedy);
    }
    Finding::ok(name, found)
}

#[cfg(test)]
mod tests {
    use jobs::finding::Grade;

    use super::*;
    use crate::node::nvml::GpuMemory;

    fn gpu(used_gib: u64) -> NvmlGpu {
        NvmlGpu {
            name: "NVIDIA H200".to_owned(),
            memory: GpuMemory {
                total: 140 << 30,
                used: used_gib << 30,
            },
            ..NvmlGpu::default()
        }
    }

    fn of_machine(shown: Option<(&str, usize)>, gpus: &[NvmlGpu]) -> Vec<Finding> {
        let machine = NvmlMachine {
            driver: "580.65.06".to_owned(),
            cuda: Some("13.0".to_owned()),
            gpus: gpus.to_vec(),
        };
        judged(2, shown, Ok(machine))
    }

    #[test]
    fn gpus_without_nvml_fail_with_what_a_container_needs() {
        let all = judged(2, None, Err("no library".to_owned()));
        assert_eq!(all[0].grade, Grade::Failed);
        assert_eq!(all[0].found, "2 GPUs, but NVML cannot be used: no library");
        assert!(all[0].remedy.as_ref().unwrap().contains("--nv"));
        let all = judged(0, None, Err("no library".to_owned()));
        assert_eq!((all.len(), all[0].grade), (1, Grade::Note));
    }

    #[test]
    fn every_gpu_has_a_line_and_one_in_use_or_for_one_process_is_a_warning() {
        let all = of_machine(None, &[gpu(1), gpu(100)]);
        assert_eq!(all[0].found, "580.65.06, CUDA up to 13.0, NVML, 2 GPUs");
        let free = "NVIDIA H200, 139.0 GiB free of 140.0 GiB";
        assert_eq!(all[1], Finding::ok("GPU 0", free));
        assert_eq!(all[2].grade, Grade::Warning);
        let exclusive = NvmlGpu {
            is_exclusive: true,
            ..gpu(1)
        };
        assert_eq!(of_gpu(0, &exclusive).grade, Grade::Warning);
    }

    #[test]
    fn hidden_gpus_are_told() {
        let found = &of_machine(Some(("1", 1)), &[gpu(1), gpu(1)])[0];
        assert_eq!(found.grade, Grade::Note);
        assert!(found.found.ends_with("CUDA_VISIBLE_DEVICES=1 shows 1"));
    }
}
