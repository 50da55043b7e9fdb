//! Chooses the environment variables for the GPU, display and CPU share of a simulator's process.
//! Pure: no I/O except [`pci`].
//!
//! | variable | who reads it |
//! |---|---|
//! | `CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER` | CUDA, and with it Isaac Sim, SAPIEN, Habitat |
//! | `MUJOCO_EGL_DEVICE_ID` | mujoco: index among all EGL devices; robosuite (see below) |
//! | `EGL_DEVICE_ID` | pyrender, older dm_control |
//! | `EGL_VISIBLE_DEVICES` | PyBullet's EGL plugin |
//! | `OMNIGIBSON_GPU_ID` | OmniGibson |
//! | `PYTHONHASHSEED` | Python: the order of sets |
//! | `DRI_PRIME` | Mesa's Vulkan layer that puts a device first, by its PCI address |
//!
//! The first and the last identify the GPU itself; the three EGL variables hold the index of its
//! EGL device, which may be another number. robosuite requires that `MUJOCO_EGL_DEVICE_ID` occurs
//! in `CUDA_VISIBLE_DEVICES`. That check is a text search, and a number behind a `-1`, where CUDA
//! stops reading, satisfies it: `CUDA_VISIBLE_DEVICES=3,-1,0` shows GPU 3 alone (CUDA C++
//! Programming Guide, "CUDA Environment Variables"). Simulators that take their GPU as an argument
//! (AI2-THOR, Unity, Kit) get it through `"{gpu}"` in `env_kwargs`.

use crate::python::Variable;

/// The placement of a simulator's process.
#[derive(Clone, Debug, Default)]
pub struct ProcessPlace {
    /// Its GPU, as `nvidia-smi` counts; `None` for the CPU. `{gpu}` in variables of the job.
    pub gpu: Option<u32>,
    /// Index of its first copy, `{env}`.
    pub env: usize,
    /// Rank of this process, `{rank}`.
    pub rank: usize,
    /// Index of its EGL device.
    pub egl_device: Option<u32>,
    /// PCI address of the GPU, `0000:3b:00.0`.
    pub pci: Option<String>,
    /// X display, if it differs from that of the rank.
    pub display: Option<String>,
    /// Number of CPU cores of the machine, which its processes share.
    pub cores: usize,
    /// Number of simulator processes on the machine.
    pub processes: usize,
}

/// Returns the variables of a process. `inherited` tells whether the rank has a variable; those in
/// `given` are the job's and win.
pub fn variables(
    place: &ProcessPlace,
    given: &[Variable],
    inherited: impl Fn(&str) -> bool,
) -> Vec<Variable> {
    let mut all: Vec<Variable> = Vec::new();
    let mut set = |name: &str, value: String| all.push((name.to_owned(), Some(value)));
    if let Some(gpu) = place.gpu {
        set("CUDA_VISIBLE_DEVICES", visible(gpu, place.egl_device));
        set("OMNIGIBSON_GPU_ID", gpu.to_string());
        // Without it, CUDA lists the fastest GPU first.
        set("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
        if let Some(pci) = &place.pci {
            set("DRI_PRIME", format!("pci-{}", pci.replace([':', '.'], "_")));
        }
    }
    if let Some(device) = place.egl_device {
        let names = [
            "MUJOCO_EGL_DEVICE_ID",
            "EGL_DEVICE_ID",
            "EGL_VISIBLE_DEVICES",
        ];
        names.iter().for_each(|name| set(name, device.to_string()));
    }
    if !inherited("MUJOCO_GL") {
        // MuJoCo's default is a window.
        set("MUJOCO_GL", "egl".to_owned());
    }
    if !inherited("PYTHONHASHSEED") {
        // Sets of strings then have the same order in each process, and so does anything a
        // simulator derives from them.
        set("PYTHONHASHSEED", "0".to_owned());
    }
    if let Some(display) = &place.display {
        set("DISPLAY", display.clone());
    }
    set(
        "OMP_NUM_THREADS",
        (place.cores / place.processes.max(1)).max(1).to_string(),
    );
    all.retain(|(name, _)| given.iter().all(|(other, _)| other != name));
    all.extend(given.iter().map(|variable| place.fill(variable)));
    all
}

/// Returns a `CUDA_VISIBLE_DEVICES` that shows this GPU alone, with its EGL device in the text.
fn visible(gpu: u32, egl_device: Option<u32>) -> String {
    match egl_device.filter(|device| *device != gpu) {
        Some(device) => format!("{gpu},-1,{device}"),
        None => gpu.to_string(),
    }
}

/// Returns the PCI address of a GPU; `nvidia-smi` lists GPUs in the order of their addresses.
pub fn pci(gpu: u32) -> Option<String> {
    let folder = std::fs::read_dir("/proc/driver/nvidia/gpus").ok()?;
    let mut addresses: Vec<_> = folder
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    addresses.sort_unstable();
    addresses.into_iter().nth(gpu as usize)
}

impl ProcessPlace {
    /// Fills in the placeholders of a variable; those in `env_kwargs` are filled in by the process.
    /// A variable that is just `{gpu}` is removed if there is no GPU.
    fn fill(&self, (name, value): &Variable) -> Variable {
        let gpu = self.gpu.map_or(String::new(), |gpu| gpu.to_string());
        let value = value.as_ref();
        let value = value.filter(|text| self.gpu.is_some() || text.as_str() != "{gpu}");
        let filled = value.map(|text| {
            text.replace("{gpu}", &gpu)
                .replace("{env}", &self.env.to_string())
                .replace("{rank}", &self.rank.to_string())
        });
        (name.clone(), filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the variables that differ from those of the rank, for a place and variables of the
    /// job, `NAME=value`, and of the rank, `+NAME`.
    fn set(given: &str) -> String {
        let (mut place, mut of_job, mut inherited) = (ProcessPlace::default(), vec![], vec![]);
        for word in given.split_whitespace() {
            if let Some(name) = word.strip_prefix('+') {
                inherited.push(name);
                continue;
            }
            let (name, value) = word.split_once('=').unwrap();
            match name {
                "gpu" => place.gpu = value.parse().ok(),
                "egl" => place.egl_device = value.parse().ok(),
                "pci" => place.pci = Some(value.to_owned()),
                "display" => place.display = Some(value.to_owned()),
                "cores" => place.cores = value.parse().unwrap(),
                "processes" => place.processes = value.parse().unwrap(),
                _ => of_job.push((name.to_owned(), (value != "-").then(|| value.to_owned()))),
            }
        }
        let mut all = variables(&place, &of_job, |name| inherited.contains(&name));
        all.sort_unstable();
        let shown =
            |(name, value): &Variable| format!("{name}={}\n", value.as_deref().unwrap_or("-"));
        all.iter().map(shown).collect()
    }

    #[test]
    fn a_process_gets_the_variables_of_its_place_and_those_of_its_job_win() {
        rig::cases::check("src/env/python/variables.txt", set);
    }

    #[test]
    fn placeholders_become_numbers_where_they_stand_alone() {
        let place = ProcessPlace {
            gpu: Some(2),
            env: 5,
            rank: 1,
            ..ProcessPlace::default()
        };
        let variable = |text: &str| ("A".to_owned(), Some(text.to_owned()));
        let filled = place.fill(&variable("{gpu}:r{rank}-e{env}"));
        assert_eq!(filled, variable("2:r1-e5"));
        assert_eq!(place.fill(&variable("{gpu}")), variable("2"));
        let nowhere = ProcessPlace { gpu: None, ..place };
        assert_eq!(nowhere.fill(&variable("{gpu}")), ("A".to_owned(), None));
    }
}
