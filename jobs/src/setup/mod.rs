//! Reads everything that an `eval` command line refers to, as one: the jobs file, the
//! configurations and the placement.

use std::path::{Path, PathBuf};

use crate::assign::Assignment;
use crate::count::listed;
use crate::eval_args::EvalArgs;
use crate::experiment::{Experiment, is_experiment};
use crate::file::{self, JobFile};
use crate::job::{Job, Status};
use crate::layout::RunFolder;
use crate::placement::{Components, Division, Placement, Resources};
use crate::plan::{self, RunPlan};
use crate::refusal::Refusal;
use crate::rlinf::Config;
use crate::rules;
use crate::secrets;
use crate::tree;
use crate::trust;

/// Number of unused settings that are named; the rest is only counted.
const NAMED: usize = 12;

/// Everything that the command line refers to, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The jobs, with the settings of the configurations applied.
    pub file: JobFile,
    /// The requested placement; `--placement` overrides the configurations.
    pub components: Option<Components>,
    /// `cluster.num_nodes`.
    pub num_nodes: Option<usize>,
    /// The run folder: `--output`, `runner.logger.log_path`, otherwise `outputs/<jobs file or
    /// job>`.
    pub output: PathBuf,
    /// The rule by which ranks get their work.
    pub assignment: Assignment,
    /// Notes to show to the user before the start.
    pub notes: Vec<String>,
}

impl Setup {
    /// Reads and checks all files; `variable` looks up `${oc.env:NAME}`.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn read(
        args: &EvalArgs,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let config = Config::read(&args.config, &args.set, variable)?;
        let line = args.placement.as_deref().map(Components::parse);
        let line = line.transpose().map_err(|err| err.inside("--placement"))?;
        let components = match (line, config.components.clone()) {
            (Some(line), Some(below)) => Some(line.over(below)),
            (line, below) => line.or(below),
        };
        if let Some(change) = args.changes.first()
            && !args.jobs.as_deref().is_some_and(is_experiment)
        {
            return Err(Refusal::new(format_args!(
                "`{change}` changes an Experiment, and none is given: use --experiment FILE.yaml"
            )));
        }
        let (mut file, unused) = match &args.resume {
            Some(folder) if args.jobs.is_none() && !config.has_jobs() => {
                (of_run(args, &config, folder, variable)?, Vec::new())
            }
            _ => jobs(args, &config, variable)?,
        };
        if let Some(num_envs) = args.num_envs {
            set_num_envs(&mut file.jobs, num_envs);
        }
        let notes = without_effect(unused, &config, components.as_ref());
        let output = output(args, &config, &file);
        file.model_server = config.model_server.clone().or(file.model_server);
        if let Some(only) = &args.only {
            file.jobs = only.choose(file.jobs)?;
        }
        if args.quick {
            file.jobs = plan::shortened(file.jobs, args);
        }
        secrets::check(&file.jobs, file.model_server.as_ref())
            .map_err(|refusal| Refusal::in_file(&file.path, refusal))?;
        Ok(Self {
            file,
            components,
            num_nodes: config.num_nodes,
            output,
            assignment: args.assignment(),
            notes,
        })
    }

    /// Checks the jobs that are to run, as far as that is possible without their simulators, their
    /// policies' files and servers.
    ///
    /// # Errors
    /// Refuses the first job that a rank would refuse when its turn comes.
    pub fn check_jobs(&self, args: &EvalArgs) -> Result<(), Refusal> {
        let JobFile { path, jobs, .. } = &self.file;
        rules::check(jobs, path)?;
        rules::check_to_run(jobs, args).map_err(|refusal| Refusal::in_file(path, refusal))
    }

    /// Returns the placement on the available resources, if one was requested.
    ///
    /// # Errors
    /// Refuses a placement that does not fit them.
    pub fn placement(&self, resources: Resources) -> Result<Option<Placement>, Refusal> {
        let components = self.components.as_ref();
        components
            .map(|components| Placement::new(components, resources))
            .transpose()
    }

    /// Checks that the environments of every shared job can be dealt to workers and ranks.
    ///
    /// # Errors
    /// Refuses the first job whose environments cannot be dealt, with the nearest numbers that can.
    pub fn check(&self, placement: &Placement) -> Result<(), Refusal> {
        for (job, total) in self.shared() {
            let division = Division {
                total,
                workers: placement.env.len(),
                ranks: placement.world_size(),
                stages: job.rollout.pipeline_stage_num.unwrap_or(1),
            };
            division.check().map_err(|err| err.inside(job.place()))?;
        }
        Ok(())
    }

    /// Sets the number of environments of every job, as `--num-envs` does.
    #[must_use]
    pub fn with_num_envs(mut self, num_envs: usize) -> Self {
        set_num_envs(&mut self.file.jobs, num_envs);
        self
    }

    /// Returns the number of environments over all ranks of the largest shared job that is to run.
    pub fn total_num_envs(&self) -> Option<usize> {
        self.shared().map(|(_, total)| total).max()
    }

    /// Returns the shared jobs that are to run, with their environments over all ranks.
    fn shared(&self) -> impl Iterator<Item = (&Job, usize)> {
        let jobs = self.file.jobs.iter();
        let pending = jobs.filter(|job| job.status == Status::Pending);
        pending.filter_map(|job| Some((job, job.total_num_envs?)))
    }
}

fn no_jobs() -> Refusal {
    Refusal::new(
        "no jobs are given: use --jobs FILE, or a --config with env.eval.environment and \
         rollout.policy_type",
    )
}

/// Returns the jobs of file and configuration, and the settings of an Experiment without effect. A
/// jobs file without a configuration is identified by the hash of its bytes, as `sha256sum` prints
/// it. Otherwise the resulting jobs are hashed, without their placement.
fn jobs(
    args: &EvalArgs,
    config: &Config,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(JobFile, Vec<String>), Refusal> {
    let file = |path: &Path, value| JobFile::new(path, file::identity(value), value);
    let Some(path) = args.jobs.as_deref() else {
        let value = config.jobs(None).ok_or_else(no_jobs)?;
        let path = config.files.last().cloned().unwrap_or_default();
        return Ok((file(&path, &value)?, Vec::new()));
    };
    if config.jobs.is_some() {
        return Err(Refusal::new(format_args!(
            "--jobs `{}` and the `jobs` of --config are both given; keep one of them",
            path.display()
        )));
    }
    let (value, unused) = if is_experiment(path) {
        let text = tree::read(path)?;
        let read = Experiment::parse(path, &text, &args.changes, variable)?;
        (read.jobs, read.unused)
    } else if args.config.is_empty() && args.set.is_empty() {
        return Ok((JobFile::read(path)?, Vec::new()));
    } else {
        (file::value(path)?, Vec::new())
    };
    file::parse(&value).map_err(|refusal| Refusal::in_file(path, refusal))?;
    let value = config.jobs(Some(value)).ok_or_else(no_jobs)?;
    Ok((file(path, &value)?, unused))
}

/// Returns the jobs of the run that is continued.
fn of_run(
    args: &EvalArgs,
    config: &Config,
    folder: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<JobFile, Refusal> {
    let run = RunPlan::read(&RunFolder::new(folder))?;
    let needs_jobs = |option: &str| {
        Err(Refusal::new(format_args!(
            "{option} would change the jobs of `{}`; it requires --jobs beside --resume",
            folder.display()
        )))
    };
    if config.changes_jobs() {
        let is_set = config.files.is_empty();
        return needs_jobs(if is_set { "--set" } else { "--config" });
    }
    let steps = run.options.get("num-steps");
    let steps: Option<u64> = steps.and_then(|steps| steps.parse().ok());
    if args.num_steps != steps {
        return needs_jobs("--num-steps");
    }
    // The server of this command replaces that of the plan.
    let server = run.model_server.as_ref();
    let server = server.filter(|_| config.model_server.is_none());
    if !args.trust_plan {
        let uses = trust::untrusted(&run.jobs, server, variable);
        if !uses.is_empty() {
            return Err(Refusal::new(format_args!(
                "the plan of `{}` names programs or servers that you have not started a run with \
                 here:\n  {}\nuse --jobs FILE beside --resume to name the jobs yourself, or \
                 --trust-plan to run what the plan names",
                folder.display(),
                uses.join("\n  ")
            )));
        }
    }
    Ok(JobFile {
        path: run.jobs_file.into(),
        sha256: run.jobs_sha256,
        jobs: run.jobs,
        model_server: run.model_server,
    })
}

fn set_num_envs(jobs: &mut [Job], num_envs: usize) {
    for job in jobs {
        job.num_envs = num_envs;
        job.total_num_envs = job.total_num_envs.map(|_| num_envs);
    }
}

fn output(args: &EvalArgs, config: &Config, file: &JobFile) -> PathBuf {
    let given = args
        .resume
        .clone()
        .or_else(|| args.output.clone())
        .or_else(|| config.log_path.clone());
    let own = || {
        let mut name = match &args.jobs {
            Some(path) => path.file_stem().unwrap_or_default().to_owned(),
            None if file.jobs.len() == 1 => file.jobs[0].name.clone().into(),
            None => config.name().into(),
        };
        // A selection gets its own folder, because the folder of the whole run would refuse it.
        name.push(if args.only.is_some() { "_only" } else { "" });
        PathBuf::from("outputs").join(name)
    };
    let output = given.unwrap_or_else(own);
    match args.quick {
        true => plan::quick_folder(&output),
        false => output,
    }
}

/// Returns one line about all settings without effect, if there are any.
fn without_effect(
    of_experiment: Vec<String>,
    config: &Config,
    components: Option<&Components>,
) -> Vec<String> {
    let placed = components.into_iter().flat_map(Components::unused);
    let of_config = config.unused.iter().map(String::as_str).chain(placed);
    let of_experiment = of_experiment.iter().map(String::as_str);
    let all: Vec<_> = of_experiment.chain(of_config).collect();
    match all[..] {
        [] => vec![],
        [one] => vec![format!("{one} has no effect")],
        _ => vec![format!("{} have no effect", listed(&all, NAMED))],
    }
}

#[cfg(test)]
mod tests;
