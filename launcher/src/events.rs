//! The event log of a launch, one JSON line per event: `--event-log-handler console` or
//! `json:FILE`.
//!
//! ```text
//! {"name":"torchelastic.worker.status.FAILED","source":"WORKER","timestamp":1795233885.25,
//!  "metadata":{"run_id":"none","global_rank":3,"group_rank":0,"worker_id":"4711",
//!              "role":"default","hostname":"node1",…}}
//! ```
//! For events that torchrun has too, the names, sources and first fields are torchrun's
//! (torch/distributed/elastic/agent/server/api.py, torch 2.11: `_construct_event`), so programs
//! that read torchrun's events find all they expect. The events for restarts and signals, the
//! fields after `duration_ms`, and a timestamp other than 0 are additions.
//!
//! A file is opened for each line and appended to, so the launchers of several nodes may share it,
//! and it may be moved away at any time.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jobs::printable::printable_json;
use serde_json::{Map, Value, json};

use crate::node::full_name;
use crate::plan::{Backend, EventLog, LaunchPlan};
use crate::rank_id::RankId;
use crate::rendezvous::place::Assigned;
use crate::round::Round;
use crate::say;

/// When the launch began.
static BEGIN: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);

/// Whether the error about an unwritable file has been printed.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Records the beginning of the launch, from which `total_run_time` counts.
pub fn begin() {
    LazyLock::force(&BEGIN);
}

/// An event of a launch, made where it happens.
#[derive(Clone, Debug)]
pub struct Event {
    /// The name of an event that torchrun does not have.
    name: &'static str,
    /// The state of torchrun that it is named by otherwise.
    state: Option<&'static str>,
    /// The rank, and its process.
    rank: Option<(RankId, i32)>,
    /// Of a rank that has failed, its exit code, and what torchrun writes about it: its error file,
    /// or that there is none.
    failed: Option<(i32, String)>,
    duration: Option<Duration>,
    /// Fields that torchrun does not have.
    own: Map<String, Value>,
}

impl Event {
    /// Returns the event by which torchrun tells that the launch, or a rank, is in this state.
    pub fn of_state(state: &'static str) -> Event {
        Event {
            state: Some(state),
            ..Event::ours("")
        }
    }

    /// Returns an event that torchrun does not have.
    pub fn ours(name: &'static str) -> Event {
        Event {
            name,
            state: None,
            rank: None,
            failed: None,
            duration: None,
            own: Map::new(),
        }
    }

    /// Says which rank it is about, and which process of it.
    pub fn about(self, rank: RankId, pid: i32) -> Event {
        Event {
            rank: Some((rank, pid)),
            ..self.with("local_rank", rank.local)
        }
    }

    /// Says how long it took.
    pub fn after(self, duration: Duration) -> Event {
        Event {
            duration: Some(duration),
            ..self
        }
    }

    /// Says that a rank failed by itself, and what its error file has.
    pub fn failed(self, code: i32, error: Option<Value>) -> Event {
        let none = || {
            let traits = json!({"category": "system_terminated_error", "retryability": "False"});
            json!({"message": "<NONE>", "errorTraits": traits})
        };
        Event {
            failed: Some((code, error.unwrap_or_else(none).to_string())),
            ..self
        }
    }

    /// Adds a field that torchrun does not have.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Event {
        self.own.insert(name.to_owned(), value.into());
        self
    }

    /// Writes the event to the log that the plan asks for. If the file cannot be written, prints an
    /// error, and the launch goes on.
    pub fn record(self, round: &Round<'_>) {
        let line = || {
            let object = self.object(round, SystemTime::now());
            format!("{}\n", printable_json(&object.to_string()))
        };
        match &round.plan.events {
            EventLog::None => {}
            EventLog::Console => say::print(Some(line())),
            EventLog::File(path) => {
                // The error is printed once: a launch has many events, and it affects all of them.
                if let Err(err) = append(path, &line())
                    && !IS_TOLD.swap(true, Ordering::Relaxed)
                {
                    say::warning(format_args!(
                        "cannot write an event into `{}`: {err}",
                        path.display()
                    ));
                }
            }
        }
    }

    fn object(self, round: &Round<'_>, now: SystemTime) -> Value {
        let (plan, place) = (round.plan, &round.place);
        let mut metadata = json!({
            "run_id": plan.run_id,
            "global_rank": self.rank.map(|(rank, _)| rank.global),
            "group_rank": place.node,
            "worker_id": self.rank.map(|(_, pid)| pid.to_string()),
            "role": plan.role,
            "hostname": full_name(),
            "state": self.state,
            "total_run_time": seconds(*BEGIN, now) as u64,
            "rdzv_backend": backend(plan),
            "raw_error": self.failed.as_ref().map(|(_, error)| error),
            "metadata": self.inner(round).to_string(),
            "agent_restarts": place.restarts,
            "duration_ms": self.duration.map(|duration| duration.as_secs_f64() * 1000.0),
            "entry_point": plan.title,
        });
        let source = match (self.state, self.rank) {
            (Some(_), Some(_)) => "WORKER",
            _ => "AGENT",
        };
        if let Some(fields) = metadata.as_object_mut() {
            fields.extend(self.own);
        }
        let timestamp = seconds(UNIX_EPOCH, now);
        let status = |state| format!("torchelastic.worker.status.{state}");
        let name = self.state.map_or_else(|| self.name.to_owned(), status);
        json!({"name": name, "source": source, "timestamp": timestamp, "metadata": metadata})
    }

    /// Returns the metadata that torchrun encodes as a JSON text, with rank values in lists of one
    /// element.
    fn inner(&self, round: &Round<'_>) -> Value {
        let (nodes, title) = (round.place.nodes, &round.plan.title);
        let Some((rank, pid)) = self.rank else {
            return json!({"group_world_size": nodes, "entry_point": title});
        };
        let Assigned(_, _, base_of_role, world_of_role) = round.place.assigned;
        json!({
            "group_world_size": nodes,
            "entry_point": title,
            "local_rank": [rank.local],
            "role_rank": [base_of_role + rank.index],
            "role_world_size": [world_of_role],
            "exit_code": [self.failed.as_ref().map(|(code, _)| code)],
            "worker_pid": [self.failed.as_ref().map(|_| pid)],
        })
    }
}

fn seconds(since: SystemTime, now: SystemTime) -> f64 {
    let passed = now.duration_since(since);
    passed.unwrap_or_default().as_secs_f64()
}

/// Returns the name of the rendezvous backend. A single-node launch has no rendezvous; with a free
/// port it is what torchrun calls standalone.
fn backend(plan: &LaunchPlan) -> &'static str {
    match (&plan.rendezvous, plan.store.port) {
        (Some(rendezvous), _) => rendezvous.backend.name(),
        (None, Some(_)) => Backend::Static.name(),
        (None, None) => Backend::C10d.name(),
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?
        .write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::peers::alone;
    use crate::tests::{plan, rank};

    fn object(event: Event) -> Value {
        let plan = plan(&["true"], 2);
        let round = Round {
            plan: &plan,
            place: alone(&plan, None, 3),
            front: None,
            pulses: None,
            timer: None,
        };
        event.object(&round, UNIX_EPOCH + Duration::from_secs_f64(7.5))
    }

    fn of_rank(state: &'static str) -> Event {
        let rank = RankId {
            global: 5,
            ..rank(1)
        };
        Event::of_state(state).about(rank, 4711)
    }

    fn failed(code: i32) -> Value {
        object(of_rank("FAILED").failed(code, None).with("exit_code", code))
    }

    #[test]
    fn the_end_of_a_rank_has_torchrun_s_name_and_its_exit_code() {
        let stopped = object(of_rank("TERMINATED"));
        assert_eq!(stopped["metadata"]["state"], "TERMINATED");
        assert_eq!(stopped["source"], "WORKER");
        let failed = failed(-9);
        assert_eq!(failed["name"], "torchelastic.worker.status.FAILED");
        assert_eq!(failed["timestamp"], 7.5);
        let of = |field: &str| failed["metadata"][field].clone();
        let numbers = ["global_rank", "local_rank", "exit_code"].map(of);
        assert_eq!(numbers, [5, 1, -9]);
        let names = ["worker_id", "role", "run_id"].map(of);
        assert_eq!(names, ["4711", "default", "none"]);
    }

    /// The expected fields are those of `torchrun --event-log-handler console`, torch 2.11.
    #[test]
    fn every_field_of_torchrun_s_is_there() {
        let torchrun_s = "run_id global_rank group_rank worker_id role hostname state \
                          total_run_time rdzv_backend raw_error metadata agent_restarts \
                          duration_ms";
        let failed = failed(5);
        let after = Duration::from_millis(2);
        let met = object(Event::of_state("RENDEZVOUS").after(after));
        let assigned = object(Event::of_state("ASSIGN_WORKER_RANKS"));
        for event in [&failed, &met, &assigned] {
            let fields = event["metadata"].as_object().expect("an object").keys();
            let fields: Vec<_> = fields.take(13).map(String::as_str).collect();
            assert_eq!(fields.join(" "), torchrun_s);
        }
        assert_eq!(met["metadata"]["duration_ms"], 2.0);
        assert_eq!(met["metadata"]["agent_restarts"], 3);
        let name = "torchelastic.worker.status.ASSIGN_WORKER_RANKS";
        assert_eq!(assigned["name"], name);
        let inner = concat!(
            r#"{"group_world_size":1,"entry_point":"test","local_rank":[1],"role_rank":[1],"role_world_size":[2],"#,
            r#""exit_code":[5],"worker_pid":[4711]}"#
        );
        assert_eq!(failed["metadata"]["metadata"], inner);
        let none = r#"{"message":"<NONE>","errorTraits":{"category":"system_terminated_error","retryability":"False"}}"#;
        assert_eq!(failed["metadata"]["raw_error"], none);
    }
}
