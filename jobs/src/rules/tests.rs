use super::*;
use crate::samples;
use rig::cases;
use serde_json::json;

/// Returns why the jobs of a changed entry are refused before they are planned or run.
fn checked(given: &str) -> String {
    let entry = cases::changed(&samples::entry(json!({})), given);
    let jobs = crate::file::parse(&json!({"jobs": [entry]})).unwrap();
    let file = Path::new("jobs.json");
    let to_run = || check_to_run(&jobs, &samples::eval_args(&[]));
    let refusal = check(&jobs, file).err().or_else(|| to_run().err());
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

fn refusal(environment: &str, policy: &str, path: &str) -> String {
    let args = json!({"environment": environment});
    let job = samples::job(json!({"arena_env_args": args, "policy_type": policy}));
    check(&[job], path.as_ref()).unwrap_err().to_string()
}

#[test]
fn an_environment_of_arena_is_refused_with_its_field_and_the_way_out() {
    let told = refusal("push_table", "scripted", "a.yaml");
    let wanted = "`a.yaml`: runs.a.environment.type: `push_table` is not included, so name the Python \
                  factory that makes it: shared.environment.factory=FILE.py:FUNCTION; \
                  included are ";
    assert!(told.starts_with(wanted), "{told}");
    assert!(!told.contains("did you mean"), "{told}");
    let in_jobs = refusal("push_table", "scripted", "a.json");
    let words = "field arena_env_args.environment";
    assert!(in_jobs.contains(words), "{in_jobs}");
}

#[test]
fn a_policy_of_arena_is_refused_with_its_field() {
    let cosmos = "isaaclab_arena_cosmos.policy.cosmos.CosmosPolicy";
    let told = refusal("push", cosmos, "a.yml");
    let wanted = format!("`a.yml`: runs.a.policy.type: `{cosmos}` is not included");
    assert!(told.starts_with(&wanted), "{told}");
    let misspelt = refusal("push", "zero_acton", "a.yaml");
    let words = "(did you mean `zero_action`?)";
    assert!(misspelt.contains(words), "{misspelt}");
}
