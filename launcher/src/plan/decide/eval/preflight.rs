//! The preflight check of `eval`: whether an evaluation fits into the memory of its GPUs.

use fit::memory::{Fit, Need, Proposal};
use jobs::bytes::ByteSize;
use jobs::placement::{Placement, Resources};
use jobs::setup::Setup;

use crate::plan::decide::eval::dedicated::Dedicated;
use crate::plan::decide::eval::room::GpuBudgets;

/// Number of jobs whose proposals are printed with an error.
const NAMED: usize = 4;

/// A GPU has too little memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "GPU {gpu} has {free} free, but at least {certain} are required ({parts}), {need} in total by \
     estimate; {proposal}; --no-memory-check starts it anyway"
)]
pub struct TooMuch {
    /// The first such GPU.
    pub gpu: usize,
    /// Its free memory.
    pub free: ByteSize,
    /// The memory that is needed for certain.
    pub certain: ByteSize,
    /// The parts of the certain need, as text.
    pub parts: String,
    /// The estimated need, which includes the certain one.
    pub need: ByteSize,
    /// A proposal that would fit.
    pub proposal: String,
}

/// Refuses an evaluation that cannot fit: weights and declared or measured environments alone
/// need more than a GPU has free.
///
/// # Errors
/// Returns [`TooMuch`] for the first such GPU, with a proposal that would fit.
pub fn check(
    room: &GpuBudgets,
    setup: &Setup,
    placement: &Placement,
    resources: Resources,
) -> Result<(), TooMuch> {
    let planner = room.planner(setup, placement);
    for need in planner.needs() {
        let Some(budget) = planner
            .budget(need.gpu)
            .filter(|budget| need.fit(Some(*budget)) == Fit::Never)
        else {
            continue;
        };
        let fewer = fewer(&planner.propose(), |num_envs| {
            room.holds(setup, placement, num_envs)
        });
        let dedicated = match resources {
            Resources::Gpus { per_node, nodes: 1 } => {
                Dedicated::find(room, setup, placement, per_node)
            }
            Resources::Gpus { .. } | Resources::Labels => None,
        };
        let proposal = dedicated.map_or(fewer.clone(), |dedicated| format!("{fewer}; {dedicated}"));
        let (certain, estimated) = (need.sum().certain, need.sum().bytes);
        let parts = parts(&need);
        return Err(TooMuch {
            gpu: need.gpu,
            free: budget.free,
            certain,
            parts,
            need: estimated,
            proposal,
        });
    }
    Ok(())
}

/// Lists the certain parts of a need.
fn parts(need: &Need) -> String {
    let parts = [
        ("weights", need.weights.certain),
        ("environments", need.environments.certain),
    ];
    let named = parts
        .iter()
        .filter(|(_, bytes)| bytes.0 > 0)
        .map(|(name, bytes)| format!("{name} {bytes}"));
    named.collect::<Vec<_>>().join(", ")
}

/// Returns what would fit, for the jobs that have to change, and the option that sets it for all
/// jobs.
fn fewer(proposals: &[Proposal], holds: impl Fn(usize) -> bool) -> String {
    let changed = proposals.iter().filter_map(|proposal| {
        let proposed = proposal
            .proposed_num_envs
            .filter(|proposed| *proposed < proposal.num_envs)?;
        Some(format!("num_envs {proposed} of `{}`", proposal.job))
    });
    let changed: Vec<_> = changed.collect();
    let fewest = proposals
        .iter()
        .filter_map(|proposal| proposal.proposed_num_envs)
        .min();
    let option = fewest.filter(|fewest| !changed.is_empty() && holds(*fewest));
    let option = option
        .map(|fewest| format!(" (--num-envs {fewest})"))
        .unwrap_or_default();
    let would_fit = match changed.len() {
        0 => return "fewer environments do not help".to_owned(),
        count if count > NAMED => {
            format!(
                "{} and of {} more jobs would fit",
                changed[..NAMED].join(", "),
                count - NAMED
            )
        }
        _ => format!("{} would fit", changed.join(", ")),
    };
    format!("{would_fit}{option}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use crate::cli::Environment;
    use crate::node::nvml::GpuMemory;
    use crate::plan::decide::eval::EvalRequest;
    use crate::plan::decide::eval::seating::LaunchSize;

    const GIB: u64 = 1 << 30;

    /// Returns what `eval` answers for a job with six environments of `env` on one GPU with `total`
    /// and `used` GiB.
    fn answer(env: &str, total: u64, used: u64, extra: &[&str]) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let jobs = dir.path().join("jobs.json");
        let text = format!(
            r#"{{"jobs": [{{"name": "a", "arena_env_args": {{{env}, "num_envs": 6}}, "policy_type": "scripted",
                "num_episodes": 60}}]}}"#
        );
        std::fs::write(&jobs, text).unwrap();
        let out = dir.path().join("out");
        let words: [&Path; 4] = ["--jobs".as_ref(), &jobs, "--output".as_ref(), &out];
        let words: Vec<OsString> = words
            .iter()
            .map(Into::into)
            .chain(extra.iter().map(Into::into))
            .collect();
        let launch = LaunchSize {
            nproc: Some(1),
            nodes: (1, 1),
            tasks_per_node: Vec::new(),
            gpus: 1,
            is_virtual: false,
        };
        let memory = GpuMemory {
            total: total * GIB,
            used: used * GIB,
        };
        let asked =
            EvalRequest::read(&words, &Environment::default()).map_err(|err| err.to_string())?;
        let plan = asked
            .check(&launch, &[memory])
            .map_err(|err| err.to_string())?;
        Ok(plan.notes.iter().map(|note| note.to_string()).collect())
    }

    const DECLARED: &str = r#""environment": "reach", "env_memory_gb": 3"#;

    #[test]
    fn what_certainly_does_not_fit_is_refused_with_what_would() {
        assert_eq!(
            answer(DECLARED, 16, 0, &[]).unwrap_err(),
            "GPU 0 has 16.0 GiB free, but at least 18.0 GiB are required (environments 18.0 GiB), \
             18.5 GiB in total by estimate; num_envs 4 of `a` would fit (--num-envs 4); \
             --no-memory-check starts it anyway"
        );
        assert!(
            answer(DECLARED, 80, 70, &[])
                .unwrap_err()
                .contains("num_envs 2 of `a` would fit")
        );
        assert!(
            answer(DECLARED, 80, 79, &[])
                .unwrap_err()
                .contains("fewer environments do not help")
        );
    }

    #[test]
    fn a_limit_holds_beside_what_the_card_has() {
        assert!(
            answer(DECLARED, 80, 0, &["--gpu-memory", "12GiB"])
                .unwrap_err()
                .contains("GPU 0 has 12.0 GiB free")
        );
        assert!(answer(DECLARED, 80, 0, &["--gpu-memory", "40GiB"]).is_ok());
    }

    #[test]
    fn what_is_only_estimated_is_warned_about_and_whoever_insists_is_not_held_back() {
        let published = r#""environment": "gym:omnigibson_radio""#;
        let warned = answer(published, 24, 0, &[]).unwrap();
        assert!(
            warned
                .iter()
                .any(|line| line.contains("GPU 0 is tight, memory: about 60.5 GiB of 24.0 GiB")),
            "{warned:?}"
        );
        let insisted = answer(DECLARED, 16, 0, &["--no-memory-check"]).unwrap();
        assert!(
            insisted.iter().any(|line| line.contains("GPU 0 is tight")),
            "{insisted:?}"
        );
    }

    #[test]
    fn measurements_stand_for_declarations() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.json");
        let entry = r#"{"environment": "reach", "env_args": {}, "enable_cameras": null, "num_envs": [1, 4],
                        "host": {"base": 0, "slope": 0}, "gpu": {"base": 0, "slope": 3221225472}}"#;
        std::fs::write(
            &file,
            format!(r#"{{"schema": "rrun/memory/1", "environments": [{entry}]}}"#),
        )
        .unwrap();
        let words = ["--measured", file.to_str().unwrap()];
        let plain = r#""environment": "reach""#;
        assert!(
            answer(plain, 16, 0, &words)
                .unwrap_err()
                .contains("environments 18.0 GiB")
        );
        assert!(answer(plain, 16, 0, &[]).is_ok(), "nothing is known");
        assert!(
            answer(plain, 16, 0, &["--measured", "/nowhere"])
                .unwrap_err()
                .contains("cannot read measurements")
        );
    }
}
