//! Test of a training with torch's DistributedDataParallel on two nodes of two ranks each: workers
//! are killed in the middle of a step, all ranks are restarted, and continue from the checkpoint
//! with the same result.

use std::fs;
use std::process::Command;

use crate::nodes::cluster::Cluster;
use crate::nodes::gloo::python;

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/fixtures/launch_ddp.py"
);

/// Tolerance for parameters around 1 in double precision. Gradients are summed in another order
/// after a restart; a step that is lost or repeated changes the second decimal.
const ROUNDING: f64 = 1e-9;

/// The kind of the rendezvous of two nodes.
#[derive(Clone, Copy)]
enum Meeting {
    Static,
    Elastic,
}

/// The output of a training.
struct Trained {
    /// Number of the attempt that finished.
    attempt: usize,
    /// All parameters of the model, the same on every rank.
    parameters: Vec<f64>,
    /// Lines `RANK r OF w ATTEMPT a FROM s`, sorted: the ranks, and the step from which each
    /// started.
    starts: Vec<String>,
}

impl Trained {
    fn read(text: &str) -> Trained {
        let mut starts: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with("RANK"))
            .map(str::to_owned)
            .collect();
        starts.sort_unstable();
        let end = text
            .lines()
            .find_map(|line| line.strip_prefix("ATTEMPT "))
            .unwrap();
        let (attempt, parameters) = end.split_once(" PARAMETERS ").unwrap();
        let parameters = parameters
            .split(' ')
            .map(|number| number.parse().unwrap())
            .collect();
        Trained {
            attempt: attempt.parse().unwrap(),
            parameters,
            starts,
        }
    }

    /// Returns the largest difference of a parameter.
    fn distance(&self, other: &Trained) -> f64 {
        assert_eq!(self.parameters.len(), other.parameters.len());
        let differences = self
            .parameters
            .iter()
            .zip(&other.parameters)
            .map(|(one, another)| (one - another).abs());
        differences.fold(0.0, f64::max)
    }
}

/// Trains with four ranks on two nodes, of which one is killed in each attempt.
fn train(python: &str, meeting: Meeting, victims: &[&str]) -> Trained {
    let mut cluster = Cluster::new();
    let program = [&["--no-python", python, SCRIPT, "."], victims].concat();
    let options = ["--nproc-per-node", "2", "--max-restarts", "2"];
    let nodes = [0, 1].map(|node| match meeting {
        Meeting::Static => cluster.fixed(2, node, &options, &program),
        Meeting::Elastic => cluster.elastic("2", &options, &program),
    });
    for attempt in 0..victims.len() {
        let file = cluster.path(&format!("victim.{attempt}"));
        cluster.wait_until(&format!("the victim of attempt {attempt}"), |_| {
            file.exists()
        });
        let pid = fs::read_to_string(file).unwrap();
        assert!(
            Command::new("kill")
                .args(["-KILL", &pid])
                .status()
                .unwrap()
                .success()
        );
    }
    cluster.all_succeed(&nodes);
    Trained::read(&nodes.map(|node| cluster.stdout(node)).concat())
}

/// Trains with one rank, without a kill.
fn uninterrupted(python: &str) -> Trained {
    let mut cluster = Cluster::new();
    let node = cluster.elastic("1", &[], &["--no-python", python, SCRIPT, "."]);
    cluster.all_succeed(&[node]);
    Trained::read(&cluster.stdout(node))
}

/// Returns the lines of all four ranks in these attempts, given the step from which each attempt
/// continues.
fn starts(from: &[usize]) -> Vec<String> {
    let line = |rank, attempt| format!("RANK {rank} OF 4 ATTEMPT {attempt} FROM {}", from[attempt]);
    (0..4)
        .flat_map(|rank| (0..from.len()).map(move |attempt| line(rank, attempt)))
        .collect()
}

#[test]
#[ignore = "slow: imports torch 9 times"]
fn a_training_goes_on_from_its_checkpoint_when_a_worker_is_killed() {
    let Some(python) = python() else {
        return eprintln!("skipped: no Python torch");
    };
    let killed = train(&python, Meeting::Elastic, &["3"]);
    assert_eq!((killed.attempt, &killed.starts), (1, &starts(&[0, 10])));
    let distance = killed.distance(&uninterrupted(&python));
    assert!(distance < ROUNDING, "{distance}");
}

#[test]
#[ignore = "slow: imports torch 28 times"]
fn a_training_whose_every_node_loses_a_worker_ends_as_an_uninterrupted_one() {
    let Some(python) = python() else {
        return eprintln!("skipped: no Python torch");
    };
    let whole = train(&python, Meeting::Static, &[]);
    assert_eq!((whole.attempt, &whole.starts), (0, &starts(&[0])));
    for meeting in [Meeting::Elastic, Meeting::Static] {
        let killed = train(&python, meeting, &["3", "0"]);
        assert_eq!((killed.attempt, &killed.starts), (2, &starts(&[0, 10, 10])));
        let distance = killed.distance(&whole);
        assert!(distance < ROUNDING, "{distance}");
    }
}
