//! The registry: creates environments by name.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use jobs::environments::{Simulator, is_python_environment};
use jobs::eval_args::Screen;
use jobs::job::Job;
use jobs::refusal::Refusal;

use crate::env::egl::{self, EglDevice, EglRequest, Gpu};
use crate::env::mujoco::{self, MujocoSettings};
use crate::env::python::{self, PythonConfig};
use crate::env::{EnvError, VectorEnv};

/// A new environment, and what it does not use of its job.
pub struct NewEnv {
    /// The environment.
    pub env: Box<dyn VectorEnv>,
    /// Names of the fields in `arena_env_args` and `variations` without effect.
    pub ignored: Vec<String>,
    /// Messages for the user about assumptions and omissions of the environment.
    pub notes: Vec<String>,
    /// Versions of the packages that simulate, by name; empty for a built-in environment, whose
    /// versions are those of the rank.
    pub versions: BTreeMap<String, String>,
}

/// Checks the arguments of a job's environment without building anything.
///
/// # Errors
/// Returns a [`Refusal`] for an unknown name or a wrong argument.
pub fn check(job: &Job) -> Result<(), Refusal> {
    let job = job.varied();
    match Simulator::of(&job.environment) {
        Some(Simulator::TableTop) => settings(&job).map(drop),
        None if is_python_environment(&job.environment) => python::check(&job),
        None => Err(unknown(&job.environment)),
    }
}

/// The placement of an environment's copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvPlacement {
    /// The GPU that simulates and renders each copy.
    pub gpus: Vec<Option<Gpu>>,
    /// EGL device of all copies, if the user names one.
    pub egl_device: Option<u32>,
    /// Global rank.
    pub rank: usize,
    /// Rank on this machine.
    pub local_rank: usize,
    /// Number of ranks on this machine.
    pub local_world_size: usize,
    /// Time without an answer after which the process of a simulator is given up.
    pub stall_timeout: Duration,
    /// Number of episodes after which a process is replaced, unless the job sets it.
    pub recycle_after: Option<u64>,
    /// Screen of an X display for simulators that do not name one.
    pub xvfb: Option<Screen>,
}

impl EnvPlacement {
    /// Returns the placement of copies without a GPU, in a single rank.
    pub fn new(num_envs: usize) -> Self {
        Self {
            gpus: vec![None; num_envs],
            egl_device: None,
            rank: 0,
            local_rank: 0,
            local_world_size: 1,
            stall_timeout: Duration::from_secs(300),
            recycle_after: None,
            xvfb: None,
        }
    }

    /// Returns the EGL request of each copy.
    fn egl(&self) -> Vec<EglRequest> {
        let wanted = |gpu: &Option<Gpu>| EglRequest {
            device: self.egl_device,
            gpu: gpu.clone(),
            local_rank: self.local_rank,
        };
        self.gpus.iter().map(wanted).collect()
    }

    /// Returns the GPU of each copy, as `nvidia-smi` counts.
    fn numbers(&self) -> Vec<Option<u32>> {
        (0..self.gpus.len()).map(|env| self.number(env)).collect()
    }

    /// Returns the GPU of one copy, as `nvidia-smi` counts.
    pub(super) fn number(&self, env: usize) -> Option<u32> {
        self.gpus[env].as_ref()?.number
    }
}

/// Creates the environments of a job, one copy for each entry of the place; `first_seed` is the
/// seed of its first episode.
///
/// # Errors
/// Returns an [`EnvError`] for an unknown name, a wrong argument, or a simulator that does not
/// start.
pub fn make(job: &Job, first_seed: u64, place: &EnvPlacement) -> Result<NewEnv, EnvError> {
    let varied = job.varied();
    match Simulator::of(&job.environment) {
        Some(Simulator::TableTop) => {
            let settings = settings(&varied)?;
            let full_name = |name: &String| match job.variations.contains_key(name) {
                true => format!("variations.{name}"),
                false => name.clone(),
            };
            let ignored = settings.ignored.iter().map(full_name).collect();
            let cores = thread::available_parallelism().map_or(1, usize::from);
            let threads = share_of(cores, place.local_world_size);
            let env = mujoco::make(settings, &place.egl(), threads)?;
            Ok(NewEnv {
                env: Box::new(env),
                ignored,
                notes: Vec::new(),
                versions: BTreeMap::new(),
            })
        }
        None if is_python_environment(&job.environment) => {
            let config = PythonConfig {
                egl: tell_egl_devices(place)?,
                place: place.clone(),
                first_seed,
            };
            Ok(python::make(&varied, config)?.into())
        }
        None => Err(unknown(&job.environment).into()),
    }
}

/// Reads what a job says about the built-in environment.
fn settings(job: &Job) -> Result<MujocoSettings, Refusal> {
    let language = job.language_instruction.clone();
    MujocoSettings::new(&job.environment, language, &job.env_args)
}

/// Returns the number of threads of one of the ranks that share the cores, at least 1.
fn share_of(cores: usize, ranks: usize) -> usize {
    (cores / ranks.max(1)).max(1)
}

fn unknown(name: &str) -> Refusal {
    Refusal::unknown("", "environment", name, &Simulator::environments())
}

/// The EGL devices for simulators in Python.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct EglAdvice {
    /// EGL device by GPU number; a GPU that is not listed has the EGL device of its own number.
    pub devices: BTreeMap<Option<u32>, u32>,
    /// Message for the user about the devices.
    pub note: Option<String>,
}

/// Queries EGL only if a copy has a GPU or the user names a device; otherwise simulators find a
/// device themselves.
fn tell_egl_devices(place: &EnvPlacement) -> Result<EglAdvice, Refusal> {
    let asks = place.egl_device.is_some() || place.numbers().iter().any(Option::is_some);
    let devices = if asks { egl::devices().ok() } else { None };
    told(place, devices.map(|devices| devices.known.as_slice()))
}

/// Chooses devices like those of in-process rendering. But a simulator opens its device itself, and
/// reports an error if that fails. If EGL cannot be queried, only a device that the user names is
/// passed on.
fn told(place: &EnvPlacement, devices: Option<&[EglDevice]>) -> Result<EglAdvice, Refusal> {
    let mut told = EglAdvice::default();
    for (wanted, number) in place.egl().iter().zip(place.numbers()) {
        if number.is_none() && wanted.device.is_none() {
            continue;
        }
        let Some(devices) = devices else {
            told.devices
                .extend(wanted.device.map(|device| (number, device)));
            continue;
        };
        let Some(&taken) = egl::candidates(devices, wanted)?.first() else {
            continue;
        };
        told.devices
            .extend(u32::try_from(taken).map(|device| (number, device)));
        told.note = told.note.or_else(|| egl::note(devices, wanted, taken, &[]));
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::egl::EglDriver;

    const SOFTWARE: EglDevice = EglDevice {
        driver: EglDriver::Software,
        pci: None,
    };

    /// Returns a place with one copy on each GPU, for which CUDA and `nvidia-smi` use the same
    /// numbers.
    fn place(numbers: &[u32], egl_device: Option<u32>) -> EnvPlacement {
        let gpu = |&number: &u32| {
            let pci = Some(format!("0000:{number}0:00"));
            Some(Gpu {
                index: number as usize,
                number: Some(number),
                pci,
            })
        };
        EnvPlacement {
            gpus: numbers.iter().map(gpu).collect(),
            egl_device,
            ..EnvPlacement::new(0)
        }
    }

    fn nvidia(pci: &str) -> EglDevice {
        EglDevice {
            driver: EglDriver::Nvidia { cuda: None },
            pci: Some(pci.to_owned()),
        }
    }

    #[test]
    fn simulators_are_told_the_index_that_egl_gives_their_gpu() {
        let devices = [nvidia("0000:10:00"), nvidia("0000:00:00"), SOFTWARE];
        let found = told(&place(&[0, 1], None), Some(&devices)).unwrap();
        assert_eq!(found.devices, [(Some(0), 1), (Some(1), 0)].into());
        assert_eq!(found.note, None);
    }

    #[test]
    fn simulators_are_never_told_an_index_that_egl_does_not_have() {
        let found = told(&place(&[1, 3], None), Some(&[SOFTWARE])).unwrap();
        assert_eq!(found.devices, [(Some(1), 0), (Some(3), 0)].into());
        let note = found.note.unwrap();
        assert!(note.contains("no EGL device belongs to cuda:1"), "{note}");
        let refused = told(&place(&[1], Some(3)), Some(&[SOFTWARE])).unwrap_err();
        let wanted = "--egl-device 3: there is 1 EGL device (0: Mesa on the CPU)";
        assert_eq!(refused.to_string(), wanted);
    }

    #[test]
    fn where_egl_cannot_be_asked_simulators_are_told_what_the_user_names() {
        assert_eq!(told(&place(&[1], None), None), Ok(EglAdvice::default()));
        let named = told(&place(&[1], Some(3)), None).unwrap();
        assert_eq!(named.devices, [(Some(1), 3)].into());
    }

    #[test]
    fn threads_share_the_cores_with_other_ranks() {
        let threads = [(16, 2), (2, 2), (1, 8)].map(|(cores, ranks)| share_of(cores, ranks));
        assert_eq!(threads, [8, 1, 1]);
    }
}
