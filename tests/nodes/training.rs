//! Test of a training with torch's DistributedDataParallel on two nodes of two ranks each: workers
//! are killed in the middle of a step, all ranks are restarted, and continue from the checkpoint
//! with the same result.

use rig::need::{Need, need};
use rig::process;
use rig::run::Signal;

use crate::nodes::cluster::Cluster;

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
fn train(meeting: Meeting, victims: &[&str]) -> Trained {
    let mut cluster = Cluster::new();
    let script = rig::fixture("launch_ddp.py").display().to_string();
    let program = [&[&script, "."], victims].concat();
    for node in [0, 1] {
        let words = "2 --nproc-per-node 2 --max-restarts 2";
        let given = match meeting {
            Meeting::Static => cluster.fixed_node(node, words),
            Meeting::Elastic => cluster.elastic_node(words),
        };
        cluster.start(given.program(&program));
    }
    for attempt in 0..victims.len() {
        let file = format!("victim.{attempt}");
        let pid = cluster.until(&file, |cluster| cluster.text(&file).parse().ok());
        process::send(pid, Signal::KILL);
    }
    cluster.all_end_with(0, &[0, 1]);
    Trained::read(&(cluster.stdout(0) + &cluster.stdout(1)))
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
#[ignore = "slow: imports torch 28 times"]
fn a_training_whose_every_node_loses_a_worker_ends_as_an_uninterrupted_one() {
    if !need(Need::Torch) {
        return;
    }
    let whole = train(Meeting::Static, &[]);
    assert_eq!((whole.attempt, &whole.starts), (0, &starts(&[0])));
    for meeting in [Meeting::Elastic, Meeting::Static] {
        let killed = train(meeting, &["3", "0"]);
        assert_eq!((killed.attempt, &killed.starts), (2, &starts(&[0, 10, 10])));
        let distance = killed.distance(&whole);
        assert!(distance < ROUNDING, "{distance}");
    }
}
