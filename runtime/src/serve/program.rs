//! Runs one server, from its command line to its exit code.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jobs::policies::PolicyType;
use jobs::rank_env::{FINAL, FRONT_VARIABLE, RankEnv};
use jobs::refusal::Refusal;
use jobs::say::{FORMAT_VARIABLE, QUIET_VARIABLE};
use jobs::serve_args::{InterfaceSource, PolicyChoice, ServeArgs, ServeSetup};
use serde_json::json;
use tch::Device;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::clock::now;
use crate::console::{self, Level, Style};
use crate::device::{self, DeviceRequest, gpu};
use crate::env::{self, EnvPlacement, EnvSpec};
use crate::policy::{self, PolicyThread};
use crate::serve::batcher::BatchLimits;
use crate::serve::card::ServedSpec;
use crate::serve::dispatcher;
use crate::serve::listener::{self, FrontLink};
use crate::serve::server::{POLICY_IS_GONE, ServerState};

/// Default number of rows in a batch on a GPU.
const GPU_BATCH: usize = 32;

/// Maximum number of requests in the queue; each connection has at most one.
const MOST_QUEUED: usize = 4096;

/// Interval of the log lines about the work done; idle intervals have none.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Time limit for sending the answers after the last inference.
const FLUSH: Duration = Duration::from_secs(5);

/// Time limit for a simulator that says nothing while it is made.
const STALL_TIMEOUT: Duration = Duration::from_secs(600);

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
    run(args).unwrap_or_else(|err| ended_by(&err.to_string(), ExitCode::from(FINAL)))
}

/// Says why the program has failed.
fn ended_by(reason: &str, code: ExitCode) -> ExitCode {
    console::error(reason);
    console::write_error_file(reason);
    code
}

fn run(args: ServeArgs) -> Result<ExitCode, Refusal> {
    let env = RankEnv::read(|name| std::env::var(name).ok())?;
    let ServeSetup { policy, interface } = ServeSetup::read(&args)?;
    if args.print_interface {
        return print_interface(interface, &env);
    }
    // `ServeSetup::read` refuses a command line without either.
    let choice = policy.ok_or_else(|| Refusal::new("--policy is missing"))?;
    policy::check(&choice.policy_type, &choice.config).map_err(Refusal::new)?;
    let address = SocketAddr::new(args.host, args.port_of(env.local_rank.unwrap_or(0))?);
    let log = ServerLog(match env.world_size {
        1 => "serve:".to_owned(),
        world_size => format!("serve [rank {}/{world_size}]:", env.rank),
    });
    let device = gpu::decide(&DeviceRequest {
        local_rank: env.local_rank,
        local_world_size: env.local_world_size,
        policy_device_id: args.policy_device_id,
        policy_device: args.policy_device.clone(),
        config_device: device::of_config(&choice.config),
        placed: None,
    })?;
    log.say(&format!("device {}", device.reason));
    device.warnings.iter().for_each(|warning| log.warn(warning));
    if args.api_token.is_none() && !args.host.is_loopback() {
        let ends = match args.ignore_kill {
            true => "",
            false => ", and stop it with `kill` (--ignore-kill refuses that)",
        };
        log.warn(&format!(
            "no token is required (RRUN_API_TOKEN): anyone who can reach {address} can use the \
             policy{ends}"
        ));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Refusal::new)?;
    let program = ServeProgram {
        args,
        env,
        device: device.device,
        log,
    };
    runtime.block_on(program.serve(address, choice, interface))
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

/// Returns the interface that a source describes. The environment of a job is made with one copy,
/// and closed again.
fn described(
    source: Option<InterfaceSource>,
    rank: &RankEnv,
    device: Device,
) -> Result<Option<EnvSpec>, Refusal> {
    let job = match source {
        None => return Ok(None),
        Some(InterfaceSource::File(robot)) => return Ok(Some(EnvSpec::seen(robot))),
        Some(InterfaceSource::Environment(job)) => job,
    };
    let place = EnvPlacement {
        gpus: vec![gpu::of_machine(device)],
        rank: rank.rank,
        local_rank: rank.local_rank.unwrap_or(rank.rank),
        local_world_size: rank.local_world_size,
        stall_timeout: STALL_TIMEOUT,
        ..EnvPlacement::new(1)
    };
    let made = env::make(&job, jobs::seed::episode(0, &job, 0), &place);
    let made = made.map_err(|err| Refusal::at("environment of the clients", err))?;
    let mut spec = made.env.spec().clone();
    if let Some(instruction) = &job.language_instruction {
        spec.language.clone_from(instruction);
    }
    Ok(Some(spec))
}

/// A server that is about to start.
struct ServeProgram {
    args: ServeArgs,
    env: RankEnv,
    device: Device,
    log: ServerLog,
}

impl ServeProgram {
    async fn serve(
        self,
        address: SocketAddr,
        choice: PolicyChoice,
        interface: Option<InterfaceSource>,
    ) -> Result<ExitCode, Refusal> {
        // Bind first: a port that is in use is found before gigabytes are read. Clients that
        // connect now wait.
        let unusable = |err| Refusal::at(format_args!("cannot listen on {address}"), err);
        let listener = TcpListener::bind(address).await.map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let interface = described(interface, &self.env, self.device)?;
        let limits = self.batch_limits(&choice);
        let policy = PolicyThread::start(self.device);
        let policy = policy.map_err(|err| Refusal::at("no thread for the policy", err))?;
        let card = self.make(&policy, choice, interface.as_ref())?;
        let (to_dispatcher, inbox) = mpsc::unbounded_channel();
        let files = open_files().saturating_sub(OTHER_FILES).max(1);
        let most = self.args.max_connections.min(files);
        let front = self.args.front_port;
        let Self { args, env, log, .. } = self;
        let server = ServerState::new(card, args, most, to_dispatcher);
        end_on_signals(&server).map_err(Refusal::new)?;
        let facts = server.card.facts.reported.iter();
        let facts: Vec<_> = facts
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        let colon = if facts.is_empty() { "" } else { ": " };
        log.say(&format!(
            "{}{colon}{}",
            server.card.facts.policy,
            facts.join(", ")
        ));
        let ready = format!(
            "ready on {address}, up to {} rows per batch, {most} connections",
            limits.max_rows
        );
        // `--quiet` does not suppress it.
        console::say(Level::Result, &log.0, &ready, json!({}));
        let front = match front {
            Some(_) => Some(join_front(&env).await?),
            None => None,
        };
        let listener = tokio::spawn(listener::run(listener, front, Arc::clone(&server)));
        let reports = tokio::spawn(report(Arc::clone(&server), log.clone()));
        let mut stop = server.stop.subscribe();
        let own = log.clone();
        let say = move |text: &str| own.warn(text);
        let dispatcher = dispatcher::run(Arc::clone(&server), limits, policy, inbox, say);
        let dispatcher = tokio::spawn(dispatcher);
        let reason = stop.wait_for(Option::is_some).await;
        let reason = reason.ok().and_then(|reason| *reason).unwrap_or_default();
        log.say(&format!(
            "stopping: {reason}; pending requests are answered, new ones are refused"
        ));
        // A panic was printed when it happened.
        let loss = dispatcher.await.ok().flatten();
        listener.await.ok();
        reports.abort();
        flush(&server).await;
        log.say(&format!("ended after {}", server.stats().summary().1));
        if reason == POLICY_IS_GONE {
            let reason = loss.as_deref().unwrap_or(POLICY_IS_GONE);
            return Ok(ended_by(reason, ExitCode::FAILURE));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Makes the policy, and describes it.
    fn make(
        &self,
        policy: &PolicyThread,
        choice: PolicyChoice,
        interface: Option<&EnvSpec>,
    ) -> Result<ServedSpec, Refusal> {
        let tell = |texts: Vec<String>| {
            texts.iter().for_each(|text| self.log.warn(text));
            true
        };
        let facts = policy.make(choice, interface, None, tell);
        let mut facts = facts.map_err(Refusal::new)?;
        facts.notes.iter().for_each(|note| self.log.warn(note));
        match (interface, facts.own_keys.take()) {
            (Some(env), _) => Ok(ServedSpec::of_interface(facts, env.interface.clone())),
            (None, Some(keys)) => Ok(ServedSpec::of_keys(facts, keys)),
            (None, None) => Err(Refusal::new("the policy has no keys of its own")),
        }
    }

    fn batch_limits(&self, choice: &PolicyChoice) -> BatchLimits {
        // A remote policy infers elsewhere, whatever the device is here.
        let policy = PolicyType::of(&choice.policy_type);
        let is_remote = policy.is_some_and(|policy| policy.row().is_remote);
        let usual = match self.device.is_cuda() || is_remote {
            true => GPU_BATCH,
            false => 1,
        };
        BatchLimits {
            max_rows: self.args.max_batch.unwrap_or(usual),
            max_wait: self.args.max_wait(),
            max_queue: MOST_QUEUED,
        }
    }
}

/// Joins the front port: clients get connections from now on.
async fn join_front(env: &RankEnv) -> Result<Arc<FrontLink>, Refusal> {
    let socket = std::env::var(FRONT_VARIABLE).map_err(|_| {
        Refusal::new("--front-port is opened by `rrun serve`, which has not started this rank")
    })?;
    let joined = FrontLink::join(&socket, env.local_rank.unwrap_or(0)).await;
    let place = "cannot reach the launcher for connections of --front-port";
    joined.map_err(|err| Refusal::at(place, err))
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
async fn report(server: Arc<ServerState>, log: ServerLog) {
    let mut before = 0;
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        let (requests, summary) = server.stats().summary();
        if requests > before {
            log.say(&summary);
        }
        before = requests;
    }
}

/// Raises the limit on file descriptors to its maximum, and returns it.
fn open_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    let raised = Rlimit {
        current: Some(most),
        maximum: limit.maximum,
    };
    // If this fails, the current limit applies.
    let _ = setrlimit(Resource::Nofile, raised);
    let files = getrlimit(Resource::Nofile).current;
    files.map_or(usize::MAX, |files| files.try_into().unwrap_or(usize::MAX))
}

/// Prints messages to stderr with the server's label.
#[derive(Clone, Debug)]
struct ServerLog(String);

impl ServerLog {
    fn say(&self, line: &str) {
        console::say(Level::Info, &self.0, line, json!({}));
    }

    fn warn(&self, line: &str) {
        console::say(
            Level::Warning,
            &self.0,
            &format!("warning: {line}"),
            json!({}),
        );
    }
}
