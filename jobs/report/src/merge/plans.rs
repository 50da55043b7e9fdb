//! Merges several plans: their jobs may be the same, different, or partly the same, but no two
//! different jobs have the same name.

use std::collections::{BTreeMap, HashMap, HashSet};

use jobs::format::word;
use jobs::inputs::InputFile;
use jobs::job::{Job, JobIndex, Status};
use jobs::plan::{Difference, RunPlan, joined_provenance};
use jobs::refusal::Refusal;
use jobs::sha256;

use crate::merge::Input;
use crate::merge::journals;
use crate::sections::per_job::distinct;

/// Returns the merged plan. The result depends on the set of inputs only: if they differ in something
/// irrelevant, the smallest text is taken.
pub(super) fn join(inputs: &[Input]) -> Result<RunPlan, Refusal> {
    let jobs = jobs(inputs)?;
    let files = input_files(inputs)?;
    let seed = seed(inputs)?;
    let runs = journals::runs(inputs).map_err(Refusal::new)?;
    let runs: Vec<_> = runs.into_iter().collect();
    let plans = || inputs.iter().map(|input| &input.plan);
    let texts = |of: fn(&RunPlan) -> &String| plans().map(of).cloned();
    let first = &inputs[0].plan;
    Ok(RunPlan {
        schema: first.schema.clone(),
        id: sha256::of(runs.join("\n"))[..32].to_owned(),
        jobs_file: same(texts(|plan| &plan.jobs_file)).unwrap_or_else(|| "several".to_owned()),
        jobs_sha256: same(texts(|plan| &plan.jobs_sha256)).unwrap_or_else(|| identity(&jobs)),
        seed,
        only: same(plans().map(|plan| plan.only.clone())).flatten(),
        world_size: plans().map(|plan| plan.world_size).max().unwrap_or(1),
        jobs,
        inputs: files,
        options: plans().fold(first.options.clone(), common),
        rrun: texts(|plan| &plan.rrun).max().unwrap_or_default(),
        git: same(plans().map(|plan| plan.git.clone())).flatten(),
        created: texts(|plan| &plan.created).min().unwrap_or_default(),
        resumed_from: distinct(plans().flat_map(|plan| plan.resumed_from.clone())),
        provenance: joined_provenance(plans()),
        // No launch began the merged run, and nothing replaces it.
        ..RunPlan::default()
    })
}

/// Returns the value that all items have; `None` if they differ.
fn same<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

fn common(mut options: BTreeMap<String, String>, plan: &RunPlan) -> BTreeMap<String, String> {
    options.retain(|name, value| plan.options.get(name) == Some(value));
    options
}

fn identity(jobs: &[Job]) -> String {
    sha256::of(jobs.iter().map(text).collect::<Vec<_>>().join("\n"))
}

fn text(job: &Job) -> String {
    serde_json::to_string(job).unwrap_or_default()
}

/// Returns the merged jobs, in the common order of the inputs if there is one, otherwise ordered by
/// name.
fn jobs(inputs: &[Input]) -> Result<Vec<Job>, Refusal> {
    let mut joined: HashMap<&str, (usize, Job)> = HashMap::new();
    let mut order: Vec<&str> = Vec::new();
    for (number, input) in inputs.iter().enumerate() {
        let mut differing: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for job in &input.plan.jobs {
            let Some((owner, other)) = joined.get_mut(job.name.as_str()) else {
                order.push(&job.name);
                joined.insert(&job.name, (number, job.clone()));
                continue;
            };
            let plans = [&inputs[*owner].plan, &input.plan];
            // Workers of one launch have the same jobs.
            if other == job && plans[0].seed == plans[1].seed {
                continue;
            }
            if !is_same(plans, [other, job]) {
                differing.entry(*owner).or_default().push(&job.name);
            }
            *other = either(other, job);
        }
        if let Some((owner, names)) = differing.first_key_value() {
            return Err(refusal(&inputs[*owner], input, names));
        }
    }
    let names = |input: &Input| -> Vec<_> {
        let jobs = input.plan.jobs.iter();
        jobs.map(|job| job.name.clone()).collect()
    };
    if same(inputs.iter().map(names)).is_none() {
        order.sort_unstable();
    }
    let placed = |(index, name): (usize, &str)| Job {
        index: JobIndex(index),
        ..joined[name].1.clone()
    };
    Ok(order.into_iter().enumerate().map(placed).collect())
}

/// Returns the files that decide the outcomes of the jobs. Runs that share a job must have had the
/// same ones, as far as their sums are known.
fn input_files(inputs: &[Input]) -> Result<BTreeMap<String, InputFile>, Refusal> {
    let mut files: BTreeMap<&str, Vec<(&Input, &InputFile)>> = BTreeMap::new();
    for input in inputs {
        for (path, file) in &input.plan.inputs {
            let known = files.entry(path).or_default();
            let other = known.iter().find(|(owner, other)| {
                let is_known = other.sha256.is_some() && file.sha256.is_some();
                is_known && !other.is_same(file) && share_a_job(&owner.plan, &input.plan)
            });
            if let Some((owner, other)) = other {
                let change = format!("`{path}`: {other} → {file}");
                return Err(other_jobs(owner, input, &[change]));
            }
            known.push((input, file));
        }
    }
    let key = |file: &&InputFile| (file.sha256.clone(), file.bytes, file.modified);
    let chosen = |(path, known): (&str, Vec<(&Input, &InputFile)>)| {
        let file = known.into_iter().map(|(_, file)| file).max_by_key(key)?;
        Some((path.to_owned(), file.clone()))
    };
    Ok(files.into_iter().filter_map(chosen).collect())
}

fn share_a_job(a: &RunPlan, b: &RunPlan) -> bool {
    let names: HashSet<&str> = a.jobs.iter().map(|job| job.name.as_str()).collect();
    b.jobs.iter().any(|job| names.contains(job.name.as_str()))
}

/// Returns the job as if all of its episodes were selected and none was done. A part that `--only`
/// selected has the same episodes as the whole job.
fn whole(job: &Job) -> Job {
    Job {
        only: None,
        status: Status::Pending,
        ..job.clone()
    }
}

/// Returns the plan with these of its jobs only, as if there were no others.
fn reduced<'a>(plan: &RunPlan, jobs: impl IntoIterator<Item = &'a Job>) -> RunPlan {
    RunPlan {
        seed: plan.seed,
        jobs: jobs.into_iter().map(whole).collect(),
        ..RunPlan::default()
    }
}

/// Returns whether two jobs have the same episodes with the same results, as far as both have them.
fn is_same([a, b]: [&RunPlan; 2], [job_of_a, job_of_b]: [&Job; 2]) -> bool {
    Difference::between(&reduced(a, [job_of_a]), &reduced(b, [job_of_b])).is_none()
}

fn refusal(a: &Input, b: &Input, names: &[&str]) -> Refusal {
    let of = |plan: &RunPlan| {
        let jobs = plan.jobs.iter();
        reduced(plan, jobs.filter(|job| names.contains(&job.name.as_str())))
    };
    other_jobs(
        a,
        b,
        &Difference::between(&of(&a.plan), &of(&b.plan)).lines(),
    )
}

fn other_jobs(a: &Input, b: &Input, changes: &[String]) -> Refusal {
    Refusal::new(format_args!(
        "`{}` and `{}` ran different jobs under the same names:\n  {}",
        a.folder.root().display(),
        b.folder.root().display(),
        changes.join("\n  ")
    ))
}

/// Merges two forms of one job: it is to be run if one of them is, its episodes are those of both,
/// and of other differences the smaller text is taken.
fn either(a: &Job, b: &Job) -> Job {
    let plain = |job: &Job| Job {
        index: JobIndex(0),
        ..whole(job)
    };
    let (a_text, b_text) = (text(&plain(a)), text(&plain(b)));
    let chosen = if a_text <= b_text { a } else { b };
    let both = a.only.as_ref().zip(b.only.as_ref());
    let only = both.map(|(a, b)| a.union(b));
    let status = match [a.status, b.status] {
        [a, b] if a == Status::Pending || b == Status::Pending => Status::Pending,
        [a, b] => std::cmp::max_by_key(a, b, |status| word(*status)),
    };
    Job {
        only,
        status,
        ..chosen.clone()
    }
}

/// Returns the base seed, which all inputs must share; jobs with a seed of their own do not need
/// it.
fn seed(inputs: &[Input]) -> Result<u64, Refusal> {
    let asks = |input: &&Input| input.plan.jobs.iter().any(|job| job.seed.is_none());
    let mut asking = inputs.iter().filter(asks);
    let Some(first) = asking.next() else {
        return Ok(inputs
            .iter()
            .map(|input| input.plan.seed)
            .min()
            .unwrap_or_default());
    };
    let other = asking.find(|input| input.plan.seed != first.plan.seed);
    other.map_or(Ok(first.plan.seed), |other| {
        Err(Refusal::new(format_args!(
            "the base seed of `{}` is {}, that of `{}` is {}: only jobs with a seed field of their \
             own can be merged",
            first.folder.root().display(),
            first.plan.seed,
            other.folder.root().display(),
            other.plan.seed
        )))
    })
}
