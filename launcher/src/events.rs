//! What happens in a launch, one JSON line an event: `--event-log-handler console` or `json:FILE`.
//!
//! ```text
//! {"name":"torchelastic.worker.status.FAILED","source":"WORKER","timestamp":1795233885.25,
//!  "metadata":{"run_id":"none","global_rank":3,"group_rank":0,"worker_id":"4711","role":"default","hostname":"node1",…}}
//! ```
//! Names, sources and the first fields are torchrun's (torch/distributed/elastic/agent/server/api.py, torch 2.11:
//! `_construct_event`), where it has an event: programs that read its events find all they know. Restarts and signals are
//! our own, and so are the fields behind `duration_ms`, and a timestamp other than 0. A file is opened anew for each line and appended to, so that the
//! launchers of several nodes may share it, and it may be moved away at any time.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use crate::agent::group::budget::Restart;
use crate::agent::variables::Round;
use crate::plan::Plan;
use crate::plan::rendezvous::Backend;
use crate::rendezvous::place::Assigned;
use crate::say;

/// When the launch began.
static BEGIN: OnceLock<SystemTime> = OnceLock::new();

/// Where events go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum EventLog {
    /// Nowhere.
    #[default]
    None,
    /// Standard error.
    Console,
    /// The end of a file.
    File(PathBuf),
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening<'a> {
    /// A rank was started.
    Started(Who),
    /// A rank has ended.
    Ended {
        /// Which.
        who: Who,
        /// How.
        end: RankEnd,
        /// What it used, if the kernel tells.
        usage: Option<Value>,
    },
    /// A rank has failed, and will be started again alone.
    Restart {
        /// Which, with the pid that it had.
        who: Who,
        /// When, and for which time.
        restart: Restart,
    },
    /// A rank has failed, and will not come back.
    Lost {
        /// Which, with the pid that it had.
        who: Who,
        /// Why.
        reason: &'a str,
    },
    /// The ranks meet: the first time, after a failure, or because nodes came or went.
    Met {
        /// How long that took.
        after: Duration,
    },
    /// The ranks have their numbers, which needs no time beyond meeting.
    Assigned,
    /// The launcher received a signal.
    Signal {
        /// Its name.
        name: &'a str,
    },
    /// The launch is over.
    Over {
        /// Whether every rank exited with code 0.
        is_success: bool,
    },
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RankEnd {
    /// With exit code 0.
    Succeeded,
    /// Otherwise.
    Failed {
        /// Its exit code, or the negative number of a signal.
        code: i32,
        /// What it has written into its error file.
        error: Option<Value>,
    },
    /// The launcher had told it to end.
    Terminated {
        /// Its exit code, or the negative number of a signal.
        code: i32,
    },
}

/// One rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Place among the ranks of this node.
    pub index: usize,
    /// Global rank.
    pub rank: usize,
    /// Local rank.
    pub local_rank: usize,
    /// Process id.
    pub pid: i32,
}

impl EventLog {
    /// By the option's value; none if there is no such handler.
    pub fn parse(handler: &str) -> Option<EventLog> {
        match (handler, handler.strip_prefix("json:")) {
            ("null" | "dynamic_rendezvous", _) => Some(EventLog::None),
            ("console", _) => Some(EventLog::Console),
            (_, Some(path)) if !path.is_empty() => Some(EventLog::File(PathBuf::from(path))),
            _ => None,
        }
    }
}

/// The launch begins; `total_run_time` counts from here.
pub fn begin() {
    let _ = BEGIN.set(SystemTime::now());
}

/// Writes what happened where the plan wants it. A file that cannot be written is said, and the launch goes on.
pub fn record(round: &Round<'_>, happening: &Happening<'_>) {
    if round.plan.events == EventLog::None {
        return;
    }
    let line = format!("{}\n", event(round, happening, SystemTime::now()));
    match &round.plan.events {
        EventLog::None => {}
        EventLog::Console => say::print(Some(line)),
        EventLog::File(path) => {
            if let Err(err) = append(path, &line) {
                say::warning(format_args!("cannot write an event into `{}`: {err}", path.display()));
            }
        }
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

/// What torchrun's fields of an event come from, and our own fields.
struct Facts<'a> {
    name: String,
    state: Option<&'static str>,
    who: Option<Who>,
    /// Of a rank that has failed.
    code: Option<i32>,
    raw_error: Option<String>,
    duration: Option<Duration>,
    own: Vec<(&'a str, Value)>,
}

impl<'a> Facts<'a> {
    fn of_state(state: &'static str, who: Option<Who>, own: Vec<(&'a str, Value)>) -> Self {
        let name = format!("torchelastic.worker.status.{state}");
        Facts { name, state: Some(state), who, code: None, raw_error: None, duration: None, own }
    }

    fn of_ours(name: &str, who: Option<Who>, own: Vec<(&'a str, Value)>) -> Self {
        Facts { name: name.to_owned(), state: None, who, code: None, raw_error: None, duration: None, own }
    }

    fn new(round: &Round<'_>, happening: &'a Happening<'a>) -> Self {
        match happening {
            Happening::Started(who) => Facts::of_state("START", Some(*who), Vec::new()),
            Happening::Ended { who, end, usage } => Facts::of_end(*who, end, usage.as_ref()),
            Happening::Restart { who, restart } => {
                let own = vec![
                    ("attempt", restart.attempt.into()),
                    ("restart", restart.number.into()),
                    ("of", restart.of.into()),
                    ("after_s", restart.after.as_secs().into()),
                ];
                Facts::of_ours("rrun.rank.restart", Some(*who), own)
            }
            Happening::Lost { who, reason } => {
                Facts::of_ours("rrun.rank.lost", Some(*who), vec![("reason", (*reason).into())])
            }
            Happening::Met { after } => {
                let own = vec![("group_world_size", round.place.nodes.into())];
                Facts { duration: Some(*after), ..Facts::of_state("RENDEZVOUS", None, own) }
            }
            Happening::Assigned => {
                Facts { duration: Some(Duration::ZERO), ..Facts::of_state("ASSIGN_WORKER_RANKS", None, Vec::new()) }
            }
            Happening::Signal { name } => Facts::of_ours("rrun.signal", None, vec![("signal", (*name).into())]),
            Happening::Over { is_success: true } => Facts::of_state("SUCCEEDED", None, Vec::new()),
            Happening::Over { is_success: false } => Facts::of_state("FAILED", None, Vec::new()),
        }
    }

    fn of_end(who: Who, end: &RankEnd, usage: Option<&Value>) -> Self {
        let (state, code) = match end {
            RankEnd::Succeeded => ("SUCCEEDED", 0),
            RankEnd::Failed { code, .. } => ("FAILED", *code),
            RankEnd::Terminated { code } => ("TERMINATED", *code),
        };
        let mut own = vec![("exit_code", code.into())];
        own.extend(usage.map(|usage| ("usage", usage.clone())));
        let facts = Facts::of_state(state, Some(who), own);
        match end {
            RankEnd::Failed { code, error } => {
                Facts { code: Some(*code), raw_error: Some(raw_error(error.as_ref())), ..facts }
            }
            RankEnd::Succeeded | RankEnd::Terminated { .. } => facts,
        }
    }

    /// Torchrun keeps these in a text of JSON, in lists of one where they are a rank's.
    fn inner(&self, round: &Round<'_>) -> Value {
        let plan = round.plan;
        let mut inner = json!({"group_world_size": round.place.nodes, "entry_point": plan.title});
        if let (Some(who), Some(fields)) = (self.who, inner.as_object_mut()) {
            let Assigned(_, _, base_of_role, world_of_role) = round.place.assigned;
            let pid = self.code.map(|_| who.pid);
            fields.insert("local_rank".to_owned(), json!([who.local_rank]));
            fields.insert("role_rank".to_owned(), json!([base_of_role + who.index]));
            fields.insert("role_world_size".to_owned(), json!([world_of_role]));
            fields.insert("exit_code".to_owned(), json!([self.code]));
            fields.insert("worker_pid".to_owned(), json!([pid]));
        }
        inner
    }
}

/// What torchrun writes of a rank that failed: its error file, or that there is none.
fn raw_error(error: Option<&Value>) -> String {
    let none = || {
        let traits = json!({"category": "system_terminated_error", "retryability": "False"});
        json!({"message": "<NONE>", "errorTraits": traits})
    };
    error.cloned().unwrap_or_else(none).to_string()
}

fn event(round: &Round<'_>, happening: &Happening<'_>, now: SystemTime) -> Value {
    let (plan, place) = (round.plan, &round.place);
    let facts = Facts::new(round, happening);
    let is_rank_s = matches!(happening, Happening::Started(_) | Happening::Ended { .. });
    let total = BEGIN.get().and_then(|begin| now.duration_since(*begin).ok()).unwrap_or_default();
    let mut metadata = json!({
        "run_id": plan.run_id,
        "global_rank": facts.who.map(|who| who.rank),
        "group_rank": place.node,
        "worker_id": facts.who.map(|who| who.pid.to_string()),
        "role": plan.role,
        "hostname": crate::report::host(),
        "state": facts.state,
        "total_run_time": total.as_secs(),
        "rdzv_backend": backend(plan),
        "raw_error": facts.raw_error,
        "metadata": facts.inner(round).to_string(),
        "agent_restarts": place.restarts,
        "duration_ms": facts.duration.map(|duration| duration.as_secs_f64() * 1000.0),
        "entry_point": plan.title,
    });
    if let Some(fields) = metadata.as_object_mut() {
        fields.extend(facts.who.map(|who| ("local_rank".to_owned(), who.local_rank.into())));
        fields.extend(facts.own.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    let source = if is_rank_s { "WORKER" } else { "AGENT" };
    let timestamp = now.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    json!({"name": facts.name, "source": source, "timestamp": timestamp, "metadata": metadata})
}

/// A launch on one node has no rendezvous; with a port of its own choice it is what torchrun calls standalone.
fn backend(plan: &Plan) -> &'static str {
    match (&plan.rendezvous, plan.store.port) {
        (Some(rendezvous), _) if rendezvous.backend == Backend::Static => "static",
        (None, Some(_)) => "static",
        (Some(_), _) | (None, None) => "c10d",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::company::alone;
    use crate::agent::tests::plan;

    const WHO: Who = Who { index: 1, rank: 5, local_rank: 1, pid: 4711 };

    fn at(seconds: f64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs_f64(seconds)
    }

    fn event_of(happening: &Happening<'_>) -> Value {
        let plan = plan(&["true"], 2);
        event(&Round { plan: &plan, place: alone(&plan, None, 3) }, happening, at(7.5))
    }

    fn ended(end: RankEnd) -> Value {
        event_of(&Happening::Ended { who: WHO, end, usage: None })
    }

    #[test]
    fn handlers_have_torchrun_s_names_and_one_more() {
        let handlers = ["null", "dynamic_rendezvous", "console", "json:e.jsonl", "json:", "foo"].map(EventLog::parse);
        let file = Some(EventLog::File("e.jsonl".into()));
        assert_eq!(handlers, [Some(EventLog::None), Some(EventLog::None), Some(EventLog::Console), file, None, None]);
    }

    #[test]
    fn the_end_of_a_rank_has_torchrun_s_name_and_its_exit_code() {
        assert_eq!(ended(RankEnd::Succeeded)["name"], "torchelastic.worker.status.SUCCEEDED");
        assert_eq!(ended(RankEnd::Terminated { code: -15 })["metadata"]["state"], "TERMINATED");
        let failed = ended(RankEnd::Failed { code: -9, error: None });
        assert_eq!((&failed["name"], &failed["timestamp"]), (&json!("torchelastic.worker.status.FAILED"), &json!(7.5)));
        let of = |field: &str| failed["metadata"][field].clone();
        assert_eq!([of("global_rank"), of("local_rank"), of("exit_code")], [json!(5), json!(1), json!(-9)]);
        assert_eq!([of("worker_id"), of("role"), of("run_id")], ["4711", "default", "none"]);
    }

    /// torch 2.11, `torchrun --event-log-handler console`.
    #[test]
    fn every_field_of_torchrun_s_is_there() {
        let torchrun_s = [
            "run_id",
            "global_rank",
            "group_rank",
            "worker_id",
            "role",
            "hostname",
            "state",
            "total_run_time",
            "rdzv_backend",
            "raw_error",
            "metadata",
            "agent_restarts",
            "duration_ms",
        ];
        let names = |event: &Value| -> Vec<String> {
            event["metadata"].as_object().expect("an object").keys().take(torchrun_s.len()).cloned().collect()
        };
        let failed = ended(RankEnd::Failed { code: 5, error: None });
        let (met, assigned) =
            (event_of(&Happening::Met { after: Duration::from_millis(2) }), event_of(&Happening::Assigned));
        assert_eq!([names(&failed), names(&met), names(&assigned)], [torchrun_s; 3]);
        assert_eq!((&met["metadata"]["duration_ms"], &met["metadata"]["agent_restarts"]), (&json!(2.0), &json!(3)));
        assert_eq!(assigned["name"], "torchelastic.worker.status.ASSIGN_WORKER_RANKS");
        let inner = r#"{"group_world_size":1,"entry_point":"test","local_rank":[1],"role_rank":[1],"role_world_size":[2],"exit_code":[5],"worker_pid":[4711]}"#;
        assert_eq!(failed["metadata"]["metadata"], inner);
        let none =
            r#"{"message":"<NONE>","errorTraits":{"category":"system_terminated_error","retryability":"False"}}"#;
        assert_eq!(failed["metadata"]["raw_error"], none);
    }

    #[test]
    fn every_line_of_a_file_is_an_event() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events.jsonl");
        let plan = Plan { events: EventLog::File(path.clone()), ..plan(&["true"], 1) };
        let round = Round { plan: &plan, place: alone(&plan, None, 0) };
        record(&round, &Happening::Started(WHO));
        record(&round, &Happening::Over { is_success: true });
        let text = std::fs::read_to_string(path).expect("read");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.iter().map(|line| line["source"].clone()).collect::<Vec<_>>(), ["WORKER", "AGENT"]);
    }
}
