//! The environment that a rank finds: torchrun's variables. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use crate::plan::{Plan, RankPlan};

/// What the ranks of one attempt have in common.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// The launch.
    pub plan: &'a Plan,
    /// Where the store listens, or where rank 0 is to host one.
    pub master_port: u16,
    /// Whether the launcher hosts the store.
    pub has_agent_store: bool,
    /// `TORCHELASTIC_RESTART_COUNT`.
    pub attempt: u32,
}

impl Round<'_> {
    /// The global rank of a local rank. One node takes part, and it is the first.
    pub fn rank(&self, local_rank: usize) -> usize {
        local_rank
    }

    /// The variables of `rank` that do not come from the plan. Without `error_file` its variable is empty, as torchrun
    /// leaves it with `--log-dir /dev/null`.
    pub fn variables(&self, rank: &RankPlan, error_file: Option<&Path>) -> BTreeMap<String, String> {
        let plan = self.plan;
        let (global, world) = (self.rank(rank.local_rank).to_string(), plan.ranks.len().to_string());
        // Python's spelling: torch compares with the exact string `True`.
        let has_agent_store = if self.has_agent_store { "True" } else { "False" };
        [
            ("RANK", global.clone()),
            ("GROUP_RANK", "0".to_owned()),
            ("ROLE_RANK", global),
            ("ROLE_NAME", plan.role.clone()),
            ("LOCAL_WORLD_SIZE", world.clone()),
            ("WORLD_SIZE", world.clone()),
            ("GROUP_WORLD_SIZE", "1".to_owned()),
            ("ROLE_WORLD_SIZE", world),
            ("MASTER_ADDR", plan.store.master_addr.clone()),
            ("MASTER_PORT", self.master_port.to_string()),
            ("TORCHELASTIC_RESTART_COUNT", self.attempt.to_string()),
            ("TORCHELASTIC_MAX_RESTARTS", plan.max_restarts.to_string()),
            ("TORCHELASTIC_RUN_ID", plan.run_id.clone()),
            ("TORCHELASTIC_USE_AGENT_STORE", has_agent_store.to_owned()),
            ("TORCHELASTIC_ERROR_FILE", error_file.map_or_else(String::new, |path| path.display().to_string())),
            ("TORCHELASTIC_SIGNALS_TO_HANDLE", plan.signals.spec.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::plan;

    #[test]
    fn a_rank_learns_its_place_in_a_world_of_one_node() {
        let plan = plan(&["true"], 3);
        let round = Round { plan: &plan, master_port: 4321, has_agent_store: true, attempt: 2 };
        let variables = round.variables(&plan.ranks[1], Some(Path::new("/logs/error.json")));
        let of = |name: &str| variables[name].as_str();
        assert_eq!([of("RANK"), of("ROLE_RANK"), of("GROUP_RANK")], ["1", "1", "0"]);
        assert_eq!([of("WORLD_SIZE"), of("LOCAL_WORLD_SIZE"), of("ROLE_WORLD_SIZE")], ["3", "3", "3"]);
        assert_eq!([of("GROUP_WORLD_SIZE"), of("MASTER_PORT"), of("TORCHELASTIC_RESTART_COUNT")], ["1", "4321", "2"]);
        assert_eq!([of("TORCHELASTIC_USE_AGENT_STORE"), of("TORCHELASTIC_ERROR_FILE")], ["True", "/logs/error.json"]);
    }

    #[test]
    fn without_log_folder_the_error_file_is_the_empty_string() {
        let plan = plan(&["true"], 1);
        let round = Round { plan: &plan, master_port: 1, has_agent_store: false, attempt: 0 };
        let variables = round.variables(&plan.ranks[0], None);
        assert_eq!(variables["TORCHELASTIC_ERROR_FILE"], "");
        assert_eq!(variables["TORCHELASTIC_USE_AGENT_STORE"], "False");
    }
}
