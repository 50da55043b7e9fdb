//! Tests of hostile simulators: each loses its own episodes with a reason, and harms nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A time limit that is long enough for a busy machine.
const PATIENT: Duration = Duration::from_secs(20);

/// One that is short enough for tests of missing answers.
const IMPATIENT: Duration = Duration::from_secs(2);

/// Starts a simulator whose interpreter is `hostile.py`, in `folder`, which has to exist as long as
/// it may be restarted.
fn start_in(folder: &Path, rule: &str, stall_timeout: Duration) -> Result<Toy, EnvError> {
    let program = folder.join("interpreter");
    let text = format!("#!{}\n{}", python(), include_str!("hostile.py"));
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut job = job(json!({"env": {"RRUN_HOSTILE": rule}}));
    job.env_args["python"] = json!(program);
    let place = EnvPlacement {
        stall_timeout,
        ..EnvPlacement::new(1)
    };
    make(&job, config(place)).map(Lockstep::new)
}

/// Returns why a simulator that breaks this rule does not start, or loses its first episode.
fn end_of(rule: &str, limit: Duration) -> String {
    let folder = tempfile::tempdir().unwrap();
    let reason = match start_in(folder.path(), rule, limit) {
        Err(err) => err.to_string(),
        Ok(mut env) => {
            let begun = reset(&mut env, 0, 1).map(drop);
            // An answer may have been on its way before the rule was broken.
            let steps = (0..3).map(|_| step(&mut env, 0, [0.0; 2]).map(drop));
            let failed = std::iter::once(begun).chain(steps).find(Result::is_err);
            let (_, reason, stderr) = lost(failed.unwrap());
            assert!(stderr.iter().all(|line| line.len() < 10_000));
            reason
        }
    };
    assert!(reason.len() < 40_000, "{} bytes", reason.len());
    reason
}

#[test]
fn whoever_breaks_a_rule_is_refused_or_loses_its_episode_and_is_told_which() {
    rig::cases::check("src/env/python/tests/hostile.txt", |rule| {
        let limit = match rule {
            "silent" | "stops" | "never reads" => IMPATIENT,
            _ => PATIENT,
        };
        let reason = end_of(rule, limit);
        let ends = ["; rank 0, ", "; no call was under way "];
        let shown = ends.iter().filter_map(|end| reason.find(end)).min();
        reason[..shown.unwrap_or(reason.len())]
            .chars()
            .take(200)
            .collect()
    });
}

#[test]
fn a_process_that_ends_is_told_although_a_child_of_its_floods_the_socket() {
    for (rule, exit, flood) in [
        ("orphan stages", "exited with code 5", "has too many stages"),
        ("orphan", "exited with code 6", "which it was not given"),
    ] {
        let reason = end_of(rule, PATIENT);
        // What the child sends may arrive before the exit of its parent.
        assert!(reason.contains(exit) || reason.contains(flood), "{reason}");
    }
}

#[test]
fn memory_that_is_written_while_it_is_read_changes_values_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = start_in(folder.path(), "writes", PATIENT).unwrap();
    let mut seen = 0;
    for seed in 0..5 {
        let Ok(first) = reset(&mut env, 0, seed) else {
            continue;
        };
        let picture = &first.video["front"].rgb;
        let before = picture.to_vec();
        let mut numbers = first.state["position"].iter();
        assert!(numbers.all(|number| number.is_finite()));
        // An observation stays unchanged while the simulator goes on writing.
        let _ = step(&mut env, 0, [0.0; 2]);
        assert_eq!(before, **picture);
        seen += 1;
    }
    assert!(seen > 0);
}
