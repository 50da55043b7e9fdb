//! The checks and the configuration of a rank before it starts anything. All invalid input is
//! refused here.
//!
//! A launcher that names its launch also holds the lock on the run folder. Otherwise rank 0 locks
//! the folder for all ranks and publishes the launch in the store.

use std::time::{Duration, SystemTime};

use jobs::assign::Work;
use jobs::eval_args::EvalArgs;
use jobs::inputs::Asker;
use jobs::job::{Job, Status};
use jobs::journal::Journal;
use jobs::launch::{self, LaunchLock, LockError};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::rank_env::RankEnv;
use jobs::refusal::Refusal;
use jobs::setup::Setup;
use jobs::time::rfc3339;
use report::compare::sequential::{self, SequentialComparison};
use serde_json::json;
use tcpstore::Store;

use crate::console::{self, Level};
use crate::device::{Decision, gpu};
use crate::env::EnvPlacement;
use crate::eval::Stop;
use crate::eval::placement::{self, RankPlacement};
use crate::{env, policy};

/// Time limit for rank 0, which may have to find out whether a launch on another machine still
/// runs.
const VERDICT: Duration = Duration::from_secs(120);

/// Prefix of rank 0's message that it has locked the folder; the name of the launch follows.
const TAKEN: &str = "launch ";

/// The configuration of a rank: what is known before anything is started, and never changes.
pub struct RankSetup {
    /// The parsed command line.
    pub args: EvalArgs,
    /// Rank, world size and the other variables of the launcher.
    pub env: RankEnv,
    /// Folder for all files of the run.
    pub folder: RunFolder,
    /// The plan of the run: its jobs and settings.
    pub plan: RunPlan,
    /// Device of the policy, with the reason for the choice.
    pub device: Decision,
    /// This rank's share of the work, and the placement of its environments.
    pub placement: RankPlacement,
    /// The comparison with the reference of `--against`; only on rank 0.
    pub comparison: Option<SequentialComparison>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl RankSetup {
    /// Reads what the command line names, checks it, and writes the plan if it does not exist yet.
    ///
    /// # Errors
    /// Returns the first problem; a retry would fail in the same way.
    pub fn new(args: EvalArgs) -> Result<Self, Refusal> {
        let variable = |name: &str| std::env::var(name).ok();
        let env = RankEnv::read(variable)?;
        if args.quick && env.launch.is_none() {
            return Err(Refusal::new(
                "--quick needs the launcher `rrun`; leave it out under another one",
            ));
        }
        let setup = Setup::read(&args, &variable)?;
        setup.check_jobs(&args)?;
        let jobs_file = setup.file.path.clone();
        let folder = RunFolder::new(&setup.output);
        let visible = gpu::visible()?;
        let mut placement = RankPlacement::new(&setup, &env, &visible)?;
        let created = rfc3339(SystemTime::now());
        let mut plan = RunPlan::new(&args, setup.file, env.world_size, created);
        plan.launch.clone_from(&env.launch);
        if let Some(asker) = asker(&env) {
            plan = plan.with_inputs(&folder, asker, &variable);
        }
        check_jobs(&plan.jobs).map_err(|refusal| Refusal::in_file(&jobs_file, refusal))?;
        let mut notes = plan.check(&folder, args.accept_changed_jobs)?;
        notes.retain(|_| env.rank == 0);
        let device =
            placement::decide(&args, &env, &placement.work, placement.placed(&args, &env))?;
        if let Some(bytes) = args.gpu_memory {
            let ranks = placement.ranks_on_gpu(&args, &env, &visible);
            notes.extend(placement::limit(device.device, bytes, ranks).map_err(Refusal::new)?);
        }
        if env.rank == 0 {
            plan.prepare(&folder)?;
        }
        let plan = plan.settle(&folder, args.accept_changed_jobs)?;
        placement.settle(&plan.jobs, &env, device.device);
        let comparison = match env.rank {
            0 => sequential::of_run(&args, &plan)?,
            _ => None,
        };
        Ok(Self {
            args,
            env,
            folder,
            plan,
            device,
            placement,
            comparison,
            notes,
        })
    }

    /// Returns where and how the environments of `work` run.
    pub fn env_placement(&self, work: &Work) -> EnvPlacement {
        let (args, env) = (&self.args, &self.env);
        let mujoco = || {
            let number = std::env::var("MUJOCO_EGL_DEVICE_ID").ok()?;
            number.trim().parse().ok()
        };
        EnvPlacement {
            gpus: self.placement.env_gpus(work, self.device.device),
            egl_device: args.egl_device.or_else(mujoco),
            rank: env.rank,
            local_rank: env.local_rank.unwrap_or(env.rank),
            local_world_size: env.local_world_size,
            stall_timeout: Duration::from_secs(args.stall_timeout),
            recycle_after: args.recycle_after,
            xvfb: args.xvfb,
        }
    }

    /// Opens the rank's journal and notes if a crash left a torn line.
    ///
    /// # Errors
    /// Returns an error if another evaluation uses this folder, or if the disk cannot be written.
    pub fn open_journal(&mut self) -> Result<Journal, Refusal> {
        let journal = self.plan.open_journal(&self.folder, &self.env)?;
        if journal.torn() > 0 {
            let (path, bytes) = (journal.path().display(), journal.torn());
            self.notes.push(format!(
                "warning: `{path}` ended in a torn line: {bytes} bytes are cut off"
            ));
        }
        Ok(journal)
    }

    /// Determines the launch of this rank. Rank 0 of an unnamed launch locks the run folder and
    /// returns the lock.
    ///
    /// # Errors
    /// Returns a [`Stop`] if another launch holds the folder, or if the store does not answer.
    pub fn join_launch(&mut self, store: Option<&Store>) -> Result<Option<LaunchLock>, Stop> {
        if self.env.launch.is_some() {
            return Ok(None);
        }
        let key = format!("rrun/launch/{}/{}", self.env.run_id, self.env.round);
        let (launch, lock) = match store {
            Some(store) if self.env.rank > 0 => (heard(store, &key)?, None),
            store => {
                let lock = self.lock_folder();
                if let Some(store) = store {
                    let said = match &lock {
                        Ok(lock) => format!("{TAKEN}{}", lock.launch()),
                        Err(err) => err.to_string(),
                    };
                    store.set(&key, said.as_bytes())?;
                }
                let lock = lock?;
                (lock.launch().to_owned(), Some(lock))
            }
        };
        self.env.launch = Some(launch.clone());
        self.plan.launch = Some(launch);
        Ok(lock)
    }

    /// Locks the run folder for a new launch.
    fn lock_folder(&self) -> Result<LaunchLock, Stop> {
        let launch = launch::fresh_id();
        let launch = launch.map_err(|err| Stop::rank("cannot name this launch", err))?;
        let say = |text: &str| console::say(Level::Info, "rrun-rank:", text, json!({}));
        LaunchLock::take(&self.folder, &launch, say).map_err(|err| match err {
            LockError::Refused(refusal) => Stop::Refused(refusal),
            LockError::Failed(reason) => Stop::Rank(reason.to_string()),
        })
    }
}

/// Waits until rank 0 has locked the folder, and returns the name of its launch.
fn heard(store: &Store, key: &str) -> Result<String, Stop> {
    let not_told = |err| Stop::rank("rank 0 has not taken the run folder", err);
    let said = store.get(key, VERDICT).map_err(not_told)?;
    let said = String::from_utf8_lossy(&said);
    match said.strip_prefix(TAKEN) {
        Some(launch) => Ok(launch.to_owned()),
        None => Err(Refusal::new(said).into()),
    }
}

/// Returns how this rank compares the inputs of the jobs with those of the run: not at all if a
/// launcher has done it. Each job looks at its own inputs again when it begins.
fn asker(env: &RankEnv) -> Option<Asker> {
    match (&env.launch, env.rank, env.restart_count) {
        (Some(_), _, _) => None,
        (None, 0, 0) => Some(Asker::OneOfSeveral),
        (None, _, _) => Some(Asker::Rank),
    }
}

/// Checks all jobs now for what would otherwise be refused when their turn comes, perhaps hours
/// later.
fn check_jobs(jobs: &[Job]) -> Result<(), Refusal> {
    let mut pending = jobs.iter().filter(|job| job.status == Status::Pending);
    pending.try_for_each(|job| {
        env::check(job).map_err(|err| Refusal::at(job.place(), err))?;
        let policy = policy::check(&job.policy_type, &job.policy_config);
        policy.map_err(|err| Refusal::at(job.place(), err))
    })
}
