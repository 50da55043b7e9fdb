//! The environment variables that torchrun sets for a rank. No I/O.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jobs::launch::LAUNCH_VARIABLE;
use jobs::live::{PAGE_TOKEN_VARIABLE, PAGE_VARIABLE, PULSE_VARIABLE};
use jobs::rank_env::FRONT_VARIABLE;
use tempfile::TempDir;

use crate::hang::TIMER_FILE;
use crate::plan::{FailurePolicy, LaunchPlan};
use crate::rank_id::RankId;
use crate::rendezvous::place::{Assigned, NodePlace};

/// The variable that marks a rank and all its descendants, so that leftover processes can be
/// attributed to their rank.
const MARK: &str = "RRUN_RANK_MARK";

/// What the ranks of one round have in common on this node.
#[derive(Debug)]
pub struct Round<'a> {
    /// The plan of the launch.
    pub plan: &'a LaunchPlan,
    /// The place of this node among the nodes of the launch.
    pub place: NodePlace,
    /// The socket by which the ranks of `serve` get connections of the front port.
    pub front: Option<String>,
    /// The folder where the ranks of an evaluation tell how far they are, each in a file named by its
    /// index.
    pub pulses: Option<TempDir>,
    /// The pipe of the file timer.
    pub timer: Option<PathBuf>,
}

impl Round<'_> {
    /// Returns the rank at `index` (from 0) on this node.
    pub fn rank(&self, index: usize) -> RankId {
        let planned = self.plan.ranks.get(index);
        RankId {
            index,
            local: planned.map_or(index, |rank| rank.local_rank),
            global: self.place.assigned.0 + index,
        }
    }

    /// Returns the `NAME=value` entry that only this rank has in its environment. Only ranks that
    /// may restart on their own have one.
    pub fn mark(&self, index: usize) -> String {
        format!("{MARK}={}", mark(index))
    }

    /// Returns the variables of a rank that do not come from the plan. `attempt` is its restart
    /// count. Without `error_file` its variable is empty, as torchrun leaves it with `--log-dir
    /// /dev/null`.
    pub fn variables(
        &self,
        rank: RankId,
        attempt: u32,
        error_file: Option<&Path>,
    ) -> BTreeMap<String, String> {
        let (plan, place) = (self.plan, &self.place);
        let Assigned(_, world, base_of_role, world_of_role) = place.assigned;
        // Python's spelling: torch compares with the exact string `True`.
        let has_agent_store = match place.master.is_agent_store {
            true => "True",
            false => "False",
        };
        let torchrun_s = [
            ("RANK", rank.global.to_string()),
            ("GROUP_RANK", place.node.to_string()),
            ("ROLE_RANK", (base_of_role + rank.index).to_string()),
            ("ROLE_NAME", plan.role.clone()),
            ("LOCAL_WORLD_SIZE", plan.ranks.len().to_string()),
            ("WORLD_SIZE", world.to_string()),
            ("GROUP_WORLD_SIZE", place.nodes.to_string()),
            ("ROLE_WORLD_SIZE", world_of_role.to_string()),
            ("MASTER_ADDR", place.master.addr.clone()),
            ("MASTER_PORT", place.master.port.to_string()),
            ("TORCHELASTIC_RESTART_COUNT", attempt.to_string()),
            ("TORCHELASTIC_MAX_RESTARTS", plan.max_restarts.to_string()),
            ("TORCHELASTIC_RUN_ID", plan.run_id.clone()),
            ("TORCHELASTIC_USE_AGENT_STORE", has_agent_store.to_owned()),
            (
                "TORCHELASTIC_ERROR_FILE",
                error_file.map_or_else(String::new, text),
            ),
            ("TORCHELASTIC_SIGNALS_TO_HANDLE", plan.signals.spec.clone()),
        ];
        let all = torchrun_s.into_iter().chain(self.ours(rank.index));
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the variables that torchrun does not set.
    fn ours(&self, index: usize) -> Vec<(&'static str, String)> {
        let mut ours = Vec::new();
        if self.plan.failure_policy == FailurePolicy::Isolate {
            // Restart counts differ, so everything that belongs to all ranks of a round is named by
            // the number of the round instead.
            ours.push(("RRUN_FAILURE_POLICY", "isolate".to_owned()));
            ours.push(("RRUN_ROUND", self.place.round.to_string()));
            ours.push((MARK, mark(index)));
        }
        if let Some(eval) = &self.plan.eval {
            ours.push((LAUNCH_VARIABLE, self.place.launch.clone()));
            if eval.page.is_some() {
                // Ranks do not need its token.
                ours.push((PAGE_VARIABLE, "1".to_owned()));
                ours.push((PAGE_TOKEN_VARIABLE, String::new()));
            }
        }
        match &self.pulses {
            Some(folder) => {
                let path = folder.path().join(index.to_string());
                ours.push((PULSE_VARIABLE, text(&path)));
            }
            // That of another launch, in which this one runs, is not passed on.
            None if self.plan.is_built_in => ours.push((PULSE_VARIABLE, String::new())),
            None => {}
        }
        ours.extend(self.front.clone().map(|socket| (FRONT_VARIABLE, socket)));
        ours.extend(self.timer.as_deref().map(|path| (TIMER_FILE, text(path))));
        ours
    }
}

fn mark(index: usize) -> String {
    format!("{}.{index}", std::process::id())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::place::Master;
    use crate::tests::plan;

    fn place(is_agent_store: bool) -> NodePlace {
        let master = Master {
            addr: "node0".to_owned(),
            port: 4321,
            is_agent_store,
        };
        let launch = "0123".to_owned();
        NodePlace {
            launch,
            node: 1,
            nodes: 3,
            assigned: Assigned(4, 9, 1, 5),
            master,
            restarts: 2,
            round: 7,
        }
    }

    fn round(plan: &LaunchPlan, is_agent_store: bool) -> Round<'_> {
        Round {
            plan,
            place: place(is_agent_store),
            front: None,
            pulses: None,
            timer: None,
        }
    }

    fn of_rank_1(
        plan: &LaunchPlan,
        is_agent_store: bool,
        attempt: u32,
        error_file: Option<&Path>,
    ) -> BTreeMap<String, String> {
        let round = round(plan, is_agent_store);
        round.variables(round.rank(1), attempt, error_file)
    }

    #[track_caller]
    fn has(variables: &BTreeMap<String, String>, wanted: &[(&str, &str)]) {
        for (name, value) in wanted {
            assert_eq!(
                variables.get(*name).map(String::as_str),
                Some(*value),
                "{name}"
            );
        }
    }

    #[test]
    fn a_rank_learns_its_place_in_the_world() {
        let mut plan = plan(&["true"], 3);
        let error = Some(Path::new("/logs/error.json"));
        let variables = of_rank_1(&plan, true, 2, error);
        let wanted = [
            ("RANK", "5"),
            ("ROLE_RANK", "2"),
            ("GROUP_RANK", "1"),
            ("WORLD_SIZE", "9"),
            ("LOCAL_WORLD_SIZE", "3"),
            ("ROLE_WORLD_SIZE", "5"),
            ("GROUP_WORLD_SIZE", "3"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "4321"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ("TORCHELASTIC_ERROR_FILE", "/logs/error.json"),
        ];
        has(&variables, &wanted);
        assert!(variables.keys().all(|name| !name.starts_with("RRUN_")));
        // Local ranks that begin later count from the node's first, and without a log folder the
        // error file is the empty string.
        plan.ranks.iter_mut().for_each(|rank| rank.local_rank += 3);
        let variables = of_rank_1(&plan, false, 0, None);
        let wanted = [
            ("RANK", "5"),
            ("TORCHELASTIC_ERROR_FILE", ""),
            ("TORCHELASTIC_USE_AGENT_STORE", "False"),
        ];
        has(&variables, &wanted);
    }

    #[test]
    fn ranks_that_restart_alone_know_the_round() {
        let isolated = LaunchPlan {
            failure_policy: FailurePolicy::Isolate,
            ..plan(&["true"], 2)
        };
        let round = round(&isolated, true);
        let own = round.variables(round.rank(1), 5, None);
        let wanted = [
            ("RRUN_FAILURE_POLICY", "isolate"),
            ("RRUN_ROUND", "7"),
            ("TORCHELASTIC_RESTART_COUNT", "5"),
        ];
        has(&own, &wanted);
        assert_eq!(round.mark(1), format!("{MARK}={}", own[MARK]));
    }
}
