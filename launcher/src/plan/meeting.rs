//! Where the ranks meet, and under which run id: the rendezvous options on one node.
//!
//! ```text
//! static, endpoint or port given       that host and port, the id as given
//! static, neither (torch 2.12's rule)  as --standalone
//! --standalone                         a free port, a random id
//! c10d                                 a free port, the id as given; the endpoint has nobody else to serve
//! ```
//! With a free port, MASTER_ADDR is `--local-addr` or the loopback address: on one node the host name that torchrun takes
//! may not resolve (pytorch/pytorch#150532) and leads nowhere else if it does.

use crate::cli::Cli;
use crate::node::Node;
use crate::plan::StorePlan;
use crate::plan::conf::{self, Conf};
use crate::plan::endpoint::Endpoint;
use crate::plan::error::PlanError;

/// MASTER_ADDR of the ranks of one node.
const LOOPBACK: &str = "127.0.0.1";

/// torch/distributed/run.py, torch 2.11: the port of the static backend.
const STATIC_PORT: i64 = 29500;

/// Backends that need a server of their own.
const ETCD: [&str; 2] = ["etcd", "etcd-v2"];

/// Run id and store of a launch on one node.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// `TORCHELASTIC_RUN_ID`.
    pub run_id: String,
    /// The store.
    pub store: StorePlan,
}

impl Meeting {
    /// What `cli` asks for. `pairs` are those of `--rdzv-conf`.
    ///
    /// # Errors
    /// An unknown backend, an endpoint or a setting that cannot be.
    pub fn new(cli: &Cli, pairs: &[(String, String)], node: &Node) -> Result<Meeting, PlanError> {
        if cli.standalone {
            conf::check_c10d(pairs)?;
            return Ok(Meeting { run_id: node.uuid.clone(), store: on_a_free_port(cli) });
        }
        let store = match cli.rdzv_backend.as_str() {
            "static" => fixed(cli, pairs)?,
            "c10d" => c10d(cli, conf::check_c10d(pairs)?)?,
            name if ETCD.contains(&name) => return Err(PlanError::Etcd(name.to_owned())),
            name => return Err(PlanError::Backend(name.to_owned())),
        };
        Ok(Meeting { run_id: run_id(cli, node), store })
    }
}

/// Whether torch 2.12's rule applies: the static backend, and no word about where.
pub fn is_standalone_by_default(cli: &Cli) -> bool {
    cli.rdzv_backend == "static" && cli.rdzv_endpoint.is_empty() && cli.master_port.is_none()
}

/// An id that the user has chosen is kept where torch 2.12 would replace it: it names the log folder.
fn run_id(cli: &Cli, node: &Node) -> String {
    if is_standalone_by_default(cli) && cli.rdzv_id == "none" { node.uuid.clone() } else { cli.rdzv_id.clone() }
}

fn fixed(cli: &Cli, pairs: &[(String, String)]) -> Result<StorePlan, PlanError> {
    conf::check_static(pairs)?;
    if cli.node_rank != 0 {
        return Err(PlanError::NodeRank(cli.node_rank));
    }
    let master_addr = cli.master_addr.as_deref().unwrap_or(LOOPBACK);
    if is_standalone_by_default(cli) {
        let Some(given) = &cli.master_addr else { return Ok(on_a_free_port(cli)) };
        return Ok(StorePlan { master_addr: Endpoint::parse(&format!("{given}:{STATIC_PORT}"))?.host, port: None });
    }
    let text = match cli.rdzv_endpoint.as_str() {
        "" => format!("{master_addr}:{}", cli.master_port.unwrap_or(STATIC_PORT)),
        endpoint => endpoint.to_owned(),
    };
    let endpoint = Endpoint::parse(&text)?;
    let port = endpoint.port.ok_or(PlanError::MissingPort(text))?;
    Ok(StorePlan { master_addr: endpoint.host, port: Some(port).filter(|&port| port != 0) })
}

fn c10d(cli: &Cli, conf: Conf) -> Result<StorePlan, PlanError> {
    if !conf.has_file_store && !cli.rdzv_endpoint.is_empty() {
        Endpoint::parse(&cli.rdzv_endpoint)?;
    }
    Ok(on_a_free_port(cli))
}

fn on_a_free_port(cli: &Cli) -> StorePlan {
    let address = cli.local_addr.as_deref().filter(|address| !address.is_empty()).unwrap_or(LOOPBACK);
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    StorePlan { master_addr: bare.to_owned(), port: None }
}
