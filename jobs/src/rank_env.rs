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
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<RankEnv, Refusal> {
        RankEnv::read(|name| {
            vars.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_a_launcher_it_is_a_world_of_one() {
        let env = read(&[]).unwrap();
        let found = (env.rank, env.world_size, env.local_rank, env.master);
        assert_eq!(found, (0, 1, None, None));
        let even = read(&[
            ("RANK", "1"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("MASTER_ADDR", "::1"),
            ("MASTER_PORT", "29500"),
        ]);
        assert_eq!(even.unwrap().group_world_size, 2);
    }

    #[test]
    fn torchruns_variables_are_read() {
        let env = read(&[
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("GROUP_RANK", "1"),
            ("GROUP_WORLD_SIZE", "3"),
            ("MASTER_ADDR", "::1"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "x"),
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ])
        .unwrap();
        assert_eq!(env.rank, 5);
        assert_eq!(env.local_rank, Some(1));
        assert_eq!(env.local_world_size, 4);
        assert_eq!(env.group_rank, 1);
        assert_eq!(env.group_world_size, 3);
        let found = (env.restart_count, env.round, env.isolated, env.agent_store);
        assert_eq!(found, (2, 2, false, true));
        assert_eq!(env.master, Some(("::1".to_owned(), 29500)));
    }

    #[test]
    fn a_rank_that_is_restarted_alone_stays_in_its_round() {
        let env = read(&[
            ("TORCHELASTIC_RESTART_COUNT", "2"),
            ("RRUN_ROUND", "0"),
            ("RRUN_FAILURE_POLICY", "isolate"),
        ])
        .unwrap();
        assert_eq!((env.restart_count, env.round, env.isolated), (2, 0, true));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = |vars: &[_]| read(vars).unwrap_err().to_string();
        let found = text(&[("WORLD_SIZE", "two")]);
        assert_eq!(found, "WORLD_SIZE is `two`, expected a whole number");
        let shown = text(&[("WORLD_SIZE", "2")]);
        assert_eq!(shown, "RANK is not set, but WORLD_SIZE 2 requires it");
        let got = text(&[("WORLD_SIZE", "2"), ("RANK", "2")]);
        assert_eq!(got, "RANK is 2, expected a number below WORLD_SIZE 2");
        let wanted = "MASTER_ADDR is not set, but WORLD_SIZE 2 requires it";
        assert_eq!(text(&[("WORLD_SIZE", "2"), ("RANK", "1")]), wanted);
    }
}
