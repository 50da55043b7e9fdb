//! The faults of one run: a function of the seed alone.

use std::array::from_fn;
use std::time::Duration;

use serde_json::{Value, json};

use crate::chaos::fault::{Blow, Fault, Victim};
use crate::eval::command::{Eval, job};
use crate::eval::given::{self, named, root};
use rig::disk::SmallDisk;

/// Maximum number of launches until a run is complete.
pub const LAUNCHES: usize = 8;

/// Number of launches with faults; later ones are undisturbed.
const DISTURBED: usize = 2;

/// One run.
#[derive(Debug)]
pub struct Scenario {
    /// What is in the environment of all processes of the run.
    pub mark: String,
    num_envs: u64,
    has_videos: bool,
    rule: &'static [&'static str],
    pub launches: [Launch; LAUNCHES],
}

/// One launch of a run.
#[derive(Debug)]
pub struct Launch {
    /// Number of ranks, which may differ between launches.
    pub ranks: usize,
    /// Faults, with their times after the start.
    pub faults: Vec<(Duration, Fault)>,
    /// How the end of a journal is damaged after it, if it failed.
    pub tear: Option<u64>,
}

/// Time limit of a call of a Python policy. Those that are stopped for a while answer in time on a
/// quiet machine; on a busy one their episodes run again.
const ACT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time limit of a start, during which a worker may be stopped, too.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns a job with a Python policy of the toy file, which takes some time for each call.
fn thinking(name: &str, factory: &str, num_envs: u64) -> Value {
    let file = root().join("tests/fixtures/policies/toy.py");
    json!({
        "name": name, "arena_env_args": {"environment": "reach", "num_envs": num_envs},
        "policy_type": "python", "num_episodes": 40,
        "policy_config_dict": {
            "policy": format!("{}:{factory}", file.display()), "python": root().join(".venv"),
            "policy_kwargs": {"delay": 0.01}, "act_timeout_s": ACT_TIMEOUT.as_secs(),
            "startup_timeout_s": STARTUP_TIMEOUT.as_secs(), "max_restarts": 3,
        },
    })
}

/// Returns a job with the toy simulator in Python, whose episodes have `length` steps.
pub fn toy(num_envs: u64, length: u64) -> Value {
    let args = json!({"num_envs": num_envs, "env_kwargs": {"length": length}});
    named("toy", 200, given::toy(args))
}

/// Returns the jobs of every run: two with in-process simulators, one with Python processes, and
/// two with Python policies, one of which remembers its episodes.
pub fn jobs(num_envs: u64) -> Vec<Value> {
    vec![
        toy(num_envs, 40),
        job("push", 24, num_envs),
        job("reach", 40, num_envs),
        thinking("thinking", "Reaching", num_envs),
        thinking("recalling", "Recalling", num_envs),
    ]
}

impl Scenario {
    /// Creates the run with this number.
    pub fn new(base: u64, run: u64) -> Self {
        let draw = |what: u64| jobs::seed::noise(base, run, what);
        let rule: &[&str] = match draw(3) % 7 {
            0 => &[],
            1 => &["--shard", "episodes"],
            2 => &["--assign", "block"],
            3 => &["--assign", "block", "--shard", "episodes"],
            4 => &["--assign", "dynamic", "--shard", "jobs"],
            _ => &["--assign", "dynamic"],
        };
        Self {
            mark: format!("rrun-chaos-{}-{run}", std::process::id()),
            num_envs: [1, 2, 4][draw(1) as usize % 3],
            has_videos: draw(2) % 3 == 0,
            rule,
            launches: from_fn(|launch| Launch::new(launch, draw)),
        }
    }

    /// Returns whether a fault needs a file system that can be filled.
    pub fn needs_disk(&self) -> bool {
        let mut faults = self.launches.iter().flat_map(|launch| &launch.faults);
        faults.any(|(_, fault)| matches!(fault, Fault::FullDisk(_)))
    }

    /// Returns the evaluation, not started.
    pub fn eval(&self, disk: Option<&SmallDisk>) -> Eval {
        let mut jobs = jobs(self.num_envs);
        for job in &mut jobs {
            job["video_cfg"] = json!({"use_high_res_cameras": false});
        }
        let eval = Eval::new(&jobs).env("RRUN_MARK", &self.mark).nproc(1);
        let eval = if self.has_videos {
            eval.with_video()
        } else {
            eval
        };
        let eval = eval.words(self.rule).words(&["--stall-timeout", "5"]);
        match disk {
            Some(disk) => eval.output(&disk.path().join("out")),
            None => eval,
        }
    }
}

impl Launch {
    fn new(launch: usize, draw: impl Fn(u64) -> u64) -> Self {
        let (is_disturbed, number) = (launch < DISTURBED, launch as u64);
        let of_fault = |what: u64| draw(100 * (number + 1) + what);
        let count = if is_disturbed { 1 + of_fault(0) % 3 } else { 0 };
        let fault = |fault: u64| {
            let what = 10 * (fault + 1);
            let at = Duration::from_millis(100 + of_fault(what) % 3900);
            let time = Duration::from_millis(100 + of_fault(what + 1) % 1900);
            let (blow, victim) = match of_fault(what + 3) % 22 {
                0..4 => (Blow::Kill, Victim::Rank),
                4..6 => (Blow::Stop(time), Victim::Rank),
                6..8 => (Blow::Kill, Victim::Simulator),
                8 => (Blow::Hang, Victim::Simulator),
                9..11 => (Blow::Kill, Victim::Launcher),
                11 => (Blow::Stop(time), Victim::Launcher),
                12 => (Blow::Interrupt, Victim::Launcher),
                13..15 => return (at, Fault::CutStore),
                15..18 => (Blow::Kill, Victim::Policy),
                18..20 => (Blow::Stop(time), Victim::Policy),
                20 => (Blow::Hang, Victim::Policy),
                _ => return (at, Fault::FullDisk(time)),
            };
            (at, Fault::Strike(blow, victim, of_fault(what + 2) % 64))
        };
        let mut faults: Vec<_> = (0..count).map(fault).collect();
        faults.sort_by_key(|(at, _)| *at);
        let tears = is_disturbed && draw(50 + number).is_multiple_of(2);
        Self {
            ranks: 1 + draw(10 + number) as usize % 4,
            faults,
            tear: tears.then(|| draw(900 + number)),
        }
    }
}
