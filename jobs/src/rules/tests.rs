use super::*;
use crate::samples;
use rig::cases;
use serde_json::json;

/// Returns why the jobs of a changed entry are refused before they are planned or run. A line `of
/// FILE` before the changes names their file.
fn checked(given: &str) -> String {
    let of_file = given.strip_prefix("of ");
    let of_file = of_file.and_then(|given| given.split_once('\n'));
    let (file, given) = of_file.unwrap_or(("jobs.json", given));
    let entry = cases::changed(&samples::entry(json!({})), given);
    let jobs = crate::file::parse(&json!({"jobs": [entry]})).unwrap();
    let to_run = || check_to_run(&jobs, &samples::eval_args(&[]));
    let refusal = check(&jobs, Path::new(file))
        .err()
        .or_else(|| to_run().err());
    refusal.map_or_else(|| "accepted".to_owned(), |refusal| refusal.to_string())
}

#[test]
fn names_and_values_that_no_rank_can_run_are_refused_before_ranks_start() {
    cases::check("src/rules/cases.txt", checked);
}

#[test]
fn arenas_names_of_policies_are_known() {
    for row in PolicyType::ALL.iter().map(|policy| policy.row()) {
        for alias in row.aliases {
            let found = check_job(&samples::job(json!({"policy_type": alias})), false);
            assert_eq!(found, Ok(()));
        }
    }
    let dotted = "isaaclab_arena_openpi.policy.pi0_remote_policy.Pi0RemotePolicy";
    assert_eq!(canonical_policy(dotted), "pi0_remote");
}
