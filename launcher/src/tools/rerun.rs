//! Runs some episodes of a plan again with another number of ranks and environments, for `rrun
//! verify` and `rrun certify`.
//!
//! ```text
//! plan of some episodes ─► plan.json in a new folder ─► rrun eval --resume, without files
//!                                                 └─► journals, whose results are compared
//! ```

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use jobs::count::counted;
use jobs::journal::ROUNDING_VARIABLES;
use jobs::layout::{RunFolder, write_whole};
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use jobs::trust;
use report::certificate::Machine;
use report::verify::rerun::{self, Outcomes};
use report::{EpisodeId, Merged};

use crate::tools::{end_of, evaluation};

/// How episodes are run again. The group `again` of a command has what asks for it.
#[derive(Debug, clap::Args)]
pub(super) struct RerunArgs {
    /// Number of ranks that run them [default: 2, or 1 if there were 2]
    #[arg(long, value_name = "N", requires = "again",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    nproc_per_node: Option<usize>,

    /// Number of environments of each job [default: as many as ranks, or a multiple that no job has
    /// had]
    #[arg(long, value_name = "N", requires = "again",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    num_envs: Option<usize>,

    /// Run what the plan or certificate names (programs, modules, servers), even if you have not
    /// started a run with it yourself
    #[arg(long, requires = "again")]
    trust_plan: bool,
}

/// Refuses jobs that no jobs file may have.
pub(super) fn refused(err: impl Display) -> Refusal {
    Refusal::at("the jobs cannot be run again", err)
}

/// Says that a file of a run folder cannot be used.
pub(super) fn named(folder: &RunFolder, err: io::Error) -> Refusal {
    let folder = folder.root().display();
    Refusal::at(
        format_args!("cannot run the episodes again in `{folder}`"),
        err,
    )
}

/// Episodes to run again.
pub(super) struct RerunRequest<'a> {
    /// What the plan was read from, as the subject of a sentence.
    pub(super) whose: String,
    /// The option that asks for it.
    pub(super) asked: &'static str,
    /// The plan of the first run, with the paths of this machine.
    pub(super) plan: &'a RunPlan,
    /// The episodes.
    pub(super) chosen: &'a [EpisodeId],
    /// Number of ranks of the first run.
    pub(super) world_size: usize,
    /// A machine of the first run. Its number of threads of libtorch and its
    /// [`ROUNDING_VARIABLES`] affect the last bits of a network's results, and are no properties of
    /// the policy.
    pub(super) machine: &'a Machine,
}

/// A second run, in a folder of its own.
pub(super) struct Rerun {
    pub(super) folder: RunFolder,
    /// Number of ranks that ran its episodes.
    pub(super) ranks: usize,
    pub(super) envs: usize,
    /// What came out of those episodes that were scored.
    pub(super) outcomes: Outcomes,
    pub(super) merged: Merged,
}

impl RerunArgs {
    /// Runs the episodes, and returns what they left.
    pub(super) fn run(&self, request: &RerunRequest) -> Result<Rerun, Refusal> {
        if request.chosen.is_empty() {
            return Err(Refusal::new(
                "no episode can be run again: none was scored of a job with num_episodes whose \
                 latency is not measured",
            ));
        }
        let plan = rerun::plan(request.plan, request.chosen)
            .ok_or_else(|| Refusal::new("the names of the jobs cannot be passed to --only"))?;
        self.check_trust(&plan, request)?;
        let folder = RunFolder::new(&temporary());
        let named = |err| named(&folder, err);
        let (ranks, envs) = self.elsewhere(&plan, request.world_size);
        write(&folder, &plan).map_err(named)?;
        let status = self
            .launch(&folder, (ranks, envs), request.machine)
            .map_err(named)?;
        // The launch has given the run an id, which its journal lines contain.
        let merged = Merged::open(&folder)?;
        let again = Rerun {
            // A launch starts no more ranks than it has episodes.
            ranks: merged.ranks(),
            envs,
            outcomes: rerun::outcomes(&merged, request.chosen).map_err(named)?,
            merged,
            folder,
        };
        if !status.success() && again.ranks == 0 {
            let log = log(&again.folder);
            let end = end_of(&log).map_err(|err| again.named(err))?;
            return Err(Refusal::new(format_args!(
                "the episodes could not be run again ({status}); the output is in `{}`, its end \
                 is\n{end}",
                log.display()
            )));
        }
        Ok(again)
    }

    /// Checks that the user trusts the plan. The launch would refuse it as well, but with a message
    /// about a folder and options that the user has not named.
    fn check_trust(&self, plan: &RunPlan, request: &RerunRequest) -> Result<(), Refusal> {
        if self.trust_plan {
            return Ok(());
        }
        let variable = |name: &str| std::env::var(name).ok();
        let uses = trust::untrusted(&plan.jobs, plan.model_server.as_ref(), &variable);
        if uses.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(format_args!(
            "{} names programs or servers that you have not started a run with here:\n  {}\nuse \
             --trust-plan beside {} to run what it names",
            request.whose,
            uses.join("\n  "),
            request.asked
        )))
    }

    /// Returns numbers of ranks and environments that no job has had. The environments of a shared
    /// job are divided among all ranks.
    fn elsewhere(&self, plan: &RunPlan, world_size: usize) -> (usize, usize) {
        let ranks = self
            .nproc_per_node
            .unwrap_or(if world_size == 2 { 1 } else { 2 });
        let had = |envs: usize| plan.jobs.iter().any(|job| job.num_envs == envs);
        let multiples = (1..=64).map(|times| times * ranks);
        let envs = self
            .num_envs
            .or_else(|| multiples.clone().find(|envs| !had(*envs)))
            .unwrap_or(ranks);
        (ranks, envs)
    }

    /// Runs the plan in `folder`. Its exit code says little, because every episode is compared.
    fn launch(
        &self,
        folder: &RunFolder,
        (ranks, envs): (usize, usize),
        machine: &Machine,
    ) -> io::Result<ExitStatus> {
        let output = File::create(log(folder))?;
        let mut command = evaluation::here(ranks)?;
        command
            .arg("--resume")
            .arg(folder.root())
            .arg("--num-envs")
            .arg(envs.to_string());
        // The episodes of a single job are enough for several ranks.
        command.args(["--shard", "episodes"]);
        command.args(self.trust_plan.then_some("--trust-plan"));
        let threads = machine.threads.map(|threads| threads.to_string());
        command.envs(threads.map(|threads| ("OMP_NUM_THREADS", threads)));
        for name in ROUNDING_VARIABLES {
            match machine.rounding.get(name) {
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

impl Rerun {
    /// Formats by whom the episodes were run, as in `2 ranks with 4 environments`.
    pub(super) fn place(&self) -> String {
        let (ranks, envs) = (
            counted(self.ranks, "rank"),
            counted(self.envs, "environment"),
        );
        format!("{ranks} with {envs}")
    }

    /// Returns an error that names the folder.
    pub(super) fn named(&self, err: io::Error) -> Refusal {
        named(&self.folder, err)
    }

    /// Removes the folder if nobody needs it. Returns a clause that says where it is otherwise.
    pub(super) fn remove_if(&self, is_over: bool) -> Result<String, Refusal> {
        let root = self.folder.root();
        if !is_over {
            return Ok(format!("; the results are in `{}`", root.display()));
        }
        fs::remove_dir_all(root).map_err(|err| self.named(err))?;
        Ok(String::new())
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
