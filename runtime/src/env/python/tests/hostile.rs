//! Tests of hostile simulators: each loses its own episodes with a reason, and harms nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// Starts a simulator whose interpreter is `hostile.py`, in `folder`, which has to exist as long as
/// it may be restarted.
fn start_in(folder: &Path, rule: &str, config: PythonConfig) -> Result<Toy, EnvError> {
    let program = folder.join("interpreter");
    let text = format!("#!{}\n{}", python(), include_str!("hostile.py"));
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut job = job(json!({"env": {"RRUN_HOSTILE": rule}}));
    job.env_args["python"] = json!(program);
    Lockstep::new(|answers| make(&job, config, answers))
}

fn start_hostile(rule: &str, config: PythonConfig) -> Result<Toy, EnvError> {
    start_in(tempfile::tempdir().unwrap().path(), rule, config)
}

/// A time limit that is long enough for a busy machine, and short enough for tests of missing
/// answers.
fn patient() -> PythonConfig {
    PythonConfig {
        stall_timeout: Duration::from_secs(20),
        ..PythonConfig::new(1)
    }
}

fn impatient() -> PythonConfig {
    PythonConfig {
        stall_timeout: Duration::from_secs(3),
        ..PythonConfig::new(1)
    }
}

fn refused(rule: &str, config: PythonConfig) -> String {
    let reason = start_hostile(rule, config).err().unwrap().to_string();
    assert!(reason.len() < 40_000, "{} bytes", reason.len());
    reason
}

/// Returns the reason why the first step of an episode is lost.
fn loses(rule: &str, config: PythonConfig) -> String {
    let mut env = start_hostile(rule, config).unwrap();
    reset(&mut env, 0, 1).unwrap();
    let (_, reason, stderr) = lost(step(&mut env, 0, [0.0; 2]));
    assert!(reason.len() < 40_000 && stderr.iter().all(|line| line.len() < 10_000));
    reason
}

#[test]
fn a_start_with_stages_without_end_is_given_up() {
    assert!(
        refused("stages", patient())
            .starts_with("the simulator has too many stages of its start; it was at `again")
    );
}

#[test]
fn a_dead_process_whose_child_floods_the_socket_is_given_up() {
    let reason = refused("orphan stages", patient());
    assert!(
        reason.contains("has too many stages") || reason.contains("exited with code 5"),
        "{reason}"
    );
}

#[test]
fn a_process_is_ready_only_with_its_memory() {
    assert!(
        refused("early ready", patient()).starts_with("the simulator sent Ready while Starting")
    );
}

#[test]
fn memory_that_a_process_has_sealed_is_refused() {
    let reason = refused("seals", patient());
    assert!(
        reason.starts_with(
            "the simulator cannot be given 448 bytes of shared memory: Operation not permitted"
        ),
        "{reason}"
    );
}

#[test]
fn a_description_out_of_proportion_is_refused_before_any_memory_is_made() {
    assert!(refused("giant", patient()).starts_with(
        "the simulator shows 100663296192 bytes at once, expected at most 1073741824"
    ));
}

#[test]
fn a_description_that_is_broken_is_refused() {
    for rule in ["half a hello", "nested"] {
        let reason = refused(rule, patient());
        assert!(
            reason.starts_with("the simulator sent a malformed message: a packet of "),
            "{reason}"
        );
    }
}

#[test]
fn a_second_description_is_refused() {
    assert!(refused("hello twice", patient()).starts_with("the simulator sent Hello("));
}

#[test]
fn a_reason_of_any_length_is_cut() {
    let reason = refused("long refusal", patient());
    assert!(
        reason.starts_with("éé") && reason.len() <= 16_000,
        "{} bytes",
        reason.len()
    );
}

#[test]
fn an_answer_that_does_not_fit_costs_its_episode() {
    for rule in ["wrong copy", "no picture"] {
        assert!(
            loses(rule, patient()).starts_with("the simulator answered a different request"),
            "{rule}"
        );
    }
    assert!(
        loses("wrong number", patient())
            .starts_with("the simulator answered work 3, which it was not given")
    );
    for rule in ["more replies", "long text", "junk"] {
        assert!(
            loses(rule, patient())
                .starts_with("the simulator sent a malformed message: a packet of "),
            "{rule}"
        );
    }
}

#[test]
fn a_flood_of_answers_costs_its_episode() {
    let mut env = start_hostile("flood", patient()).unwrap();
    reset(&mut env, 0, 1).unwrap();
    // The first packet is a valid answer.
    step(&mut env, 0, [0.0; 2]).unwrap();
    let (_, reason, _) = lost(step(&mut env, 0, [0.0; 2]));
    assert!(
        reason.starts_with("the simulator answered work 2, which it was not given"),
        "{reason}"
    );
}

#[test]
fn a_socket_that_is_closed_costs_its_episode() {
    for rule in ["closes", "shuts down"] {
        assert!(
            loses(rule, patient()).starts_with("the simulator closed its connection"),
            "{rule}"
        );
    }
}

#[test]
fn a_process_that_stops_or_never_reads_is_given_up_at_its_deadline() {
    assert!(loses("stops", impatient()).starts_with("the simulator gave no answer for 3 s"));
    let mut env = start_hostile("never reads", impatient()).unwrap();
    let (_, reason, _) = lost(reset(&mut env, 0, 1));
    assert!(
        reason.starts_with("the simulator gave no answer for 3 s"),
        "{reason}"
    );
}

#[test]
fn a_grandchild_that_keeps_the_socket_and_floods_it_hides_no_death() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = start_in(folder.path(), "orphan", patient()).unwrap();
    reset(&mut env, 0, 1).unwrap();
    // An answer of the grandchild may arrive before the exit of its parent.
    let ended = (0..2)
        .map(|_| step(&mut env, 0, [0.0; 2]))
        .find(Result::is_err);
    let (_, reason, _) = lost(ended.unwrap());
    assert!(
        reason.contains("exited with code 6") || reason.contains("which it was not given"),
        "{reason}"
    );
    reset(&mut env, 0, 2).unwrap();
}

#[test]
fn a_line_of_a_gibibyte_takes_no_memory() {
    let mut env = start_hostile("long line", PythonConfig::new(1)).unwrap();
    reset(&mut env, 0, 1).unwrap();
    let before = resident();
    step(&mut env, 0, [0.0; 2]).unwrap();
    let grown = resident().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes more");
}

#[test]
fn what_a_process_says_that_it_is_at_is_not_believed() {
    let reason = loses("calls", patient());
    assert!(
        reason.starts_with("the simulator exited with code 7; it was not at work; rank 0"),
        "{reason}"
    );
}

#[test]
fn memory_that_is_written_while_it_is_read_changes_values_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = start_in(folder.path(), "writes", patient()).unwrap();
    let (mut seen, mut faults) = (0, 0);
    for seed in 0..5 {
        let Ok(first) = reset(&mut env, 0, seed) else {
            faults += 1;
            continue;
        };
        let picture = &first.video["front"].rgb;
        let before = picture.to_vec();
        assert!(
            first.state["position"]
                .iter()
                .all(|number| number.is_finite())
        );
        // An observation stays unchanged while the simulator goes on writing.
        let _ = step(&mut env, 0, [0.0; 2]);
        assert_eq!(before, **picture);
        seen += 1;
    }
    assert_eq!(seen + faults, 5);
    assert!(seen > 0);
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        << 10
}
