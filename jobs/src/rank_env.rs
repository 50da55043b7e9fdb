//! The environment of a rank: reads and checks the variables of `torchrun`.

use serde::Serialize;

use crate::launch::LAUNCH_VARIABLE;
use crate::refusal::Refusal;

/// The variables that a launcher sets for a rank. Without any of them, the world size is 1 and
/// there is no store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankEnv {
    /// `RANK`.
    pub rank: usize,
    /// `WORLD_SIZE`.
    pub world_size: usize,
    /// `LOCAL_RANK`; `None` if no launcher set it.
    pub local_rank: Option<usize>,
    /// `LOCAL_WORLD_SIZE`, otherwise `WORLD_SIZE`.
    pub local_world_size: usize,
    /// `GROUP_RANK`: number of the node.
    pub group_rank: usize,
    /// `GROUP_WORLD_SIZE`: number of nodes; otherwise that of nodes with as many ranks as this one.
    pub group_world_size: usize,
    /// `TORCHELASTIC_RUN_ID`.
    pub run_id: String,
    /// `TORCHELASTIC_RESTART_COUNT`.
    pub restart_count: u32,
    /// Number of the rendezvous of all ranks: `RRUN_ROUND`, or, if every restart restarts all
    /// ranks, the number of restarts.
    pub round: u32,
    /// Whether `RRUN_FAILURE_POLICY` is `isolate`: a rank that dies is restarted alone.
    pub isolated: bool,
    /// `MASTER_ADDR` and `MASTER_PORT`; always set if `world_size` is above 1.
    pub master: Option<(String, u16)>,
    /// `RRUN_GPUS_PER_NODE`: number of GPUs that `rrun` counted when it read the placement;
    /// torchrun does not set it.
    pub gpus_per_node: Option<usize>,
    /// `RRUN_LAUNCH_ID`: the launch of `rrun` that this rank belongs to, which holds the run
    /// folder.
    pub launch: Option<String>,
    /// Whether `TORCHELASTIC_USE_AGENT_STORE` is `True`: the launcher serves the store, otherwise
    /// rank 0 does.
    pub agent_store: bool,
}

/// The environment variable with the name of the socket by which ranks of `serve` get connections
/// of `--front-port`, in the abstract namespace.
pub const FRONT_VARIABLE: &str = "RRUN_FRONT_SOCKET";

/// Returns the name of that socket for a launch, from something that nobody can guess.
pub fn front_socket(secret: &str) -> String {
    format!("rrun-front-{secret}")
}

impl RankEnv {
    /// Reads the variables with `get`, such as `std::env::var`; an empty value counts as not set.
    ///
    /// # Errors
    /// Refuses the first variable that is wrong.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, Refusal> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let number = |name: &str| -> Result<Option<usize>, Refusal> {
            let parsed = |found: String| {
                let number = found.trim().parse();
                number.map_err(|_| not_a_number(name, &found))
            };
            get(name).map(parsed).transpose()
        };
        let world_size = number("WORLD_SIZE")?.unwrap_or(1).max(1);
        let local_world_size = number("LOCAL_WORLD_SIZE")?.unwrap_or(world_size).max(1);
        let rank = match number("RANK")? {
            Some(rank) => below("RANK", rank, "WORLD_SIZE", world_size)?,
            None if world_size == 1 => 0,
            None => return Err(missing("RANK", world_size)),
        };
        let local_rank = number("LOCAL_RANK")?;
        if let Some(found) = local_rank {
            below("LOCAL_RANK", found, "LOCAL_WORLD_SIZE", local_world_size)?;
        }
        let restart_count = number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0) as u32;
        Ok(Self {
            rank,
            world_size,
            local_rank,
            local_world_size,
            group_rank: number("GROUP_RANK")?.unwrap_or(0),
            group_world_size: number("GROUP_WORLD_SIZE")?
                .unwrap_or(world_size.div_ceil(local_world_size))
                .max(1),
            run_id: get("TORCHELASTIC_RUN_ID").unwrap_or_else(|| "none".to_owned()),
            restart_count,
            round: number("RRUN_ROUND")?.map_or(restart_count, |round| round as u32),
            isolated: get("RRUN_FAILURE_POLICY").as_deref() == Some("isolate"),
            master: master(&get, world_size)?,
            gpus_per_node: number("RRUN_GPUS_PER_NODE")?,
            launch: get(LAUNCH_VARIABLE),
            agent_store: get("TORCHELASTIC_USE_AGENT_STORE").as_deref() == Some("True"),
        })
    }
}

fn not_a_number(name: &str, found: &str) -> Refusal {
    Refusal::new(format_args!("{name} is `{found}`, expected a whole number"))
}

fn missing(name: &str, world_size: usize) -> Refusal {
    let reason = format_args!("{name} is not set, but WORLD_SIZE {world_size} requires it");
    Refusal::new(reason)
}

fn below(name: &str, found: usize, limit_name: &str, limit: usize) -> Result<usize, Refusal> {
    if found < limit {
        return Ok(found);
    }
    Err(Refusal::new(format_args!(
        "{name} is {found}, expected a number below {limit_name} {limit}"
    )))
}

fn master(
    get: &impl Fn(&str) -> Option<String>,
    world_size: usize,
) -> Result<Option<(String, u16)>, Refusal> {
    match (get("MASTER_ADDR"), get("MASTER_PORT")) {
        (Some(addr), Some(port)) => {
            let number = port.trim().parse();
            let number = number.map_err(|_| not_a_number("MASTER_PORT", &port))?;
            Ok(Some((addr, number)))
        }
        _ if world_size == 1 => Ok(None),
        (None, _) => Err(missing("MASTER_ADDR", world_size)),
        (_, None) => Err(missing("MASTER_PORT", world_size)),
    }
}

/// The exit code of a rank for a failure that a restart would not fix: invalid input, or a job that
/// has failed for good. A launcher that restarts ranks individually does not restart this one.
pub const FINAL: u8 = 3;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns what lines `NAME=VALUE` change in the environment of a rank without any.
    fn read(given: &str) -> String {
        let read = |given: &str| {
            RankEnv::read(|name| {
                let mut variables = given.lines().filter_map(|line| line.split_once('='));
                let found = variables.find(|(known, _)| *known == name);
                found.map(|(_, value)| value.to_owned())
            })
        };
        match read(given) {
            Ok(env) => rig::cases::changes(&json!(read("").unwrap()), &json!(env)),
            Err(refusal) => refusal.to_string(),
        }
    }

    #[test]
    fn torchruns_variables_and_ours_are_read_or_refused_by_name() {
        rig::cases::check("src/rank_env.txt", read);
        let alone = RankEnv::read(|_| None).unwrap();
        let found = (alone.rank, alone.world_size, alone.local_rank, alone.master);
        assert_eq!(found, (0, 1, None, None));
    }
}
