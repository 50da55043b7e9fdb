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

pub mod conf;
pub mod endpoint;
pub mod nodes;

use std::net::IpAddr;

use anyhow::{Context as _, bail, ensure};

use crate::cli::Cli;
use crate::node::Node;
use crate::plan::StorePlan;
use crate::plan::decide::meeting::conf::Conf;
use crate::plan::decide::meeting::endpoint::Endpoint;
use crate::plan::decide::meeting::nodes::Nodes;
use crate::plan::rendezvous::{Backend, RendezvousPlan};

/// MASTER_ADDR of the ranks of a single-node launch.
const LOOPBACK: &str = "127.0.0.1";

/// torch's port of the static backend (torch/distributed/run.py, torch 2.11).
const STATIC_PORT: i64 = 29500;

/// torch's port of the c10d backend
/// (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py, torch 2.11).
const C10D_PORT: u16 = 29400;

/// Backends that need a server of their own.
const ETCD: [&str; 2] = ["etcd", "etcd-v2"];

/// Run id, store and rendezvous of a launch.
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
    /// Returns what `cli` asks for. `pairs` are the settings of `--rdzv-conf`.
    ///
    /// # Errors
    /// Returns an error for an unknown backend, and for an invalid endpoint or setting.
    pub fn new(
        cli: &Cli,
        nodes: Nodes,
        pairs: &[(String, String)],
        node: &Node,
    ) -> anyhow::Result<MeetingPlan> {
        if cli.standalone {
            conf::check_c10d(pairs)?;
            ensure!(
                nodes.min == 1,
                "--standalone is for one node, --nnodes is {}",
                cli.nnodes
            );
            return Ok(MeetingPlan {
                run_id: node.uuid.clone(),
                store: on_a_free_port(cli),
                rendezvous: None,
            });
        }
        let name = cli.rdzv_backend.as_str();
        let (store, rendezvous) = match Backend::of(name) {
            Some(Backend::Static) => fixed(cli, nodes, conf::check_static(pairs)?, node)?,
            Some(Backend::C10d) => c10d(cli, nodes, conf::check_c10d(pairs)?, node)?,
            None if ETCD.contains(&name) => bail!(
                "the rendezvous backend '{name}' is not available, `c10d` takes its place without a \
                 server"
            ),
            None => bail!(
                "The rendezvous backend '{name}' is not registered. Did you forget to call \
                 `register`?"
            ),
        };
        let is_alone = nodes.max == 1 && has_no_endpoint(cli) && cli.is_built_in();
        Ok(MeetingPlan {
            run_id: run_id(cli, is_alone, node),
            store,
            rendezvous,
        })
    }
}

/// Returns whether neither host nor port was given to the static backend.
fn has_no_endpoint(cli: &Cli) -> bool {
    cli.rdzv_backend == "static" && cli.rdzv_endpoint.is_empty() && cli.master_port.is_none()
}

/// Returns the run id: a random one for a built-in program on a single node, unless the user has
/// chosen one. A chosen id is kept, because it names the log folder.
fn run_id(cli: &Cli, is_alone: bool, node: &Node) -> String {
    if is_alone && cli.rdzv_id == "none" {
        node.uuid.clone()
    } else {
        cli.rdzv_id.clone()
    }
}

/// Plans the static backend. `--nnodes MIN:MAX` means MAX, as in torchrun.
fn fixed(
    cli: &Cli,
    nodes: Nodes,
    conf: Conf,
    node: &Node,
) -> anyhow::Result<(StorePlan, Option<RendezvousPlan>)> {
    let most = i64::try_from(nodes.max).unwrap_or(i64::MAX);
    ensure!(
        (0..most).contains(&cli.node_rank),
        "--node-rank is {}, expected {} with --nnodes {}",
        cli.node_rank,
        node_ranks(nodes.max),
        nodes.max
    );
    let master_addr = cli.master_addr.as_deref().unwrap_or(LOOPBACK);
    let is_free_to_move = nodes.max == 1 && has_no_endpoint(cli);
    if is_free_to_move && cli.master_addr.is_none() && cli.is_built_in() {
        return Ok((on_a_free_port(cli), None));
    }
    let text = match cli.rdzv_endpoint.as_str() {
        "" => format!("{master_addr}:{}", cli.master_port.unwrap_or(STATIC_PORT)),
        endpoint => endpoint.to_owned(),
    };
    let endpoint = Endpoint::parse(&text)?;
    let port = endpoint.port.with_context(|| {
        format!("port is missing in endpoint: {text}. Try to specify --master-port")
    })?;
    let store = StorePlan {
        master_addr: endpoint.host,
        port: Some(port).filter(|&port| port != 0),
        may_move: is_free_to_move,
    };
    if nodes.max == 1 {
        return Ok((store, None));
    }
    check_port(port, &text)?;
    let nodes = Nodes {
        min: nodes.max,
        max: nodes.max,
    };
    let patient = Conf {
        join_timeout: conf.timeout,
        read_timeout: conf.timeout,
        ..conf
    };
    let rendezvous = rendezvous(
        cli,
        Backend::Static,
        (store.master_addr.clone(), port),
        nodes,
        patient,
        node,
    );
    Ok((store, Some(rendezvous)))
}

/// Returns the node ranks that there are.
fn node_ranks(nodes: usize) -> String {
    match nodes {
        0 | 1 => "0".to_owned(),
        nodes => format!("0 to {}", nodes - 1),
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

/// Plans the elastic backend. A single node with a loopback endpoint, or without one, meets no
/// other node.
fn c10d(
    cli: &Cli,
    nodes: Nodes,
    conf: Conf,
    node: &Node,
) -> anyhow::Result<(StorePlan, Option<RendezvousPlan>)> {
    if conf.has_file_store {
        return by_file(cli, nodes, conf, node);
    }
    let endpoint = match cli.rdzv_endpoint.as_str() {
        "" => Endpoint {
            host: "localhost".to_owned(),
            port: None,
        },
        given => Endpoint::parse(given)?,
    };
    if nodes.max == 1 && conf.is_host != Some(false) && is_loopback(&endpoint.host) {
        return Ok((on_a_free_port(cli), None));
    }
    let port = endpoint.port.unwrap_or(C10D_PORT);
    if nodes.min > 1 {
        check_port(port, &cli.rdzv_endpoint)?;
    }
    let store = StorePlan {
        master_addr: endpoint.host.clone(),
        port: None,
        may_move: false,
    };
    Ok((
        store,
        Some(rendezvous(
            cli,
            Backend::C10d,
            (endpoint.host, port),
            nodes,
            conf,
            node,
        )),
    ))
}

/// Plans `store_type=file`, for which the endpoint is a path. Without an endpoint, torchrun creates
/// a file that no other node knows.
fn by_file(
    cli: &Cli,
    nodes: Nodes,
    conf: Conf,
    node: &Node,
) -> anyhow::Result<(StorePlan, Option<RendezvousPlan>)> {
    match cli.rdzv_endpoint.as_str() {
        "" if nodes.min == 1 => Ok((on_a_free_port(cli), None)),
        "" => bail!(
            "store_type=file with several nodes needs a file that all of them see: \
             --rdzv-endpoint PATH"
        ),
        path => {
            let rendezvous = rendezvous(cli, Backend::C10d, (String::new(), 0), nodes, conf, node);
            Ok((
                on_a_free_port(cli),
                Some(RendezvousPlan {
                    file: Some(path.into()),
                    ..rendezvous
                }),
            ))
        }
    }
}

fn rendezvous(
    cli: &Cli,
    backend: Backend,
    (host, port): (String, u16),
    Nodes { min, max }: Nodes,
    conf: Conf,
    node: &Node,
) -> RendezvousPlan {
    RendezvousPlan {
        backend,
        host,
        port,
        file: None,
        min,
        max,
        node_id: node.uuid.clone(),
        node_rank: cli.node_rank,
        hosts: conf.is_host,
        local_addr: local_addr(cli).map(str::to_owned),
        nodes_return: false,
        timeout: conf.timeout,
        join_timeout: conf.join_timeout,
        last_call_timeout: conf.last_call_timeout,
        read_timeout: conf.read_timeout,
        keep_alive_interval: conf.keep_alive_interval,
        keep_alive_max_attempt: conf.keep_alive_max_attempt,
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn on_a_free_port(cli: &Cli) -> StorePlan {
    StorePlan {
        master_addr: local_addr(cli).unwrap_or(LOOPBACK).to_owned(),
        port: None,
        may_move: false,
    }
}

/// Returns `--local-addr` without brackets.
fn local_addr(cli: &Cli) -> Option<&str> {
    let address = cli
        .local_addr
        .as_deref()
        .filter(|address| !address.is_empty())?;
    Some(
        address
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(address),
    )
}
