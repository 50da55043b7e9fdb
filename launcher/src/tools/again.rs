//! What a certificate has is run again on this machine: some of its episodes, for `rrun verify` and
//! `rrun certify`, or its jobs, for `rrun reproduce`.
//!
//! ```text
//! certificate ─► jobs, with the paths of this machine ─► trusted? ─┬─► rrun eval --jobs (reproduce)
//!                                                                  └─► --rerun K: K episodes
//! K episodes ─► plan.json in a new folder ─► rrun eval --resume, without files ─► the same results?
//! ```

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, bail, ensure};
use jobs::count::counted;
use jobs::job::Job;
use jobs::journal::ROUNDING_VARIABLES;
use jobs::launch::fresh_id;
use jobs::layout::{RunFolder, write_whole};
use jobs::model_server::ModelServer;
use jobs::plan::RunPlan;
use jobs::{sha256, trust};
use report::Merged;
use report::certificate::{self, Certificate, CertifiedFiles, Contents, Sample, sample};
use report::verify::Findings;
use serde_json::Value;

use crate::logs::lines::last_lines;
use crate::tools::{LAST_LINES, evaluation};

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
        let places = apply(&self.places, &mut jobs, policies, all_alike)?;
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

    /// Runs `count` episodes again, which `seed` chooses. `whose` says as the subject of a sentence
    /// what the certificate was made or read from.
    pub(super) fn run(
        &self,
        certificate: &Certificate,
        whose: &str,
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
        self.trusted(&plan.jobs, plan.model_server.as_ref(), whose)?;

        // Others do not guess its name.
        let name = format!("rrun-verify-{}", fresh_id()?);
        let folder = RunFolder::new(&std::env::temp_dir().join(name));
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
            let end = last_lines(&log, LAST_LINES).with_context(named)?;
            bail!(
                "the episodes could not be run again ({status}); the output is in `{}`, its end \
                 is\n{}",
                log.display(),
                end.join("\n")
            );
        }
        let envs = merged.plan.jobs.iter().map(|job| job.num_envs);
        let sample = Sample {
            ranks,
            environments: envs.max().unwrap_or(1),
            machines: certificate::machines(&merged),
            episodes: sample::repeated(&chosen, &merged).with_context(named)?,
        };
        let here = |path: &str| here(&places, path);
        let mut findings = certificate::differences(contents, &merged, here);
        let mut episodes: Vec<_> = sample.episodes.iter().collect();
        episodes.sort_by(|a, b| a.id.cmp(&b.id));
        let differences = episodes.into_iter();
        let differences = differences.filter_map(|one| certificate.difference(one));
        findings.wrong.extend(differences);
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

/// A path of another machine, and where the same file or folder is on this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    there: String,
    here: String,
}

/// Replaces paths in the jobs of a certificate, as `given` says. The policies that are elsewhere on
/// this machine have to be those of the certificate, or `all_alike`.
fn apply(
    given: &[String],
    jobs: &mut Value,
    policies: &[CertifiedFiles],
    all_alike: bool,
) -> anyhow::Result<Vec<Place>> {
    let mut places = Vec::new();
    for text in given {
        let place = Place::read(text, jobs, policies)?;
        place.replace(jobs);
        places.push(place);
    }
    for files in policies {
        let moved = here(&places, &files.path);
        let path = moved.as_deref().unwrap_or(&files.path);
        if moved.is_some() || Path::new(path).exists() {
            if moved.is_none() && !all_alike {
                continue;
            }
            let found =
                sha256::of_files(path.as_ref(), |file| sha256::of_reader(File::open(file)?));
            let found = found.with_context(|| format!("cannot read the policy `{path}`"))?;
            ensure!(
                found.sha256 == files.sha256,
                "the policy `{path}` is not the one that was evaluated: its SHA-256 is {}, that of \
                 `{}` was {}",
                found.sha256,
                files.path,
                files.sha256
            );
        } else if is_named(&files.path, jobs) {
            // The path of a model of the Hugging Face Hub is in the cache of the author's machine,
            // and the jobs have its name.
            bail!("the policy `{path}` is not on this machine; use --path to say where it is");
        }
    }
    Ok(places)
}

/// Returns where a path of the other machine is here, if it is one of these places.
fn here(places: &[Place], path: &str) -> Option<String> {
    places.iter().find_map(|place| place.of(path))
}

/// Returns whether the jobs name a path, or something below it.
fn is_named(path: &str, jobs: &Value) -> bool {
    // A place that changes nothing finds what one that does would replace.
    Place::new(path, path).replace(&mut jobs.clone()) > 0
}

impl Place {
    fn new(there: &str, here: &str) -> Self {
        Self {
            there: there.to_owned(),
            here: here.to_owned(),
        }
    }

    /// Reads a value of the option. Both paths may contain `=`, so the jobs decide where the first
    /// one ends.
    fn read(text: &str, jobs: &Value, policies: &[CertifiedFiles]) -> anyhow::Result<Self> {
        let pairs = text
            .match_indices('=')
            .map(|(at, _)| (&text[..at], &text[at + 1..]));
        let mut pairs = pairs.filter(|(there, here)| !there.is_empty() && !here.is_empty());
        if let Some((there, here)) = pairs.clone().find(|(there, _)| is_named(there, jobs)) {
            return Ok(Self::new(there, here));
        }
        if let Some((there, _)) = pairs.next().filter(|_| !Path::new(text).exists()) {
            bail!("--path: `{there}` is in no job");
        }
        let paths = policies.iter().map(|files| files.path.as_str());
        let named: BTreeSet<_> = paths.filter(|path| is_named(path, jobs)).collect();
        match named.first() {
            Some(there) if named.len() == 1 => Ok(Self::new(there, text)),
            _ => bail!(
                "--path: expected THERE={text}, because the jobs name {} of policies",
                counted(named.len(), "path")
            ),
        }
    }

    /// Returns where a path of the other machine is here, if it is the mapped one, below it, or an
    /// entry point in it (`policy.py:make`).
    fn of(&self, path: &str) -> Option<String> {
        let rest = path
            .strip_prefix(&self.there)
            .filter(|rest| rest.is_empty() || rest.starts_with(['/', ':']))?;
        Some(format!("{}{rest}", self.here))
    }

    /// Replaces the path in all texts but the names of jobs. Returns how often it occurred.
    fn replace(&self, value: &mut Value) -> usize {
        match value {
            Value::String(text) => {
                let Some(here) = self.of(text) else { return 0 };
                *text = here;
                1
            }
            Value::Array(items) => items.iter_mut().map(|item| self.replace(item)).sum(),
            Value::Object(fields) => fields
                .iter_mut()
                .filter(|(name, _)| *name != "name")
                .map(|(_, field)| self.replace(field))
                .sum(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn jobs() -> Value {
        json!({"jobs": [{"name": "a/b", "policy_config_dict": {"model_path": "a/b"},
            "arena_env_args": {"environment": "a/b/envs.py:make", "texture": "a/bc"}}]})
    }

    #[test]
    fn a_path_is_replaced_with_what_is_below_it_and_nothing_else() {
        let mut jobs = jobs();
        assert_eq!(Place::new("a/b", "/here").replace(&mut jobs), 2);
        let job = &jobs["jobs"][0];
        assert_eq!(job["name"], "a/b");
        assert_eq!(job["policy_config_dict"]["model_path"], "/here");
        assert_eq!(job["arena_env_args"]["environment"], "/here/envs.py:make");
        assert_eq!(job["arena_env_args"]["texture"], "a/bc");
    }

    #[test]
    fn another_policy_is_refused_where_it_was_named_or_all_have_to_be_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy");
        std::fs::write(&path, "others").unwrap();
        let path = path.to_str().unwrap();
        let policies = [CertifiedFiles {
            policy_type: "torchscript".to_owned(),
            path: path.to_owned(),
            sha256: "0".to_owned(),
            bytes: 1,
        }];
        let named = [format!("{path}={path}")];
        for (given, all_alike, is_refused) in [
            (&[][..], true, true),
            (&[][..], false, false),
            (&named[..], false, true),
        ] {
            let mut jobs = json!({"jobs": [{"policy_config_dict": {"model_path": path}}]});
            let found = apply(given, &mut jobs, &policies, all_alike);
            assert_eq!(found.is_err(), is_refused, "{given:?} {all_alike}");
        }
    }

    #[test]
    fn a_place_has_two_sides_or_is_that_of_the_only_policy() {
        let policy = |path: &str| CertifiedFiles {
            policy_type: "gr00t".to_owned(),
            path: path.to_owned(),
            sha256: String::new(),
            bytes: 0,
        };
        let read = |text: &str, policies: &[CertifiedFiles]| {
            Place::read(text, &jobs(), policies).map_err(|err| err.to_string())
        };
        // Of the Hugging Face Hub, which no job names.
        let one = [policy("a/b"), policy("/cache/models--x")];
        let same = Place::new("a/b", "x=1");
        assert_eq!(read("a/b=x=1", &one), Ok(same));
        assert_eq!(read("here", &one), Ok(Place::new("a/b", "here")));
        for (text, policies, told) in [
            ("b=c", &one[..], "--path: `b` is in no job"),
            (
                "a/b=",
                &[],
                "--path: expected THERE=a/b=, because the jobs name 0 paths of policies",
            ),
            (
                "here",
                &[policy("a/b"), policy("a/bc")],
                "--path: expected THERE=here, because the jobs name 2 paths of policies",
            ),
        ] {
            assert_eq!(read(text, policies).unwrap_err(), told);
        }
    }
}
