//! What happens in a launch, one JSON line an event: `--event-log-handler console` or `json:FILE`.
//!
//! ```text
//! {"name":"torchelastic.worker.status.FAILED","source":"WORKER","timestamp":1795233885.25,
//!  "metadata":{"run_id":"none","role":"default","hostname":"node1","global_rank":3,"local_rank":1,"worker_id":"4711",…}}
//! ```
//! Names, sources and the first fields are torchrun's (torch/distributed/elastic/events/api.py, torch 2.11), where it
//! has an event; restarts and signals are our own. A file is opened anew for each line and appended to, so that the
//! launchers of several nodes may share it, and it may be moved away at any time.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::agent::group::budget::Restart;
use crate::plan::Plan;
use crate::say;

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
        /// Its exit code, or the negative number of a signal.
        code: i32,
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
    Round {
        /// `TORCHELASTIC_RESTART_COUNT`.
        restarts: u32,
        /// `GROUP_RANK`.
        node: usize,
        /// `GROUP_WORLD_SIZE`.
        nodes: usize,
    },
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

/// One rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
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

/// Writes what happened where the plan wants it. A file that cannot be written is said, and the launch goes on.
pub fn record(plan: &Plan, happening: &Happening<'_>) {
    if plan.events == EventLog::None {
        return;
    }
    let line = format!("{}\n", event(plan, happening, SystemTime::now()));
    match &plan.events {
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

fn event(plan: &Plan, happening: &Happening<'_>, now: SystemTime) -> Value {
    let (name, source, own) = match happening {
        Happening::Started(who) => ("torchelastic.worker.status.START", "WORKER", of_rank(*who)),
        Happening::Ended { who, code, usage } => {
            let name = if *code == 0 { "SUCCEEDED" } else { "FAILED" };
            let mut own = of_rank(*who);
            own.insert("exit_code".to_owned(), (*code).into());
            own.extend(usage.iter().map(|usage| ("usage".to_owned(), usage.clone())));
            return whole(plan, &format!("torchelastic.worker.status.{name}"), "WORKER", own, now);
        }
        Happening::Restart { who, restart } => {
            let mut own = of_rank(*who);
            own.insert("attempt".to_owned(), restart.attempt.into());
            own.insert("restart".to_owned(), restart.number.into());
            own.insert("of".to_owned(), restart.of.into());
            own.insert("after_s".to_owned(), restart.after.as_secs().into());
            ("rrun.rank.restart", "AGENT", own)
        }
        Happening::Lost { who, reason } => {
            let mut own = of_rank(*who);
            own.insert("reason".to_owned(), (*reason).into());
            ("rrun.rank.lost", "AGENT", own)
        }
        Happening::Round { restarts, node, nodes } => {
            let mut own = one("agent_restarts", (*restarts).into());
            own.insert("group_rank".to_owned(), (*node).into());
            own.insert("group_world_size".to_owned(), (*nodes).into());
            ("torchelastic.worker.status.RENDEZVOUS", "AGENT", own)
        }
        Happening::Signal { name } => ("rrun.signal", "AGENT", one("signal", (*name).into())),
        Happening::Over { is_success: true } => ("torchelastic.worker.status.SUCCEEDED", "AGENT", Map::new()),
        Happening::Over { is_success: false } => ("torchelastic.worker.status.FAILED", "AGENT", Map::new()),
    };
    whole(plan, name, source, own, now)
}

fn whole(plan: &Plan, name: &str, source: &str, own: Map<String, Value>, now: SystemTime) -> Value {
    let timestamp = now.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let mut metadata = one("run_id", plan.run_id.clone().into());
    metadata.insert("role".to_owned(), plan.role.clone().into());
    metadata.insert("hostname".to_owned(), crate::report::host().into());
    metadata.insert("entry_point".to_owned(), plan.title.clone().into());
    metadata.extend(own);
    json!({"name": name, "source": source, "timestamp": timestamp, "metadata": metadata})
}

fn one(name: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(name.to_owned(), value)])
}

fn of_rank(who: Who) -> Map<String, Value> {
    let mut fields = one("global_rank", who.rank.into());
    fields.insert("local_rank".to_owned(), who.local_rank.into());
    // A string, as torchrun has it.
    fields.insert("worker_id".to_owned(), who.pid.to_string().into());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::plan;

    const WHO: Who = Who { rank: 5, local_rank: 1, pid: 4711 };

    fn at(seconds: f64) -> SystemTime {
        UNIX_EPOCH + std::time::Duration::from_secs_f64(seconds)
    }

    #[test]
    fn handlers_have_torchrun_s_names_and_one_more() {
        let handlers = ["null", "dynamic_rendezvous", "console", "json:e.jsonl", "json:", "foo"].map(EventLog::parse);
        let file = Some(EventLog::File("e.jsonl".into()));
        assert_eq!(handlers, [Some(EventLog::None), Some(EventLog::None), Some(EventLog::Console), file, None, None]);
    }

    #[test]
    fn the_end_of_a_rank_has_torchrun_s_name_and_its_exit_code() {
        let ended = |code| Happening::Ended { who: WHO, code, usage: None };
        let event = |code| super::event(&plan(&["true"], 1), &ended(code), at(7.5));
        assert_eq!(event(0)["name"], "torchelastic.worker.status.SUCCEEDED");
        let failed = event(-9);
        assert_eq!((&failed["name"], &failed["timestamp"]), (&json!("torchelastic.worker.status.FAILED"), &json!(7.5)));
        let of = |field: &str| failed["metadata"][field].clone();
        assert_eq!([of("global_rank"), of("local_rank"), of("exit_code")], [json!(5), json!(1), json!(-9)]);
        assert_eq!([of("worker_id"), of("role"), of("run_id")], ["4711", "default", "none"]);
    }

    #[test]
    fn every_line_of_a_file_is_an_event() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("events.jsonl");
        let plan = Plan { events: EventLog::File(path.clone()), ..plan(&["true"], 1) };
        record(&plan, &Happening::Started(WHO));
        record(&plan, &Happening::Over { is_success: true });
        let text = std::fs::read_to_string(path).expect("read");
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.iter().map(|line| line["source"].clone()).collect::<Vec<_>>(), ["WORKER", "AGENT"]);
    }
}
