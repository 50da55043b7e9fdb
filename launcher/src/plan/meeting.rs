//! The rendezvous options: decides where the ranks meet, and under which run id.
//!
//! ```text
//! one node       static, endpoint or port given       that host and port, the id as given
//!                static, neither                      port 29500, or a free one if that is taken;
//!                                                     the id as given
//!                --standalone, eval, serve            a free port, a random id
//!                c10d at a loopback address           a free port, the id as given;
//!                                                     no other node can come there
//! several nodes  static                               a rendezvous at the endpoint, which is the
//!                                                     ranks' store too
//!                c10d                                 a rendezvous at the endpoint; each round has
//!                                                     a store of its own
//! ```
//! A single node with c10d and another endpoint, or a file, takes part in a rendezvous: it may be a
//! spare, or be replaced by one.
//!
//! Torchrun 2.11 fails if port 29500 is taken, and later versions never use it. Here, scripts with
//! a hard-coded `tcp://127.0.0.1:29500` work as in 2.11, and launches run side by side as in later
//! versions. Built-in programs read their port from MASTER_PORT, so no note is printed when their
//! port differs.
//!
//! With a free port, MASTER_ADDR is `--local-addr` or the loopback address. Torchrun uses the host
//! name, which on a single node may not resolve (pytorch/pytorch#150532) and has no advantage if it
//! does.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use jobs::host::is_loopback;

use crate::cli::int;
use crate::cli::{Cli, Environment};
use crate::cluster::Inferred;
use crate::plan::launch::Inputs;
use crate::plan::{Backend, RendezvousPlan, StorePlan};

/// MASTER_ADDR of the ranks of a single-node launch.
const LOOPBACK: &str = "127.0.0.1";

/// torch's port of the static backend (torch/distributed/run.py, torch 2.11).
const STATIC_PORT: i64 = 29500;

/// torch's port of the c10d backend
/// (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py, torch 2.11).
const C10D_PORT: u16 = 29400;

/// Where the ranks of a launch meet.
#[derive(Clone, Debug)]
pub struct MeetingPlan {
    /// The run id, `TORCHELASTIC_RUN_ID`.
    pub run_id: String,
    /// The store of a single-node launch.
    pub store: StorePlan,
    /// How several nodes meet.
    pub rendezvous: Option<RendezvousPlan>,
}

impl MeetingPlan {
    /// Returns what `cli` asks for, or what was found where it says nothing.
    ///
    /// # Errors
    /// Returns an error for an unknown backend, and for an invalid endpoint or setting.
    pub(super) fn new(inputs: Inputs<'_>, nodes: Nodes) -> anyhow::Result<MeetingPlan> {
        let cli = inputs.cli;
        let inputs = MeetingInputs {
            inputs,
            nodes,
            conf: Conf::parse(&cli.rdzv_conf)?,
        };
        let name = cli.rdzv_backend.as_str();
        let (store, rendezvous) = match Backend::of(name) {
            _ if cli.standalone => inputs.alone()?,
            Some(Backend::Static) => inputs.fixed()?,
            Some(Backend::C10d) => inputs.c10d()?,
            None if matches!(name, "etcd" | "etcd-v2") => bail!(
                "the rendezvous backend '{name}' is not available, `c10d` takes its place without a \
                 server"
            ),
            None => bail!(
                "The rendezvous backend '{name}' is not registered. Did you forget to call \
                 `register`?"
            ),
        };
        Ok(MeetingPlan {
            run_id: inputs.run_id(),
            store,
            rendezvous,
        })
    }
}

struct MeetingInputs<'a> {
    inputs: Inputs<'a>,
    nodes: Nodes,
    conf: Conf,
}

/// The store of a single-node launch, and how several nodes meet.
type Met = (StorePlan, Option<RendezvousPlan>);

impl MeetingInputs<'_> {
    /// Returns whether neither host nor port was given to the static backend of a single node.
    fn is_free(&self) -> bool {
        let cli = self.inputs.cli;
        let has_endpoint = !cli.rdzv_endpoint.is_empty() || cli.master_port.is_some();
        self.nodes.max == 1 && cli.rdzv_backend == "static" && !has_endpoint
    }

    /// Returns the run id: a random one with `--standalone`, and for a built-in program on a single
    /// node, unless the user has chosen one. A chosen id is kept, because it names the log folder.
    fn run_id(&self) -> String {
        let cli = self.inputs.cli;
        match &self.inputs.found.run_id {
            _ if cli.standalone => self.inputs.node.uuid.clone(),
            Some(inferred) if !cli.is_given("rdzv-id") => inferred.clone(),
            _ if self.is_free() && cli.is_built_in() && cli.rdzv_id == "none" => {
                self.inputs.node.uuid.clone()
            }
            _ => cli.rdzv_id.clone(),
        }
    }

    /// Plans `--standalone`.
    fn alone(&self) -> anyhow::Result<Met> {
        self.conf.check_c10d()?;
        ensure!(
            self.nodes.min == 1,
            "--standalone is for one node, --nnodes is {}",
            self.inputs.cli.nnodes
        );
        Ok((self.on_a_free_port(), None))
    }

    /// Plans the static backend. `--nnodes MIN:MAX` means MAX, as in torchrun.
    fn fixed(&self) -> anyhow::Result<Met> {
        let (cli, nodes) = (self.inputs.cli, self.nodes.max);
        self.conf.integer("timeout")?;
        ensure!(
            usize::try_from(self.node_rank()).is_ok_and(|rank| rank < nodes),
            "--node-rank is {}, expected at least 0 and less than --nnodes {nodes}",
            self.node_rank()
        );
        if self.is_free() && cli.master_addr.is_none() && cli.is_built_in() {
            return Ok((self.on_a_free_port(), None));
        }
        let text = match (&self.inputs.found.meeting, cli.rdzv_endpoint.as_str()) {
            (Some(meeting), _) => format!("{}:{}", meeting.addr, meeting.port),
            (None, "") => {
                let addr = cli.master_addr.as_deref().unwrap_or(LOOPBACK);
                format!("{addr}:{}", cli.master_port.unwrap_or(STATIC_PORT))
            }
            (None, endpoint) => endpoint.to_owned(),
        };
        let Endpoint { host, port } = Endpoint::parse(&text)?;
        let port = port.with_context(|| {
            format!("port is missing in endpoint: {text}. Try to specify --master-port")
        })?;
        let store_port = Some(port).filter(|&port| port != 0);
        let store = self.store(host.clone(), store_port, self.is_free());
        if nodes == 1 {
            return Ok((store, None));
        }
        check_port(port, &text)?;
        Ok((store, Some(self.rendezvous(Backend::Static, host, port)?)))
    }

    /// Plans the elastic backend. A single node with a loopback endpoint, or without one, meets no
    /// other node.
    fn c10d(&self) -> anyhow::Result<Met> {
        let (cli, nodes) = (self.inputs.cli, self.nodes);
        self.conf.check_c10d()?;
        let store = self.conf.text("store_type");
        if store.is_some_and(|store| store.eq_ignore_ascii_case("file")) {
            return self.by_file();
        }
        let endpoint = Endpoint::parse(match cli.rdzv_endpoint.as_str() {
            "" => "localhost",
            given => given,
        })?;
        let may_host = self.conf.is_host() != Some(false);
        if nodes.max == 1 && may_host && is_loopback(&endpoint.host) {
            return Ok((self.on_a_free_port(), None));
        }
        let port = endpoint.port.unwrap_or(C10D_PORT);
        if nodes.min > 1 {
            check_port(port, &cli.rdzv_endpoint)?;
        }
        let store = self.store(endpoint.host.clone(), None, false);
        let rendezvous = self.rendezvous(Backend::C10d, endpoint.host, port)?;
        Ok((store, Some(rendezvous)))
    }

    /// Plans `store_type=file`, for which the endpoint is a path. Without an endpoint, torchrun
    /// creates a file that no other node knows.
    fn by_file(&self) -> anyhow::Result<Met> {
        let store = self.on_a_free_port();
        let path = match self.inputs.cli.rdzv_endpoint.as_str() {
            "" if self.nodes.min == 1 => return Ok((store, None)),
            "" => bail!(
                "store_type=file with several nodes needs a file that all of them see: \
                 --rdzv-endpoint PATH"
            ),
            path => path,
        };
        let rendezvous = RendezvousPlan {
            file: Some(path.into()),
            ..self.rendezvous(Backend::C10d, String::new(), 0)?
        };
        Ok((store, Some(rendezvous)))
    }

    fn store(&self, master_addr: String, port: Option<u16>, may_move: bool) -> StorePlan {
        let is_shared =
            port.is_some() || !is_set(self.inputs.env, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
        StorePlan {
            master_addr,
            port,
            may_move,
            is_shared,
        }
    }

    fn on_a_free_port(&self) -> StorePlan {
        let addr = local_addr(self.inputs.cli).unwrap_or(LOOPBACK).to_owned();
        self.store(addr, None, false)
    }

    fn node_rank(&self) -> i64 {
        match &self.inputs.found.meeting {
            Some(meeting) => i64::try_from(meeting.node_rank).unwrap_or(i64::MAX),
            None => self.inputs.cli.node_rank,
        }
    }

    fn rendezvous(
        &self,
        backend: Backend,
        host: String,
        port: u16,
    ) -> anyhow::Result<RendezvousPlan> {
        let (conf, max) = (&self.conf, self.nodes.max);
        // torchrun's default of the static backend. The elastic one ignores the key.
        let patience = Duration::from_secs(900);
        let (min, timeout) = match backend.is_fixed() {
            true => (max, conf.seconds("timeout", patience)?),
            false => (self.nodes.min, patience),
        };
        let elastic = |key, default| match backend.is_fixed() {
            true => Ok(timeout),
            false => conf.seconds(key, Duration::from_secs(default)),
        };
        Ok(RendezvousPlan {
            backend,
            host,
            port,
            file: None,
            min,
            max,
            node_id: self.inputs.node.uuid.clone(),
            node_rank: self.node_rank(),
            hosts: conf.is_host(),
            local_addr: local_addr(self.inputs.cli).map(str::to_owned),
            nodes_return: self.inputs.found.nodes_return,
            is_identical: is_set(self.inputs.env, "TORCH_ELASTIC_WORKER_IDENTICAL"),
            timeout,
            join_timeout: elastic("join_timeout", 600)?,
            last_call_timeout: conf.seconds("last_call_timeout", Duration::from_secs(30))?,
            read_timeout: elastic("read_timeout", 60)?,
            keep_alive_interval: conf.seconds("keep_alive_interval", Duration::from_secs(5))?,
            keep_alive_max_attempt: conf.number("keep_alive_max_attempt")?.unwrap_or(3),
        })
    }
}

/// Refuses a free port, which other nodes cannot know.
fn check_port(port: u16, endpoint: &str) -> anyhow::Result<()> {
    ensure!(
        port != 0,
        "port 0 in endpoint {endpoint}: several nodes need a port that all of them know"
    );
    Ok(())
}

/// Returns whether a variable of torch is on.
fn is_set(env: &Environment, name: &str) -> bool {
    env.get(name).is_some_and(|value| value == "1")
}

/// Returns `--local-addr` without brackets.
fn local_addr(cli: &Cli) -> Option<&str> {
    let address = cli.local_addr.as_deref().filter(|it| !it.is_empty())?;
    let inner = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    Some(inner.unwrap_or(address))
}

/// The number of nodes that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Fewest nodes.
    pub min: usize,
    /// Most nodes.
    pub max: usize,
}

impl Nodes {
    /// Returns the launchers of a cluster, else what `--nnodes` says: `N` or `MIN:MAX`.
    ///
    /// # Errors
    /// Returns an error if it is not a valid range.
    pub fn new(cli: &Cli, found: &Inferred) -> anyhow::Result<Nodes> {
        if let Some(meeting) = &found.meeting {
            let (min, max) = (meeting.nnodes, meeting.nnodes);
            return Ok(Nodes { min, max });
        }
        let number = |part: &str| {
            int(part).with_context(|| format!("--nnodes: `{part}` is not a whole number"))
        };
        let given = &cli.nnodes;
        let (min, max) = match given.split(':').collect::<Vec<_>>()[..] {
            [count] => (number(count)?, number(count)?),
            [min, max] => (number(min)?, number(max)?),
            _ => bail!("nnodes={given} is not in \"MIN:MAX\" format"),
        };
        match (usize::try_from(min), usize::try_from(max)) {
            (Ok(least), Ok(most)) if least > 0 && least <= most => Ok(Nodes {
                min: least,
                max: most,
            }),
            _ => bail!(
                "min_nodes must be > 0 and <= max_nodes, got min_nodes={min}, max_nodes={max}"
            ),
        }
    }
}

/// A rendezvous endpoint: `host`, `host:port`, `[v6]:port`.
struct Endpoint {
    /// Name or address, without brackets.
    host: String,
    port: Option<u16>,
}

impl Endpoint {
    /// Parses an endpoint as torchrun does: the port follows the last colon, unless there are
    /// brackets.
    fn parse(text: &str) -> anyhow::Result<Endpoint> {
        let trimmed = text.trim();
        let bracketed = trimmed
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'));
        let (host, port) = match (bracketed, trimmed.rsplit_once(':')) {
            (Some((host, "")), _) => (host, None),
            (Some((host, rest)), _) => (host, Some(rest.strip_prefix(':').unwrap_or("no port"))),
            (None, Some((host, port))) => (host, Some(port)),
            (None, None) => (trimmed, None),
        };
        let number = |port: &str| {
            let is_number = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|_| is_number);
            number.with_context(|| {
                format!(
                    "The port number of the rendezvous endpoint '{text}' must be an integer \
                     between 0 and 65536."
                )
            })
        };
        let port = port.map(number).transpose()?;
        let is_in_names = |c: char| c.is_alphanumeric() || "_.:-".contains(c);
        ensure!(
            !host.is_empty() && host.chars().all(is_in_names),
            "The hostname of the rendezvous endpoint '{text}' must be a dot-separated list of \
             labels, an IPv4 address, or an IPv6 address."
        );
        let host = host.to_owned();
        Ok(Endpoint { host, port })
    }
}

/// The settings of `--rdzv-conf`: `key=value,key=value`. A backend checks the
/// types of the keys that it knows, although a single-node launch needs few of them.
struct Conf(BTreeMap<String, String>);

/// Keys that are options of their own; giving them here is an error in torchrun too.
const COLLISIONS: [&str; 6] = [
    "backend",
    "endpoint",
    "run_id",
    "min_nodes",
    "max_nodes",
    "local_addr",
];

/// Keys of the c10d backend that are timeouts in whole seconds, with their names in messages.
const TIMEOUTS: [(&str, &str); 5] = [
    ("join_timeout", "join"),
    ("last_call_timeout", "last call"),
    ("close_timeout", "close"),
    ("heartbeat_timeout", "heartbeat"),
    ("read_timeout", "read"),
];

const TRUTHS: [&str; 5] = ["1", "true", "t", "yes", "y"];

const UNTRUTHS: [&str; 5] = ["0", "false", "f", "no", "n"];

impl Conf {
    /// Splits `text` at commas, and each part at its first `=`. If a key is repeated, the last one
    /// counts.
    fn parse(text: &str) -> anyhow::Result<Conf> {
        let mut pairs = BTreeMap::new();
        for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (key, value) = (key.trim(), value.trim());
            ensure!(
                !key.is_empty(),
                "The rendezvous configuration string must be in format \
                 <key1>=<value1>,...,<keyN>=<valueN>."
            );
            ensure!(
                !value.is_empty(),
                "The rendezvous configuration option '{key}' must have a value specified."
            );
            ensure!(
                !COLLISIONS.contains(&key),
                "The rendezvous configuration option '{key}' cannot be set here, it has an option \
                 of its own."
            );
            pairs.insert(key.to_owned(), value.to_owned());
        }
        Ok(Conf(pairs))
    }

    /// Checks the types that the c10d backend knows.
    fn check_c10d(&self) -> anyhow::Result<()> {
        for (key, name) in TIMEOUTS {
            let seconds = self.integer(key)?.unwrap_or(1);
            ensure!(
                seconds > 0,
                "The {name} timeout ({seconds} s) must be positive."
            );
        }
        self.integer("keep_alive_interval")?;
        self.integer("keep_alive_max_attempt")?;
        let host = self.text("is_host").map(str::to_lowercase);
        let is_boolean = |text: &str| TRUTHS.contains(&text) || UNTRUTHS.contains(&text);
        ensure!(
            host.is_none_or(|host| is_boolean(&host)),
            "The rendezvous configuration option 'is_host' does not represent a valid boolean value."
        );
        let store = self.text("store_type").map(str::to_lowercase);
        ensure!(
            matches!(store.as_deref(), None | Some("tcp" | "file")),
            "Invalid store type given. Currently only supports file and tcp."
        );
        Ok(())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns `is_host`: whether this node hosts the store.
    fn is_host(&self) -> Option<bool> {
        let host = self.text("is_host")?.to_lowercase();
        Some(TRUTHS.contains(&host.as_str()))
    }

    fn integer(&self, key: &str) -> anyhow::Result<Option<i64>> {
        let read = |text| {
            int(text).with_context(|| {
                format!(
                    "The rendezvous configuration option '{key}' does not represent a valid \
                     integer value."
                )
            })
        };
        self.text(key).map(read).transpose()
    }

    /// Returns a number of at least 1, and of 32 bits, so that a deadline can be computed from it.
    fn number(&self, key: &str) -> anyhow::Result<Option<u32>> {
        let number = |value: i64| u32::try_from(value.max(1)).unwrap_or(u32::MAX);
        Ok(self.integer(key)?.map(number))
    }

    fn seconds(&self, key: &str, default: Duration) -> anyhow::Result<Duration> {
        let seconds = self.number(key)?;
        Ok(seconds.map_or(default, |seconds| Duration::from_secs(seconds.into())))
    }
}
