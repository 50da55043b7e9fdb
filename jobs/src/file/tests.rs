use proptest::prelude::*;
use rig::cases;
use serde_json::{Map, json};

use super::*;
use crate::job::{Length, Status};
use crate::samples;

/// Returns in what a job of a changed entry differs from that of the entry, or why it is refused. A
/// job that is written and read is the same.
fn read(given: &str) -> String {
    let entry = cases::changed(&samples::entry(json!({})), given);
    let jobs = match parse(&json!({"jobs": [entry]})) {
        Ok(jobs) => jobs,
        Err(refusal) => return refusal.to_string(),
    };
    let again = parse(&jobs_file(&jobs[..1], None)).unwrap();
    assert_eq!(again, jobs[..1], "{given}");
    cases::changes(&json!(samples::job(json!({}))), &json!(jobs[0]))
}

#[test]
fn fields_of_a_job_are_read_or_refused_by_name() {
    cases::check("src/file/fields.txt", read);
}

#[test]
fn what_is_no_list_of_jobs_with_different_names_is_refused() {
    cases::check("src/file/files.txt", |given| {
        let file = json!({"jobs": [samples::entry(json!({}))]});
        let refused = parse(&cases::changed(&file, given)).unwrap_err();
        refused.to_string()
    });
    let list = parse(&json!([])).unwrap_err().to_string();
    assert_eq!(list, "top level: found a list of 0, expected an object");
}

#[test]
fn a_minimal_job_gets_arenas_defaults() {
    let job = samples::job(json!({}));
    let numbers = (job.num_envs, job.num_rebuilds, job.length);
    assert_eq!(numbers, (1, 1, Length::Episodes(3)));
    let unset = (job.enable_cameras, job.status, job.seed);
    assert_eq!(unset, (None, Status::Pending, None));
}

#[test]
fn arenas_own_examples_are_read() {
    let file = json!({"jobs": [
        {"name": "gr1_open_microwave_cracker_box",
         "arena_env_args": {"enable_cameras": true, "environment": "gr1_open_microwave", "object": "cracker_box"},
         "num_steps": 10,
         "policy_type": "isaaclab_arena_gr00t.policy.gr00t_closedloop_policy.Gr00tClosedloopPolicy",
         "policy_args": {"policy_device": "cuda:0"}},
        {"name": "light", "arena_env_args": {"environment": "maple", "light_intensity": 500, "hdr": null},
         "num_episodes": 5, "num_rebuilds": 2, "language_instruction": null, "variations": {"light": {"x": [1, 2]}},
         "policy_type": "pi0_remote", "policy_config_dict": {"remote_port": 8000}, "status": "completed"}]});
    let jobs = parse(&file).unwrap();
    assert_eq!(jobs[0].length, Length::Steps(10));
    assert_eq!(jobs[0].policy_config["policy_device"], "cuda:0");
    let arguments = |job: &Job| job.env_args.keys().cloned().collect::<Vec<_>>();
    assert_eq!(arguments(&jobs[0]), ["object"]);
    assert_eq!(arguments(&jobs[1]), ["light_intensity", "hdr"]);
    assert_eq!(jobs[1].rebuilds(5), [0..3, 3..5]);
    assert_eq!(jobs[1].status, Status::Completed);
}

/// Reads a jobs file with this text.
fn read_file(text: &str) -> Result<JobFile, Refusal> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    JobFile::read(file.path())
}

#[test]
fn syntax_errors_name_line_and_column() {
    let text = read_file("{\n  \"jobs\": [,]\n}").unwrap_err().to_string();
    assert!(text.contains("line 2 column 12"), "{text}");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_json() {
    let text = format!("\u{feff}{}", json!({"jobs": [samples::entry(json!({}))]}));
    assert_eq!(read_file(&text).unwrap().jobs.len(), 1);
}

#[test]
fn a_pipe_or_a_folder_is_refused_before_it_is_read() {
    for (path, found) in [("/dev/zero", "device"), ("/tmp", "folder")] {
        let text = JobFile::read(Path::new(path)).unwrap_err().to_string();
        let told =
            format!("cannot read jobs file `{path}`: it is a {found}, expected a regular file");
        assert_eq!(text, told);
    }
}

proptest! {
    #[test]
    fn every_variant_that_is_accepted_is_a_job_with_a_file_name(
        grid in proptest::collection::vec(("\\PC{0,9}", proptest::collection::vec("\\PC{0,8}", 0..4)), 0..4),
        names in proptest::collection::vec("\\PC{0,9}", 0..4),
    ) {
        let grid: Map<String, Value> = grid.into_iter().map(|(name, values)| (name, values.into())).collect();
        let named = names.into_iter().map(|name| json!({"name": name, "x": name}));
        let entries: Vec<_> = named.chain([json!({"grid": grid})]).collect();
        for variations in [json!({"grid": grid}), json!(entries)] {
            let entry = samples::entry(json!({"variations": variations}));
            let jobs = parse(&json!({"jobs": [entry]})).unwrap_or_default();
            for job in &jobs {
                prop_assert!(check_name(&job.name).is_ok(), "{}", job.name);
                prop_assert_eq!(job.seed_name(), "a");
            }
            let again = crate::file::jobs(&jobs.iter().map(|job| json!(job)).collect::<Vec<_>>());
            prop_assert_eq!(again, Ok(jobs));
        }
    }
}
