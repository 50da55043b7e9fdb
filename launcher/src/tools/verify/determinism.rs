//! `--determinism K`: runs some episodes again with another number of ranks and environments, and
//! compares the results. A result that depends on those numbers is not a property of the policy.
//!
//! ```text
//! run folder ─► K episodes ─► plan.json in a new folder ─► rrun eval --resume, without files
//!                                                   └─► outcomes, compared bit for bit
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use jobs::count::counted;
use jobs::journal::{self, ROUNDING_VARIABLES, RankStart};
use jobs::layout::{RunFolder, write_whole};
use jobs::plan::RunPlan;
use jobs::trust;
use report::verify::rerun;
use report::{Journals, Merged};

use crate::tools::end_of;

/// How the episodes are run again.
#[derive(Debug, clap::Args)]
pub(super) struct Rerun {
    /// Run K episodes again with other numbers of ranks and environments, and compare the results
    /// bit for bit
    #[arg(long, value_name = "K", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    determinism: Option<usize>,

    /// Seed that chooses the episodes to run again
    #[arg(long, value_name = "N", default_value_t = 0, requires = "determinism")]
    seed: u64,

    /// Number of ranks that run them [default: 2, or 1 if there were 2]
    #[arg(long, value_name = "N", requires = "determinism",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    nproc_per_node: Option<usize>,

    /// Number of environments of each job [default: as many as ranks, or a multiple that no job has
    /// had]
    #[arg(long, value_name = "N", requires = "determinism",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    num_envs: Option<usize>,

    /// Run what the plan names (programs, modules, servers), even if you have not started a run
    /// with it yourself
    #[arg(long, requires = "determinism")]
    trust_plan: bool,
}

/// The reason why episodes cannot be run again.
#[derive(Debug, thiserror::Error)]
pub(in crate::tools) enum RerunError {
    #[error(
        "no episode can be run again: none was scored of a job with num_episodes whose latency is \
         not measured"
    )]
    Nothing,
    #[error(
        "the plan of `{folder}` names programs or servers that you have not started a run with \
         here:\n  {}\nuse --trust-plan beside --determinism to run what the plan names",
        uses.join("\n  ")
    )]
    Foreign { folder: String, uses: Vec<String> },
    #[error("the names of the jobs cannot be passed to --only")]
    Names,
    #[error(
        "the episodes could not be run again ({status}); the output is in `{log}`, its end \
         is\n{end}"
    )]
    Failed {
        status: ExitStatus,
        log: String,
        end: String,
    },
    #[error("cannot run the episodes again in `{folder}`: {err}")]
    Io { folder: String, err: io::Error },
}

/// The result of the second run.
pub(super) struct RerunResult {
    /// What was done, as a line for the user.
    pub(super) note: String,
    /// The outcomes that differ.
    pub(super) wrong: Vec<String>,
}

impl Rerun {
    /// Runs episodes again if that was asked for.
    pub(super) fn run(
        &self,
        of: &RunFolder,
        plan: &RunPlan,
        merged: &Merged,
    ) -> Result<Option<RerunResult>, RerunError> {
        let Some(count) = self.determinism else {
            return Ok(None);
        };
        let folder = RunFolder::new(&temporary());
        let named = |err| RerunError::Io {
            folder: folder.root().display().to_string(),
            err,
        };
        let chosen = rerun::choose(merged, plan, count, self.seed).map_err(named)?;
        let count: usize = chosen.values().map(|episodes| episodes.len()).sum();
        if count == 0 {
            return Err(RerunError::Nothing);
        }
        let again = rerun::plan(plan, &chosen).ok_or(RerunError::Names)?;
        self.check_trust(of, &again)?;
        let (ranks, envs) = self.elsewhere(&again);
        write(&folder, &again).map_err(named)?;
        let start = journal::first_rank(&of.journals()).map_err(named)?;
        let status = self
            .launch(&folder, (ranks, envs), &start.unwrap_or_default())
            .map_err(named)?;
        let journals = Journals::of(&folder).map_err(named)?;
        // The launch has given the run an id, which its journal lines contain.
        let again = RunPlan::read(&folder).unwrap_or(again);
        let came_out = Merged::new(&again, &journals).map_err(named)?;
        if !status.success()
            && again
                .jobs
                .iter()
                .all(|job| came_out.scored_of(job).next().is_none())
        {
            let log = log(&folder);
            return Err(RerunError::Failed {
                status,
                end: end_of(&log).map_err(named)?,
                log: log.display().to_string(),
            });
        }
        let wrong = rerun::differences(&chosen, &came_out, &again).map_err(named)?;
        let kept = if wrong.is_empty() {
            fs::remove_dir_all(folder.root()).map_err(named)?;
            String::new()
        } else {
            format!("; the results are in `{}`", folder.root().display())
        };
        let (episodes, ranks, envs) = (
            counted(count, "episode"),
            counted(ranks, "rank"),
            counted(envs, "environment"),
        );
        let left_out = left_out(plan);
        let note = format!("run again: {episodes}, by {ranks} with {envs}{kept}{left_out}");
        Ok(Some(RerunResult { note, wrong }))
    }

    /// Checks that the user trusts the plan. The launch would refuse it as well, but with a message
    /// about a folder and options that the user has not named.
    fn check_trust(&self, of: &RunFolder, plan: &RunPlan) -> Result<(), RerunError> {
        if self.trust_plan {
            return Ok(());
        }
        let variable = |name: &str| std::env::var(name).ok();
        let uses = trust::untrusted(&plan.jobs, plan.model_server.as_ref(), &variable);
        if uses.is_empty() {
            return Ok(());
        }
        let folder = of.root().display().to_string();
        Err(RerunError::Foreign { folder, uses })
    }

    /// Returns numbers of ranks and environments that no job has had. The environments of a shared
    /// job are divided among all ranks.
    fn elsewhere(&self, plan: &RunPlan) -> (usize, usize) {
        let ranks = self
            .nproc_per_node
            .unwrap_or(if plan.world_size == 2 { 1 } else { 2 });
        let had = |envs: usize| plan.jobs.iter().any(|job| job.num_envs == envs);
        let multiples = (1..=64).map(|times| times * ranks);
        let envs = self
            .num_envs
            .or_else(|| multiples.clone().find(|envs| !had(*envs)))
            .unwrap_or(ranks);
        (ranks, envs)
    }

    /// Runs the plan in `folder`. Its exit code says little, because every episode is compared.
    ///
    /// Threads and instructions are those of `start`: they affect the last bits of a network's
    /// results, and are no properties of the policy.
    fn launch(
        &self,
        folder: &RunFolder,
        (ranks, envs): (usize, usize),
        start: &RankStart,
    ) -> io::Result<ExitStatus> {
        let output = File::create(log(folder))?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--nproc-per-node")
            .arg(ranks.to_string())
            .arg("eval");
        command
            .arg("--resume")
            .arg(folder.root())
            .arg("--num-envs")
            .arg(envs.to_string());
        command.args(self.trust_plan.then_some("--trust-plan"));
        let threads = start.threads.map(|threads| threads.to_string());
        command.envs(threads.map(|threads| ("OMP_NUM_THREADS", threads)));
        for name in ROUNDING_VARIABLES {
            match start.rounding.get(name) {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["--no-video", "--no-dataset", "--continue-on-error"]);
        command
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output)
            .status()
    }
}

/// Returns a clause with the jobs whose results are not the same again.
fn left_out(plan: &RunPlan) -> String {
    let measured = plan.jobs.iter().filter(|job| !job.is_repeatable());
    let names: Vec<_> = measured.map(|job| job.name.as_str()).collect();
    match names[..] {
        [] => String::new(),
        [name] => format!("; not repeated, because its latency is measured: {name}"),
        _ => format!(
            "; not repeated, because their latency is measured: {}",
            names.join(", ")
        ),
    }
}

/// Returns a temporary folder of this process, with an unpredictable name.
fn temporary() -> PathBuf {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    std::env::temp_dir().join(format!("rrun-verify-{}-{nanos}", std::process::id()))
}

fn write(folder: &RunFolder, plan: &RunPlan) -> io::Result<()> {
    // Other users can write to the folder for temporary files, so the run folder must be new and
    // private.
    fs::DirBuilder::new().mode(0o700).create(folder.root())?;
    fs::create_dir(folder.journals())?;
    write_whole(&folder.plan(), &serde_json::to_vec_pretty(plan)?)
}

/// Returns the path for the output of the second run.
fn log(folder: &RunFolder) -> PathBuf {
    folder.root().join("output.log")
}
