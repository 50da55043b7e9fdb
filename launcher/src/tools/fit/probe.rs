//! `--probe`: measures the memory of environments by two short runs of each with the zero-action
//! policy.
//!
//! ```text
//! job ─► jobs.json with num_envs 1 ─► rrun eval ─► peak memory of its processes ─┐
//!     └► jobs.json with num_envs 4 ─► rrun eval ─► peak memory of its processes ─┤
//!                                         base + slope × num_envs ─► FILE ◄──────┘
//! ```
//! GPU memory is measured as the increase in use during the run: NVML's count per process does not
//! see processes of other containers, nor all graphics memory. Other users of the GPU should
//! therefore be idle.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fit::memory::Measured;
use fit::memory::measured::{LinearMemory, MeasuredEnvironment, MeasuredError};
use jobs::eval_args::EvalArgs;
use jobs::job::{Job, Status};
use jobs::layout::write_whole;
use jobs::table::Table;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Map, Value, json};

use crate::node::Node;
use crate::tools::fit::host;
use crate::tools::{alone, end_of, print};

/// The file for measurements if none is named.
const FILE: &str = "memory.json";

/// Interval between two samples of the processes. It is short enough for the peak of a run of a
/// second, and sampling uses a tenth of a CPU.
const LOOK: Duration = Duration::from_millis(30);

/// Samples of the processes per sample of the GPU, which takes longer.
const LOOKS_A_GPU: u32 = 4;

/// Timeout of a run; large simulators take minutes to start.
const PATIENCE: Duration = Duration::from_secs(1800);

/// How environments are measured.
#[derive(Debug, clap::Args)]
pub(super) struct ProbeArgs {
    /// Measure the memory use of environments with two short runs of each, and write it to the file
    /// of --measured
    #[arg(long)]
    probe: bool,

    /// Numbers of environments to run
    #[arg(long, value_name = "N,M", value_delimiter = ',', num_args = 1, default_value = "1,4", requires = "probe",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    probe_envs: Vec<usize>,

    /// Number of steps of each environment
    #[arg(long, value_name = "N", default_value_t = 40, requires = "probe", value_parser = clap::value_parser!(u64).range(1..))]
    probe_steps: u64,

    /// Render no images while measuring, as in an evaluation with --no-video whose policy uses none
    #[arg(long, requires = "probe")]
    no_video: bool,
}

/// The reason why environments cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(in crate::tools) enum ProbeError {
    #[error("--probe-envs: expected two different numbers, for example 1,4")]
    Numbers,
    #[error(
        "`{environment}` with num_envs {num_envs} could not be run ({status}); its end is\n{end}\nthe rest is in `{log}`"
    )]
    Failed {
        environment: String,
        num_envs: usize,
        status: ExitStatus,
        log: String,
        end: String,
    },
    #[error(
        "`{environment}` with num_envs {num_envs} ended before its memory could be measured; use \
         more --probe-steps"
    )]
    Unseen {
        environment: String,
        num_envs: usize,
    },
    #[error("`{environment}` with num_envs {num_envs} has not ended within {PATIENCE:?}")]
    Endless {
        environment: String,
        num_envs: usize,
    },
    #[error(transparent)]
    Measured(#[from] MeasuredError),
    #[error("cannot measure in `{folder}`: {err}")]
    Io { folder: String, err: io::Error },
}

/// The peak memory of one run, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct ProbePeak {
    host: u64,
    gpu: Option<u64>,
}

impl ProbeArgs {
    /// Measures the environments if that was asked for. Returns the evaluation with the file of
    /// measurements to use.
    pub(super) fn run(
        &self,
        jobs: &[Job],
        file: Option<&Path>,
        eval: EvalArgs,
        on: &ProbedMachine<'_>,
    ) -> Result<EvalArgs, ProbeError> {
        if !self.probe {
            return Ok(EvalArgs {
                measured: file.map(Path::to_owned),
                ..eval
            });
        }
        let &[few, many] = self.probe_envs.as_slice() else {
            return Err(ProbeError::Numbers);
        };
        if few == many {
            return Err(ProbeError::Numbers);
        }
        let file = file.unwrap_or(Path::new(FILE));
        let mut measured = if file.exists() {
            Measured::read(file)?
        } else {
            Measured::default()
        };
        let folder = std::env::temp_dir().join(format!("rrun-fit-{}", std::process::id()));
        let named = |err| ProbeError::Io {
            folder: folder.display().to_string(),
            err,
        };
        let mut seen: Vec<MeasuredEnvironment> = Vec::new();
        for job in jobs.iter().filter(|job| job.status == Status::Pending) {
            if seen.iter().any(|entry| entry.is_of(job)) {
                continue;
            }
            let peak = |num_envs: usize| self.measure(job, num_envs, &folder, on);
            let (low, high) = (peak(few)?, peak(many)?);
            let line = |of: fn(&ProbePeak) -> Option<u64>| {
                Some(LinearMemory::through((few, of(&low)?), (many, of(&high)?)))
            };
            let host = line(|peak| Some(peak.host)).unwrap_or_default();
            seen.push(MeasuredEnvironment::new(
                job,
                [few, many],
                host,
                line(|peak| peak.gpu),
            ));
        }
        seen.iter().for_each(|entry| measured.add(entry.clone()));
        write_whole(
            file,
            &serde_json::to_vec_pretty(&measured)
                .map_err(io::Error::from)
                .map_err(named)?,
        )
        .map_err(named)?;
        fs::remove_dir_all(&folder).or_else(|err| {
            if err.kind() == io::ErrorKind::NotFound {
                Ok(())
            } else {
                Err(named(err))
            }
        })?;
        if !on.is_quiet {
            print(told(&seen, file)).map_err(named)?;
        }
        Ok(EvalArgs {
            measured: Some(file.to_owned()),
            ..eval
        })
    }

    /// Measures the peak memory of one run with `num_envs` environments.
    fn measure(
        &self,
        job: &Job,
        num_envs: usize,
        folder: &Path,
        on: &ProbedMachine<'_>,
    ) -> Result<ProbePeak, ProbeError> {
        let environment = || job.environment.clone();
        let named = |err| ProbeError::Io {
            folder: folder.display().to_string(),
            err,
        };
        let run = ProbeRun::new(folder, job, num_envs, self.probe_steps).map_err(named)?;
        let before = on.gpu_used();
        let mut child = run.start(self.no_video).map_err(named)?;
        let (status, host, used) = watch(&mut child, on).map_err(named)?;
        let Some(status) = status else {
            return Err(ProbeError::Endless {
                environment: environment(),
                num_envs,
            });
        };
        if !status.success() {
            let end = end_of(&run.log).map_err(named)?;
            let log = run.log.display().to_string();
            return Err(ProbeError::Failed {
                environment: environment(),
                num_envs,
                status,
                log,
                end,
            });
        }
        if host == 0 {
            return Err(ProbeError::Unseen {
                environment: environment(),
                num_envs,
            });
        }
        Ok(ProbePeak {
            host,
            gpu: before.and_then(|before| Some(used?.saturating_sub(before))),
        })
    }
}

/// The machine on which the runs are measured.
pub(super) struct ProbedMachine<'a> {
    pub(super) node: &'a Node,
    pub(super) visible: Option<&'a str>,
    /// Whether to print nothing during the measurement.
    pub(super) is_quiet: bool,
}

impl ProbedMachine<'_> {
    /// Returns the bytes in use on the first visible GPU, which is that of the only rank.
    fn gpu_used(&self) -> Option<u64> {
        self.node
            .memory_of(self.visible)
            .first()
            .map(|memory| memory.used)
    }
}

/// The files of one run.
struct ProbeRun {
    jobs: PathBuf,
    output: PathBuf,
    log: PathBuf,
}

impl ProbeRun {
    fn new(folder: &Path, job: &Job, num_envs: usize, steps: u64) -> io::Result<Self> {
        let name = format!("{}_{num_envs}", job.index.0);
        let run = Self {
            jobs: folder.join(format!("{name}.json")),
            output: folder.join(&name),
            log: folder.join(format!("{name}.log")),
        };
        fs::create_dir_all(folder)?;
        match fs::remove_dir_all(&run.output) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        fs::write(
            &run.jobs,
            serde_json::to_vec(&json!({"jobs": [entry(job, num_envs, steps)]}))?,
        )?;
        Ok(run)
    }

    fn start(&self, no_video: bool) -> io::Result<Child> {
        let output = File::create(&self.log)?;
        let mut command = alone::rrun(1)?;
        command.args(["--max-restarts", "0", "eval"]);
        command
            .arg("--jobs")
            .arg(&self.jobs)
            .arg("--output")
            .arg(&self.output);
        command.args(["--no-dataset", "--job-attempts", "1", "--env-restarts", "0"]);
        if no_video {
            command.arg("--no-video");
        }
        command
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output)
            .spawn()
    }
}

/// Returns the entry of a job for a jobs file, with a policy that does nothing.
fn entry(job: &Job, num_envs: usize, steps: u64) -> Value {
    let mut args = Map::new();
    args.insert("environment".to_owned(), job.environment.clone().into());
    args.extend(job.env_args.clone());
    args.insert("num_envs".to_owned(), num_envs.into());
    if let Some(cameras) = job.enable_cameras {
        args.insert("enable_cameras".to_owned(), cameras.into());
    }
    json!({"name": job.name, "arena_env_args": args, "policy_type": "zero_action", "num_steps": steps,
           "variations": job.variations, "language_instruction": job.language_instruction})
}

/// Waits for the end of a run. Returns its exit status (`None` after the timeout) and the peak
/// memory of its processes and of the GPU.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock and the pauses of looking at real processes"
)]
fn watch(
    child: &mut Child,
    on: &ProbedMachine<'_>,
) -> io::Result<(Option<ExitStatus>, u64, Option<u64>)> {
    let (start, mut host, mut used, mut looks) = (Instant::now(), 0, None, 0_u32);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((Some(status), host, used));
        }
        if start.elapsed() > PATIENCE {
            // SIGTERM lets its ranks end in an orderly way.
            let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
            child.wait()?;
            return Ok((None, host, used));
        }
        host = host.max(host::below(child.id()));
        if looks.is_multiple_of(LOOKS_A_GPU) {
            used = used.max(on.gpu_used());
        }
        looks = looks.wrapping_add(1);
        std::thread::sleep(LOOK);
    }
}

/// Returns the table of measurements, with the values for a jobs file.
fn told(seen: &[MeasuredEnvironment], file: &Path) -> String {
    let row = |entry: &MeasuredEnvironment| {
        let gpu =
            |of: fn(LinearMemory) -> String| entry.gpu.map_or_else(|| "unknown".to_owned(), of);
        let declared = entry
            .gpu
            .map_or_else(|| "-".to_owned(), |line| format!("{:.3}", line.slope.gib()));
        [
            entry.environment.clone(),
            entry.host.base.to_string(),
            entry.host.slope.to_string(),
            gpu(|line| line.base.to_string()),
            gpu(|line| line.slope.to_string()),
            declared,
        ]
    };
    let rows: Vec<_> = seen.iter().map(row).collect();
    let head = [
        "Environment",
        "Host",
        "Host per Env",
        "GPU",
        "GPU per Env",
        "env_memory_gb",
    ];
    let mut text = Table::new(head, rows).grid();
    if seen.iter().any(|entry| entry.gpu.is_none()) {
        text += "no GPU here: memory of this machine was measured, the GPU memory of environments \
            is unknown\n";
    }
    text + &format!("measurements: {}\n", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_a_job_is_run_by_a_policy_that_does_nothing() {
        let text = json!({"jobs": [{"name": "a", "arena_env_args": {"environment": "reach", "camera_height": 64, "enable_cameras": true},
            "policy_type": "gr00t", "policy_config_dict": {"model_path": "/x"}, "total_num_envs": 8, "num_episodes": 100}]});
        let jobs = jobs::file::parse(&text).unwrap();
        let probed = entry(&jobs[0], 4, 40);
        let again = jobs::file::parse(&json!({"jobs": [probed]}))
            .unwrap()
            .remove(0);
        assert_eq!(
            (again.num_envs, again.sharing, again.policy_type.as_str()),
            (4, None, "zero_action")
        );
        assert_eq!(again.length, jobs::job::Length::Steps(40));
        let line = LinearMemory::default();
        assert!(
            MeasuredEnvironment::new(&again, [1, 4], line, None).is_of(&jobs[0]),
            "it is the same environment"
        );
    }
}
