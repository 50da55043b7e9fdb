//! Runs one server, from its command line to its exit code.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jobs::exit::FINAL;
use jobs::policies::{PolicyType, Serving};
use jobs::rank_env::{FRONT_VARIABLE, RankEnv};
use jobs::refusal::Refusal;
use jobs::say::{FORMAT_VARIABLE, QUIET_VARIABLE};
use jobs::serve_args::{Arrays, InterfaceSource, PolicyChoice, ServeArgs, ServeSetup};
use serde_json::json;
use tch::Device;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::clock::now;
use crate::console::{self, Level, Style};
use crate::device::{self, Decision, DeviceRequest, gpu, resolve};
use crate::env::EnvSpec;
use crate::error_file;
use crate::policy::{self, PolicyThread};
use crate::serve::batcher::BatchLimits;
use crate::serve::card::ServedSpec;
use crate::serve::front::FrontLink;
use crate::serve::limits::RequestLimits;
use crate::serve::server::{POLICY_IS_GONE, ServerConfig, ServerState};
use crate::serve::{dispatcher, interface, listener};
use torchlib::cuda;
use wire::Dialect;

/// Default number of rows in a batch on a GPU.
const GPU_BATCH: usize = 32;

/// Maximum number of requests in the queue; each connection has at most one.
const MOST_QUEUED: usize = 4096;

/// Interval of the log lines about the work done; idle intervals have none.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Time limit for sending the answers after the last inference.
const FLUSH: Duration = Duration::from_secs(5);

/// File descriptors that a server needs besides its connections.
const OTHER_FILES: usize = 64;

/// The program `serve`: parses `words`, its arguments, and serves until it is told to stop.
pub fn main(words: &[OsString]) -> ExitCode {
    let args = match ServeArgs::parse_words(words) {
        Ok(args) => args,
        Err(err) => {
            // A closed stderr does not change the exit code.
            let _ = err.print();
            return ExitCode::from(u8::try_from(err.exit_code()).unwrap_or(2));
        }
    };
    let told = |name: &str, wanted: &str| std::env::var(name).is_ok_and(|value| value == wanted);
    Style {
        json: told(FORMAT_VARIABLE, "json"),
        quiet: told(QUIET_VARIABLE, "1"),
    }
    .adopt();
    match run(&args) {
        Ok(code) => code,
        Err(err) => {
            let reason = err.to_string();
            console::error(&reason);
            error_file::write_error_file(&reason);
            ExitCode::from(FINAL)
        }
    }
}

fn run(args: &ServeArgs) -> Result<ExitCode, Refusal> {
    let env = RankEnv::read(|name| std::env::var(name).ok())?;
    let ServeSetup { policy, interface } = ServeSetup::read(args)?;
    if args.print_interface {
        return print_interface(interface, &env);
    }
    // `ServeSetup::read` refuses a command line without either.
    let choice = policy.ok_or_else(|| Refusal::new("--policy is missing"))?;
    policy::check(&choice.policy_type, &choice.config).map_err(Refusal::new)?;
    servable(&choice, interface.is_some())?;
    let local_rank = env.local_rank.unwrap_or(0);
    let address = SocketAddr::new(args.host, args.port_of(local_rank)?);
    let reporter = Reporter {
        label: if env.world_size > 1 {
            format!("serve [rank {}/{}]:", env.rank, env.world_size)
        } else {
            "serve:".to_owned()
        },
    };
    let device = decide(args, &env, &choice)?;
    reporter.say(&format!("device {}", device.reason));
    device
        .warnings
        .iter()
        .for_each(|warning| reporter.say(&format!("warning: {warning}")));
    if args.api_token.is_none() && !args.host.is_loopback() {
        let ends = if args.ignore_kill {
            ""
        } else {
            ", and stop it with `kill` (--ignore-kill refuses that)"
        };
        reporter.say(&format!(
            "warning: no token is required (RRUN_API_TOKEN): anyone who can reach \
                {address} can use the policy{ends}"
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Refusal::new)?;
    let target = ServeTarget {
        choice,
        interface,
        env,
        device: device.device,
    };
    runtime.block_on(serve(args, address, target, &reporter))
}

/// What is served, and where it runs.
struct ServeTarget {
    choice: PolicyChoice,
    interface: Option<InterfaceSource>,
    env: RankEnv,
    device: Device,
}

/// Checks that a policy can answer clients, of an interface or else of its own keys.
fn servable(choice: &PolicyChoice, has_interface: bool) -> Result<(), Refusal> {
    let policy = &choice.policy_type;
    let reason = match PolicyType::of(policy).map(|policy| policy.row().serving) {
        Some(Serving::Refused(reason)) => reason,
        Some(Serving::Interface) if !has_interface => "it has to know an interface",
        _ => return Ok(()),
    };
    Err(Refusal::new(format!(
        "`policy_type` is `{policy}`, which cannot be served: {reason}"
    )))
}

/// Prints the interface of an environment, as `--interface` reads it.
fn print_interface(source: Option<InterfaceSource>, env: &RankEnv) -> Result<ExitCode, Refusal> {
    if let Some(spec) = described(source, env, Device::Cpu)? {
        let text = serde_json::to_string_pretty(&spec.interface.to_json());
        let text = text.map_err(Refusal::new)?;
        writeln!(std::io::stdout(), "{text}").map_err(Refusal::new)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the interface that a source describes.
fn described(
    source: Option<InterfaceSource>,
    env: &RankEnv,
    device: Device,
) -> Result<Option<EnvSpec>, Refusal> {
    match source {
        None => Ok(None),
        Some(InterfaceSource::File(robot)) => Ok(Some(EnvSpec::seen(robot))),
        Some(InterfaceSource::Environment(job)) => {
            let spec = interface::of_environment(&job, env, device);
            let refuse = |err| Refusal::at("environment of the clients", err);
            Ok(Some(spec.map_err(refuse)?))
        }
    }
}

fn decide(args: &ServeArgs, env: &RankEnv, choice: &PolicyChoice) -> Result<Decision, Refusal> {
    let visible = gpu::visible()?;
    let request = DeviceRequest {
        local_rank: env.local_rank,
        local_world_size: env.local_world_size,
        policy_device_id: args.policy_device_id,
        policy_device: args.policy_device.clone(),
        config_device: device::of_config(&choice.config),
        placed: None,
    };
    let decision = resolve(&request, &visible)?;
    if let (Ok(cuda), Device::Cuda(index)) = (cuda::load(), decision.device) {
        cuda.select(index).map_err(Refusal::new)?;
    }
    Ok(decision)
}

async fn serve(
    args: &ServeArgs,
    address: SocketAddr,
    target: ServeTarget,
    reporter: &Reporter,
) -> Result<ExitCode, Refusal> {
    // Bind first: a port that is in use is found before gigabytes are read. Clients that connect
    // now wait.
    let unusable = |err| Refusal::at(format_args!("cannot listen on {address}"), err);
    let listener = TcpListener::bind(address).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    let ServeTarget {
        choice,
        interface,
        env,
        device,
    } = target;
    let interface = described(interface, &env, device)?;
    let limits = batch_limits(args, device, &choice);
    let own = reporter.clone();
    let say = move |text: &str| own.say(&format!("warning: {text}"));
    let policy =
        PolicyThread::start(device).map_err(|err| Refusal::at("no thread for the policy", err))?;
    let tell = |texts: Vec<String>| {
        texts.iter().for_each(|text| say(text));
        true
    };
    let facts = policy.make(choice, interface.as_ref(), None, tell);
    let mut facts = facts.map_err(Refusal::new)?;
    facts.notes.iter().for_each(|note| say(note));
    let card = match (interface, facts.own_keys.take()) {
        (Some(env), _) => ServedSpec::of_interface(facts, &env),
        (None, Some(keys)) => ServedSpec::of_keys(facts, keys),
        (None, None) => return Err(Refusal::new("the policy has no keys of its own")),
    };
    let (to_dispatcher, inbox) = mpsc::unbounded_channel();
    let server = ServerState::new(card, server_config(args), to_dispatcher);
    end_on_signals(&server).map_err(Refusal::new)?;
    announce(&server, address, limits, reporter);
    let front = join_front(args, &env).await?;
    let listener = tokio::spawn(listener::run(listener, front, Arc::clone(&server)));
    let reports = tokio::spawn(report(Arc::clone(&server), reporter.clone()));
    let mut stop = server.stop.subscribe();
    let dispatcher = dispatcher::run(Arc::clone(&server), limits, policy, inbox, say);
    let dispatcher = tokio::spawn(dispatcher);
    let reason = stop
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|reason| *reason)
        .unwrap_or_default();
    reporter.say(&format!(
        "stopping: {reason}; pending requests are answered, new ones are refused"
    ));
    // A panic was printed when it happened.
    let loss = dispatcher.await.ok().flatten();
    listener.await.ok();
    reports.abort();
    flush(&server).await;
    let (_, summary) = server.stats.summary();
    reporter.say(&format!("ended after {summary}"));
    if reason == POLICY_IS_GONE {
        let reason = loss.as_deref().unwrap_or(POLICY_IS_GONE);
        console::error(reason);
        error_file::write_error_file(reason);
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Joins the front port, if there is one: clients get connections from now on.
async fn join_front(args: &ServeArgs, env: &RankEnv) -> Result<Option<FrontLink>, Refusal> {
    if args.front_port.is_none() {
        return Ok(None);
    }
    let socket = std::env::var(FRONT_VARIABLE).map_err(|_| {
        Refusal::new("--front-port is opened by `rrun serve`, which has not started this rank")
    })?;
    let local_rank = env.local_rank.unwrap_or(0);
    let joined = FrontLink::join(&socket, local_rank).await;
    joined.map(Some).map_err(|err| {
        Refusal::at(
            "cannot reach the launcher for connections of --front-port",
            err,
        )
    })
}

fn batch_limits(args: &ServeArgs, device: Device, choice: &PolicyChoice) -> BatchLimits {
    // A remote policy infers elsewhere, whatever the device is here.
    let policy = PolicyType::of(&choice.policy_type);
    let is_large = device.is_cuda() || policy.is_some_and(|policy| policy.row().is_remote);
    BatchLimits {
        max_rows: args
            .max_batch
            .unwrap_or(if is_large { GPU_BATCH } else { 1 }),
        max_wait: args.max_wait(),
        max_queue: MOST_QUEUED,
    }
}

fn server_config(args: &ServeArgs) -> ServerConfig {
    ServerConfig {
        token: args.api_token.clone().filter(|token| !token.is_empty()),
        ignores_kill: args.ignore_kill,
        arrays: match args.arrays {
            Arrays::Kind => Dialect::Kind,
            Arrays::Npy => Dialect::Npy,
        },
        protocol: args.protocol,
        most_bytes: args.max_message << 20,
        unauthenticated_bytes: args.max_unauthenticated.min(args.max_message) << 20,
        memory_bytes: args.memory() << 20,
        limits: RequestLimits {
            max_rows: args.max_rows,
            max_prompt_bytes: args.max_prompt,
            max_picture_edge: args.max_picture,
        },
        chunk_size: args.chunk_size,
        most_connections: args
            .max_connections
            .min(open_files().saturating_sub(OTHER_FILES).max(1)),
    }
}

/// Prints what is served, and where.
fn announce(server: &ServerState, address: SocketAddr, limits: BatchLimits, reporter: &Reporter) {
    let facts: Vec<String> = server
        .card
        .facts
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    match &facts[..] {
        [] => reporter.say(server.card.policy),
        facts => reporter.say(&format!("{}: {}", server.card.policy, facts.join(", "))),
    }
    reporter.result(&format!(
        "ready on {address}, up to {} rows per batch, {} connections",
        limits.max_rows,
        server.connections().most()
    ));
}

/// Stops the server on SIGINT, SIGTERM and SIGHUP; a second signal ends the process at once.
fn end_on_signals(server: &Arc<ServerState>) -> std::io::Result<()> {
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        let (mut signals, server) = (signal(kind)?, Arc::clone(server));
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if server.is_ending() {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the user asked twice; nothing is written to files"
                    )]
                    std::process::exit(130);
                }
                server.end("stopped by a signal");
            }
        });
    }
    Ok(())
}

/// Waits until all answers have been sent to their clients.
async fn flush(server: &ServerState) {
    let until = now() + FLUSH;
    while server.connections().waiting() > 0 && now() < until {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Logs the work done at regular intervals.
async fn report(server: Arc<ServerState>, reporter: Reporter) {
    let mut before = 0;
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        let (requests, summary) = server.stats.summary();
        if requests > before {
            reporter.say(&summary);
        }
        before = requests;
    }
}

/// Raises the limit on file descriptors to its maximum, and returns it.
fn open_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    // If this fails, the current limit applies.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(most),
            maximum: limit.maximum,
        },
    );
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |files| {
            usize::try_from(files).unwrap_or(usize::MAX)
        })
}

/// Prints messages to stderr with the server's label.
#[derive(Clone, Debug)]
struct Reporter {
    label: String,
}

impl Reporter {
    /// Prints a result, which `--quiet` does not suppress.
    fn result(&self, line: &str) {
        console::say(Level::Result, &self.label, line, json!({}));
    }

    fn say(&self, line: &str) {
        let level = if line.starts_with("warning: ") {
            Level::Warning
        } else {
            Level::Info
        };
        console::say(level, &self.label, line, json!({}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_what_the_table_says() {
        for policy in PolicyType::ALL.iter().copied() {
            let choice = PolicyChoice {
                policy_type: policy.name().to_owned(),
                config: serde_json::Map::new(),
            };
            let [alone, with_interface] =
                [false, true].map(|has_interface| servable(&choice, has_interface).is_ok());
            let serving = policy.row().serving;
            assert_eq!(alone, serving == Serving::OwnKeys, "{policy:?}");
            assert_eq!(
                with_interface,
                !matches!(serving, Serving::Refused(_)),
                "{policy:?}"
            );
        }
    }
}
