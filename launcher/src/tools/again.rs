//! What a certificate has is run again on this machine: some of its episodes, for `rrun verify` and
//! `rrun certify`, or its jobs, for `rrun reproduce`.
//!
//! ```text
//! certificate ─► jobs, with the paths of this machine ─► trusted? ─┬─► rrun eval --jobs (reproduce)
//!                                                                  └─► --rerun K: K episodes
//! K episodes ─► plan.json in a new folder ─► rrun eval --resume, without files ─► the same results?
//! ```

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use jobs::count::counted;
use jobs::job::Job;
use jobs::journal::ROUNDING_VARIABLES;
use jobs::layout::{RunFolder, write_whole};
use jobs::model_server::ModelServer;
use jobs::plan::RunPlan;
use jobs::trust;
use report::Merged;
use report::certificate::{self, Certificate, Contents, Sample, sample};
use report::verify::Findings;
use serde_json::Value;

use crate::tools::places::{self, Place};
use crate::tools::{end_of, evaluation};

/// What the user says of jobs that are run again. The group `again` of a command has what asks for it.
#[derive(Debug, clap::Args)]
pub(super) struct AgainArgs {
    /// Where a file or folder that the jobs name is on this machine; HERE is enough for the only
    /// policy, whose files must have the same hash. May be repeated
    #[arg(long = "path", value_name = "[THERE=]HERE", requires = "again")]
    places: Vec<String>,

    /// Run what the plan or certificate names (programs, modules, servers), even if you have not
    /// started a run with it yourself
    #[arg(long, requires = "again")]
    trust_plan: bool,

    /// Options of the launcher, then `eval` and options of the evaluation, e.g. -- --nproc-per-node
    /// 3 eval --num-envs 6
    #[arg(last = true, value_name = "WORDS", requires = "again")]
    pub(super) words: Vec<OsString>,
}

/// A certificate whose episodes are run again.
pub(super) struct Original<'a> {
    pub(super) certificate: &'a Certificate,
    /// What it was made or read from, as the subject of a sentence.
    pub(super) whose: String,
}

/// What came out of episodes that were run again.
pub(super) struct Repeated {
    pub(super) sample: Sample,
    /// Results that differ; of somebody else's certificate, also files and packages.
    pub(super) findings: Findings,
    /// Clause about the ranks that ran the episodes, as in `2 ranks with 4 environments`.
    pub(super) by: String,
}

impl AgainArgs {
    /// Returns the jobs of a certificate with the paths of this machine, at which policies have to be
    /// the same: `all_alike`, or those that the user has named.
    pub(super) fn jobs(
        &self,
        certificate: &Certificate,
        all_alike: bool,
    ) -> anyhow::Result<(Value, Vec<Place>)> {
        let mut jobs = certificate::jobs_file(certificate);
        let policies = &certificate.contents.policies;
        let places = places::apply(&self.places, &mut jobs, policies, all_alike)?;
        Ok((jobs, places))
    }

    /// Checks that the user trusts these jobs. The launch would refuse them as well, but with a
    /// message about a folder and options that the user has not named.
    pub(super) fn trusted(
        &self,
        jobs: &[Job],
        server: Option<&ModelServer>,
        whose: &str,
    ) -> anyhow::Result<()> {
        let variable = |name: &str| std::env::var(name).ok();
        let uses = trust::untrusted(jobs, server, &variable);
        ensure!(
            uses.is_empty() || self.trust_plan,
            "{whose} names programs or servers that you have not started a run with here:\n  {}\n\
             use --trust-plan to run what it names",
            uses.join("\n  ")
        );
        Ok(())
    }

    /// Runs `count` episodes again, which `seed` chooses.
    pub(super) fn run(
        &self,
        Original { certificate, whose }: Original<'_>,
        count: usize,
        seed: &str,
    ) -> anyhow::Result<Repeated> {
        let contents = &certificate.contents;
        let chosen = sample::choose(contents, count, seed);
        ensure!(
            !chosen.is_empty(),
            "no episode can be run again: none was scored of a job with num_episodes whose latency \
             is not measured"
        );
        // Another policy at the path of the run is a finding.
        let (jobs, places) = self.jobs(certificate, false)?;
        let whole = certificate::plan_of(certificate, &jobs);
        let whole = whole.map_err(|err| err.inside("the jobs cannot be run again"))?;
        let plan = sample::plan(&whole, &chosen)
            .context("the names of the jobs cannot be passed to --only")?;
        self.trusted(&plan.jobs, plan.model_server.as_ref(), &whose)?;

        let folder = RunFolder::new(&temporary());
        let root = folder.root().display();
        let named = || format!("cannot run the episodes again in `{root}`");
        write(&folder, &plan).with_context(named)?;
        let status = self.launch(&folder, &plan, contents).with_context(named)?;
        // The launch has given the run an id, which its journal lines contain.
        let merged = Merged::open(&folder)?;
        // A launch starts no more ranks than it has episodes.
        let ranks = merged.ranks();
        if !status.success() && ranks == 0 {
            let log = log(&folder);
            let end = end_of(&log).with_context(named)?;
            bail!(
                "the episodes could not be run again ({status}); the output is in `{}`, its end \
                 is\n{end}",
                log.display()
            );
        }
        let sample = Sample {
            ranks,
            environments: merged
                .plan
                .jobs
                .iter()
                .map(|job| job.num_envs)
                .max()
                .unwrap_or(1),
            machines: certificate::machines(&merged),
            episodes: sample::repeated(&chosen, &merged).with_context(named)?,
        };
        let here = |path: &str| places::here(&places, path);
        let mut findings = certificate::differences(contents, &merged, here);
        let mut episodes: Vec<_> = sample.episodes.iter().collect();
        episodes.sort_by(|a, b| a.id.cmp(&b.id));
        let different = episodes.into_iter();
        findings
            .wrong
            .extend(different.filter_map(|one| certificate.difference(one)));
        let (by_ranks, envs) = (counted(ranks, "rank"), sample.environments);
        let mut by = format!("{by_ranks} with {}", counted(envs, "environment"));
        if findings.wrong.is_empty() {
            fs::remove_dir_all(folder.root()).with_context(named)?;
        } else {
            by += &format!("; the results are in `{root}`");
        }
        Ok(Repeated {
            sample,
            findings,
            by,
        })
    }

    /// Runs the plan in `folder`, unless the user says otherwise with numbers of ranks and
    /// environments that no job has had. Its exit code says little, because every episode is compared.
    fn launch(
        &self,
        folder: &RunFolder,
        plan: &RunPlan,
        contents: &Contents,
    ) -> io::Result<ExitStatus> {
        let other = if contents.run.world_size == 2 { 1 } else { 2 };
        let ranks = evaluation::number(&self.words, "--nproc-per-node").unwrap_or(other);
        let output = File::create(log(folder))?;
        let mut command = evaluation::here(ranks, &self.words)?;
        command.arg("--resume").arg(folder.root());
        if !evaluation::has(&self.words, "--num-envs") {
            // The environments of a shared job are divided among all ranks.
            let had = |envs: &usize| plan.jobs.iter().any(|job| job.num_envs == *envs);
            let envs = (1..=64).map(|times| times * ranks).find(|envs| !had(envs));
            command.args(["--num-envs", &envs.unwrap_or(ranks).to_string()]);
        }
        // The episodes of a single job are enough for several ranks.
        let ours = [
            ("--shard", Some("episodes")),
            ("--no-video", None),
            ("--export-mode", Some("none")),
            ("--continue-on-error", None),
        ];
        for (option, value) in ours {
            if !evaluation::has(&self.words, option) {
                command.arg(option).args(value);
            }
        }
        command.args(self.trust_plan.then_some("--trust-plan"));
        // They affect the last bits of a network's results, and are no properties of the policy.
        let machine = contents.machines.first().cloned().unwrap_or_default();
        let threads = machine.threads.map(|threads| threads.to_string());
        command.envs(threads.map(|threads| ("OMP_NUM_THREADS", threads)));
        for name in ROUNDING_VARIABLES {
            match machine.rounding.get(name) {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output)
            .status()
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
