//! The JSON object of one event.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::events::{BEGIN, EventRank, Happening, RankEnding};
use crate::node::host;
use crate::plan::LaunchPlan;
use crate::plan::rendezvous::Backend;
use crate::rendezvous::place::Assigned;
use crate::round::Round;

/// The facts from which the fields of an event are made, torchrun's and the additional ones.
struct Facts<'a> {
    name: String,
    state: Option<&'static str>,
    who: Option<EventRank>,
    /// The exit code of a rank that has failed.
    code: Option<i32>,
    raw_error: Option<String>,
    duration: Option<Duration>,
    own: Vec<(&'a str, Value)>,
}

impl<'a> Facts<'a> {
    fn of_state(state: &'static str, who: Option<EventRank>, own: Vec<(&'a str, Value)>) -> Self {
        let name = format!("torchelastic.worker.status.{state}");
        Facts {
            name,
            state: Some(state),
            who,
            code: None,
            raw_error: None,
            duration: None,
            own,
        }
    }

    fn of_ours(name: &str, who: Option<EventRank>, own: Vec<(&'a str, Value)>) -> Self {
        Facts {
            name: name.to_owned(),
            state: None,
            who,
            code: None,
            raw_error: None,
            duration: None,
            own,
        }
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
            Happening::Lost { who, reason } => Facts::of_ours(
                "rrun.rank.lost",
                Some(*who),
                vec![("reason", (*reason).into())],
            ),
            Happening::Met { after } => {
                let own = vec![("group_world_size", round.place.nodes.into())];
                Facts {
                    duration: Some(*after),
                    ..Facts::of_state("RENDEZVOUS", None, own)
                }
            }
            Happening::Assigned => Facts {
                duration: Some(Duration::ZERO),
                ..Facts::of_state("ASSIGN_WORKER_RANKS", None, Vec::new())
            },
            Happening::Signal { name } => {
                Facts::of_ours("rrun.signal", None, vec![("signal", (*name).into())])
            }
            Happening::Over { is_success: true } => Facts::of_state("SUCCEEDED", None, Vec::new()),
            Happening::Over { is_success: false } => Facts::of_state("FAILED", None, Vec::new()),
        }
    }

    fn of_end(who: EventRank, end: &RankEnding, usage: Option<&Value>) -> Self {
        let (state, code) = match end {
            RankEnding::Succeeded => ("SUCCEEDED", 0),
            RankEnding::Failed { code, .. } => ("FAILED", *code),
            RankEnding::Terminated { code } => ("TERMINATED", *code),
        };
        let mut own = vec![("exit_code", code.into())];
        own.extend(usage.map(|usage| ("usage", usage.clone())));
        let facts = Facts::of_state(state, Some(who), own);
        match end {
            RankEnding::Failed { code, error } => Facts {
                code: Some(*code),
                raw_error: Some(raw_error(error.as_ref())),
                ..facts
            },
            RankEnding::Succeeded | RankEnding::Terminated { .. } => facts,
        }
    }

    /// Returns the metadata that torchrun encodes as a JSON text, with rank values in lists of one
    /// element.
    fn inner(&self, round: &Round<'_>) -> Value {
        let plan = round.plan;
        let mut inner = json!({"group_world_size": round.place.nodes, "entry_point": plan.title});
        if let (Some(who), Some(fields)) = (self.who, inner.as_object_mut()) {
            let Assigned(_, _, base_of_role, world_of_role) = round.place.assigned;
            let pid = self.code.map(|_| who.pid);
            fields.insert("local_rank".to_owned(), json!([who.rank.local]));
            fields.insert(
                "role_rank".to_owned(),
                json!([base_of_role + who.rank.index]),
            );
            fields.insert("role_world_size".to_owned(), json!([world_of_role]));
            fields.insert("exit_code".to_owned(), json!([self.code]));
            fields.insert("worker_pid".to_owned(), json!([pid]));
        }
        inner
    }
}

/// Returns what torchrun writes about a failed rank: its error file, or that there is none.
fn raw_error(error: Option<&Value>) -> String {
    let none = || {
        let traits = json!({"category": "system_terminated_error", "retryability": "False"});
        json!({"message": "<NONE>", "errorTraits": traits})
    };
    error.cloned().unwrap_or_else(none).to_string()
}

/// Returns the JSON object of an event.
pub(super) fn event(round: &Round<'_>, happening: &Happening<'_>, now: SystemTime) -> Value {
    let (plan, place) = (round.plan, &round.place);
    let facts = Facts::new(round, happening);
    let is_rank_s = matches!(happening, Happening::Started(_) | Happening::Ended { .. });
    let total = BEGIN
        .get()
        .and_then(|begin| now.duration_since(*begin).ok())
        .unwrap_or_default();
    let mut metadata = json!({
        "run_id": plan.run_id,
        "global_rank": facts.who.map(|who| who.rank.global),
        "group_rank": place.node,
        "worker_id": facts.who.map(|who| who.pid.to_string()),
        "role": plan.role,
        "hostname": host::full_name(),
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
        fields.extend(
            facts
                .who
                .map(|who| ("local_rank".to_owned(), who.rank.local.into())),
        );
        fields.extend(
            facts
                .own
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
    }
    let source = if is_rank_s { "WORKER" } else { "AGENT" };
    let timestamp = now
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64());
    json!({"name": facts.name, "source": source, "timestamp": timestamp, "metadata": metadata})
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::peers::alone;
    use crate::rank_id::RankId;
    use crate::tests::plan;

    const WHO: EventRank = EventRank {
        rank: RankId {
            index: 1,
            local: 1,
            global: 5,
        },
        pid: 4711,
    };

    fn event_of(happening: &Happening<'_>) -> Value {
        let plan = plan(&["true"], 2);
        let now = UNIX_EPOCH + Duration::from_secs_f64(7.5);
        event(
            &Round {
                plan: &plan,
                place: alone(&plan, None, 3),
                front: None,
                pulses: None,
                timer: None,
            },
            happening,
            now,
        )
    }

    fn ended(end: RankEnding) -> Value {
        event_of(&Happening::Ended {
            who: WHO,
            end,
            usage: None,
        })
    }

    #[test]
    fn the_end_of_a_rank_has_torchrun_s_name_and_its_exit_code() {
        let succeeded = ended(RankEnding::Succeeded);
        assert_eq!(succeeded["name"], "torchelastic.worker.status.SUCCEEDED");
        let stopped = ended(RankEnding::Terminated { code: -15 });
        assert_eq!(stopped["metadata"]["state"], "TERMINATED");
        let failed = failed(-9);
        assert_eq!(failed["name"], "torchelastic.worker.status.FAILED");
        assert_eq!(failed["timestamp"], 7.5);
        let of = |field: &str| failed["metadata"][field].clone();
        let numbers = ["global_rank", "local_rank", "exit_code"].map(of);
        assert_eq!(numbers, [5, 1, -9]);
        let names = ["worker_id", "role", "run_id"].map(of);
        assert_eq!(names, ["4711", "default", "none"]);
    }

    fn failed(code: i32) -> Value {
        ended(RankEnding::Failed { code, error: None })
    }

    /// The expected fields are those of `torchrun --event-log-handler console`, torch 2.11.
    #[test]
    fn every_field_of_torchrun_s_is_there() {
        let torchrun_s = "run_id global_rank group_rank worker_id role hostname state \
                          total_run_time rdzv_backend raw_error metadata agent_restarts \
                          duration_ms";
        let failed = failed(5);
        let after = Duration::from_millis(2);
        let met = event_of(&Happening::Met { after });
        let assigned = event_of(&Happening::Assigned);
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
