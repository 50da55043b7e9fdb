use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use jobs::assign::{Assign, Assignment, Shard};
use jobs::placement::{Components, Placement, Resources};
use jobs::samples;

use crate::{GpuBudget, MemoryOptions};

const GIB: u64 = 1 << 30;

/// Returns a job with `envs` copies of an environment that takes `gib`.
fn entry(name: &str, gib: f64, envs: usize, episodes: u64) -> Value {
    let args = json!({"environment": "reach", "env_memory_gb": gib, "num_envs": envs});
    json!({"name": name, "policy_type": "zero_action", "num_episodes": episodes, "arena_env_args": args})
}

fn shared(name: &str, gib: f64, total: usize, episodes: u64) -> Value {
    let args = json!({"environment": "reach", "env_memory_gb": gib});
    json!({"name": name, "policy_type": "zero_action", "num_episodes": episodes,
           "total_num_envs": total, "arena_env_args": args})
}

struct ProposalCase {
    jobs: Vec<Job>,
    placement: Placement,
    budgets: BTreeMap<usize, GpuBudget>,
    assignment: Assignment,
}

impl ProposalCase {
    fn new(entries: &[Value], placement: &str, gib: u64) -> Self {
        let resources = Resources::Gpus {
            per_node: 4,
            nodes: 1,
        };
        let placement = Placement::new(&Components::parse(placement).unwrap(), resources).unwrap();
        let gpus = placement.gpus().into_iter();
        Self {
            jobs: samples::jobs(entries.iter().cloned()),
            budgets: gpus.map(|gpu| (gpu, GpuBudget::whole(gib * GIB))).collect(),
            placement,
            assignment: Assignment::default(),
        }
    }

    fn planner(&self) -> MemoryPlanner<'_> {
        let terms = MemoryOptions {
            pipeline_stages: 2,
            ..MemoryOptions::default()
        };
        let place = (&self.placement, self.assignment);
        MemoryPlanner::new(&self.jobs, place, terms, self.budgets.clone())
    }

    fn proposals(&self) -> Vec<(Option<usize>, ProposalLimit)> {
        let proposals = self.planner().propose().into_iter();
        proposals
            .map(|proposal| (proposal.proposed_num_envs, proposal.why))
            .collect()
    }
}

#[test]
fn as_many_environments_are_proposed_as_fit_and_divide_the_episodes() {
    let proposed = |gib: u64, episodes: u64| {
        ProposalCase::new(&[entry("a", 1.0, 2, episodes)], "env: 0, rollout: 0", gib).proposals()[0]
    };
    // 0.5 GiB of context and 20 environments of 1 GiB are 20.5 of 24 GiB; 21 would be tight (above
    // 21.6).
    assert_eq!(proposed(24, 40), (Some(20), ProposalLimit::Memory));
    // Two rounds of 15, and not one of 21 and one of 9.
    assert_eq!(proposed(24, 30), (Some(15), ProposalLimit::Memory));
    // A prime number: three rounds, the last one shorter by one.
    assert_eq!(proposed(24, 53), (Some(18), ProposalLimit::Memory));
    assert_eq!(proposed(80, 30), (Some(30), ProposalLimit::Episodes));
    assert_eq!(proposed(1, 30), (None, ProposalLimit::TooLittle));
}

#[test]
fn a_shared_job_is_proposed_what_workers_ranks_and_stages_divide() {
    let mut job = shared("a", 1.0, 4, 1000);
    job["pipeline_stage_num"] = json!(2);
    let case = ProposalCase::new(&[job], "env: 0-2, rollout: 0-1", 12);
    let (proposed, why) = case.proposals()[0];
    // A multiple of 6: three workers with two groups each. With 30, a GPU has 10 environments and
    // 0.5 of context, below 10.8. None of 30, 24 and 18 divides 1000, and 30 is the smallest number
    // that needs 34 rounds.
    assert_eq!((proposed, why), (Some(30), ProposalLimit::Memory));
    let total = proposed.unwrap();
    let division = Division {
        total,
        workers: 3,
        ranks: 2,
        stages: 2,
    };
    assert_eq!(division.check(), Ok(()));
}

#[test]
fn jobs_that_meet_on_a_gpu_share_it_evenly() {
    let entries = [entry("a", 1.0, 1, 100), entry("b", 1.0, 1, 100)];
    let case = ProposalCase::new(&entries, "env: 0:0-1, rollout: 0:0-1", 24);
    // Two contexts of 0.5 GiB and 20 environments are 21 of 21.6 GiB.
    let proposed = Some(10);
    assert_eq!(case.proposals(), [(proposed, ProposalLimit::Memory); 2]);
}

#[test]
fn what_is_not_known_is_not_guessed() {
    let unknown = json!({"policy_type": "zero_action", "num_episodes": 8});
    let case = ProposalCase::new(&[unknown, entry("b", 1.0, 1, 8)], "env: 0, rollout: 0", 24);
    let wanted = [
        (None, ProposalLimit::UnknownEnvironment),
        (Some(8), ProposalLimit::Episodes),
    ];
    assert_eq!(case.proposals(), wanted);
    let case = ProposalCase {
        budgets: BTreeMap::new(),
        ..case
    };
    assert_eq!(case.proposals()[1], (None, ProposalLimit::UnknownGpu));
}

#[test]
fn the_largest_batch_is_what_is_left_beside_the_environments() {
    let batch = |job: Value, gib: u64| {
        let case = ProposalCase::new(&[job], "env: 0, rollout: 0", gib);
        case.planner().propose()[0].batch
    };
    let model = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/gr00t/case_a_single"
    );
    let mut gr00t = entry("a", 0.3, 4, 64);
    gr00t["policy_type"] = json!("gr00t");
    gr00t["policy_config_dict"] = json!({"model_path": model});
    let [two, three] = [2, 3].map(|gib| batch(gr00t.clone(), gib).unwrap());
    assert_eq!(two.rows, 2, "four environments in two groups");
    // 1.2 GiB of environments and 0.5 of context leave less of two.
    assert!(two.largest < three.largest, "{two:?}");
    assert!(three.largest.is_some_and(|rows| rows > 100), "{three:?}");
    assert_eq!(batch(entry("a", 1.0, 2, 4), 24), None);
}

#[test]
fn a_gpu_that_others_fill_does_not_hold_back_the_rest() {
    let entries = [entry("a", 1.0, 1, 8), entry("b", 1.0, 1, 8)];
    let mut case = ProposalCase::new(&entries, "env: 0-1, rollout: 0-1", 24);
    let full = GpuBudget::of_gpu(24 * GIB, 24 * GIB, None);
    case.budgets.insert(0, full);
    let wanted = [
        (None, ProposalLimit::TooLittle),
        (Some(8), ProposalLimit::Episodes),
    ];
    assert_eq!(case.proposals(), wanted);
}

fn any_entries() -> impl Strategy<Value = Vec<(bool, u8, u8, u16)>> {
    proptest::collection::vec((any::<bool>(), 1_u8..40, 1_u8..30, 1_u16..200), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn proposals_are_valid_and_fit_together(
        entries in any_entries(), gib in 1_u64..100, place in 0_usize..4, by_episode in any::<bool>()
    ) {
        let place = ["env: 0, rollout: 0", "env: 0-1, rollout: 2-3", "env: 0:0-1, rollout: 0:0-3", "env,rollout: 0-2"][place];
        let entries: Vec<_> = entries.into_iter().enumerate().map(|(nth, (is_shared, tenths, envs, episodes))| {
            let (name, gib) = (format!("job{nth}"), f64::from(tenths) / 10.0);
            let make = if is_shared { shared } else { entry };
            make(&name, gib, envs.into(), episodes.into())
        }).collect();
        let shard = if by_episode { Shard::Episodes } else { Shard::Jobs };
        let mut case = ProposalCase { assignment: Assignment { assign: Assign::Modulo, shard }, ..ProposalCase::new(&entries, place, gib) };
        let proposals = case.planner().propose();
        let is_for_all = proposals.iter().all(|proposal| proposal.proposed_num_envs.is_some());
        for (job, proposal) in case.jobs.iter_mut().zip(&proposals) {
            let Some(proposed) = proposal.proposed_num_envs else { continue };
            prop_assert!(proposed > 0);
            job.num_envs = proposed;
            if let Some(total) = &mut job.total_num_envs {
                *total = proposed;
                let (workers, ranks) = (case.placement.env.len(), case.placement.world_size());
                let division = Division { total: proposed, workers, ranks, stages: 1 };
                prop_assert_eq!(division.check(), Ok(()));
            } else {
                prop_assert!(proposed <= 4096);
            }
        }
        if is_for_all {
            let planner = case.planner();
            for need in planner.needs() {
                prop_assert!(!need.fit(planner.budget(need.gpu)).is_too_much(), "{:?}", need);
            }
        }
    }
}
