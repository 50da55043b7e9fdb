//! The faults of one run: a function of the seed alone.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::chaos::fault::{Fault, Victim};
use crate::eval::command::{Eval, job};
use crate::eval::given::{self, named, root};
use rig::disk::SmallDisk;

/// Number of launches with faults; later ones are undisturbed.
const DISTURBED: usize = 2;

/// One run.
#[derive(Clone, Debug)]
pub struct Scenario {
    base: u64,
    run: u64,
    mark: String,
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

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let videos = if self.has_videos() {
            "with videos"
        } else {
            "without videos"
        };
        write!(
            f,
            "seed {}, {} environments, {videos}, {:?}",
            self.base,
            self.num_envs(),
            self.rule()
        )?;
        for launch in 0..DISTURBED {
            let (ranks, faults, tears) =
                (self.ranks(launch), self.faults(launch), self.tears(launch));
            write!(
                f,
                "\n  launch {launch} of {ranks} ranks: {faults:?}{}",
                if tears { ", then a tear" } else { "" }
            )?;
        }
        Ok(())
    }
}

impl Scenario {
    /// Creates the run with this number.
    pub fn new(base: u64, run: u64) -> Self {
        Self {
            base,
            run,
            mark: format!("rrun-chaos-{}-{run}", std::process::id()),
        }
    }

    /// Returns a random number that depends only on seed, run and `what`.
    pub fn draw(&self, what: u64) -> u64 {
        jobs::seed::noise(self.base, self.run, what)
    }

    fn below(&self, what: u64, limit: u64) -> u64 {
        self.draw(what) % limit
    }

    /// Returns the mark in the environment of all processes of the run.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Returns the number of ranks of a launch, which may differ between launches.
    pub fn ranks(&self, launch: usize) -> usize {
        1 + self.below(10 + launch as u64, 4) as usize
    }

    /// Returns whether a fault needs a file system that can be filled.
    pub fn needs_disk(&self) -> bool {
        (0..DISTURBED).any(|launch| {
            self.faults(launch)
                .iter()
                .any(|(_, fault)| matches!(fault, Fault::FullDisk(_)))
        })
    }

    /// Returns the evaluation, not started.
    pub fn eval(&self, disk: Option<&SmallDisk>) -> Eval {
        let mut jobs = jobs(self.num_envs());
        for job in &mut jobs {
            job["video_cfg"] = json!({"use_high_res_cameras": false});
        }
        let eval = Eval::new(&jobs).env("RRUN_MARK", &self.mark).nproc(1);
        let eval = if self.has_videos() {
            eval.with_video()
        } else {
            eval
        };
        let eval = eval.words(self.rule()).words(&["--stall-timeout", "5"]);
        match disk {
            Some(disk) => eval.output(&disk.path().join("out")),
            None => eval,
        }
    }

    fn num_envs(&self) -> u64 {
        [1, 2, 4][self.below(1, 3) as usize]
    }

    fn has_videos(&self) -> bool {
        self.below(2, 3) == 0
    }

    fn rule(&self) -> &'static [&'static str] {
        match self.below(3, 7) {
            0 => &[],
            1 => &["--shard", "episodes"],
            2 => &["--assign", "block"],
            3 => &["--assign", "block", "--shard", "episodes"],
            4 => &["--assign", "dynamic", "--shard", "jobs"],
            _ => &["--assign", "dynamic"],
        }
    }

    /// Returns the faults of a launch, with their times after its start.
    pub fn faults(&self, launch: usize) -> Vec<(Duration, Fault)> {
        if launch >= DISTURBED {
            return Vec::new();
        }
        let draw = |what: u64, limit: u64| self.below(100 * (launch as u64 + 1) + what, limit);
        let mut faults: Vec<_> = (0..1 + draw(0, 3))
            .map(|number| {
                let what = 10 * (number + 1);
                let at = Duration::from_millis(100 + draw(what, 3900));
                let time = Duration::from_millis(100 + draw(what + 1, 1900));
                let which = draw(what + 2, 64);
                let fault = match draw(what + 3, 22) {
                    0..4 => Fault::Kill(Victim::Rank(which)),
                    4..6 => Fault::Stop(Victim::Rank(which), time),
                    6..8 => Fault::Kill(Victim::Simulator(which)),
                    8 => Fault::Hang(Victim::Simulator(which)),
                    9..11 => Fault::Kill(Victim::Launcher),
                    11 => Fault::Stop(Victim::Launcher, time),
                    12 => Fault::Interrupt,
                    13..15 => Fault::CutStore,
                    15..18 => Fault::Kill(Victim::Policy(which)),
                    18..20 => Fault::Stop(Victim::Policy(which), time),
                    20 => Fault::Hang(Victim::Policy(which)),
                    _ => Fault::FullDisk(time),
                };
                (at, fault)
            })
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        faults
    }

    /// Returns whether the end of a journal is damaged after a launch that failed.
    pub fn tears(&self, launch: usize) -> bool {
        launch < DISTURBED && self.below(50 + launch as u64, 2) == 0
    }
}
