//! Creates policies from `policy_config_dict`, whose settings `jobs::policies` lists.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jobs::policies::{
    self, Exported, Gr00tRemote, OneAction, Pi0, PolicyType, Replay, Torchscript, VlaEval,
    Xpolicylab,
};
use jobs::refusal::Refusal;
use serde_json::{Map, Value};

use crate::env::EnvSpec;
use crate::policy::agent::{AgentSettings, OpenaiAgent};
use crate::policy::exported::{PackagedPolicy, script};
use crate::policy::gr00t::{self, Gr00tPolicy};
use crate::policy::lerobot::LerobotSettings;
use crate::policy::python::{PythonPolicy, PythonPolicySettings};
use crate::policy::remote::{Lifeline, PolicyServer, RemotePolicy};
use crate::policy::{
    Checkpoints, ClientKeys, Policy, PolicyError, PolicyFacts, RandomAction, ReplayAction,
    Scripted, ZeroAction, argument,
};
use crate::protocols::{ClientCodec as _, OnServer, Transport};

/// A policy, and what is constant about it.
pub struct Made {
    /// The created policy.
    pub policy: Box<dyn Policy>,
    /// Its facts.
    pub facts: Arc<PolicyFacts>,
}

/// What a policy is made with, beside its settings.
struct MakeContext<'a> {
    policy: PolicyType,
    /// The environment in which it acts; `None` means for the keys of its own checkpoint.
    env: Option<&'a EnvSpec>,
    /// The checkpoints that this process has loaded, and its device.
    models: &'a mut Checkpoints,
    /// Reports waiting for servers, and ends it.
    lifeline: &'a Lifeline,
}

impl<'a> MakeContext<'a> {
    /// Returns the environment of a policy that acts in one.
    fn env(&self) -> Result<&'a EnvSpec, Refusal> {
        let name = self.policy.name();
        let unknown = || Refusal::new(format!("policy `{name}` has to know an interface"));
        self.env.ok_or_else(unknown)
    }

    /// Starts a policy in Python.
    fn start(self, settings: PythonPolicySettings) -> Result<PythonPolicy, PolicyError> {
        PythonPolicy::start(settings, self.env()?, self.models.device, self.lifeline)
    }
}

/// A policy whose settings are read and checked.
struct ReadPolicy {
    /// How many actions of a chunk are executed; `None` means all of them, as for a policy that
    /// cuts its chunks itself.
    chunk_length: Option<usize>,
    /// The files and folders that it is made from, whose checksums go to the journal.
    files: Vec<PathBuf>,
    make: Box<MakePolicy>,
}

type MakePolicy = dyn FnOnce(MakeContext<'_>) -> Result<Box<dyn Policy>, PolicyError>;

impl ReadPolicy {
    fn new<P: Policy + 'static>(
        chunk_length: Option<usize>,
        files: Vec<PathBuf>,
        make: impl FnOnce(MakeContext<'_>) -> Result<P, PolicyError> + 'static,
    ) -> Self {
        Self {
            chunk_length,
            files,
            make: Box::new(|context| Ok(Box::new(make(context)?))),
        }
    }

    /// Reads the settings of a policy behind a server.
    fn remote<S: OnServer>(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: S = policies::read(config)?;
        let chunk_length = given.check()?;
        let scheme = match S::Codec::TRANSPORT {
            Transport::Zmtp => "tcp",
            Transport::Websocket(_) => "ws",
        };
        let (server, ca_file) = given.server();
        let server = PolicyServer::new(server, ca_file, (scheme, S::PORT, S::TIMEOUT))?;
        let note = server.without_effect(config, S::OF_THE_SERVER);
        Ok(Self::new(chunk_length, given.files(), move |on| {
            let client = given.client(&server, on.env()?)?;
            RemotePolicy::open(client, server, note.into_iter().collect(), on.lifeline)
        }))
    }
}

/// Checks names, types and ranges without an environment, before anything is started.
///
/// # Errors
/// Returns a [`PolicyError`] for an unknown type or a wrong field.
pub fn check(policy_type: &str, config: &Map<String, Value>) -> Result<(), PolicyError> {
    read(known(policy_type)?, config).map(drop)
}

/// Returns the files and folders from which a configuration makes a policy; empty if the
/// configuration is invalid.
pub fn files(policy_type: &str, config: &Map<String, Value>) -> Vec<PathBuf> {
    let policy = known(policy_type).and_then(|policy| read(policy, config));
    policy.map_or_else(|_| Vec::new(), |policy| policy.files)
}

/// Creates the policy of a job for an environment, or without one for the keys of its own
/// checkpoint, which only some policies can. `lifeline` reports waiting for servers, and ends
/// it.
///
/// # Errors
/// Fails like [`check`], and for an environment that lacks what the policy needs, for a checkpoint
/// that cannot be loaded, and for an unreachable server.
pub fn make(
    policy_type: &str,
    config: &Map<String, Value>,
    env: Option<&EnvSpec>,
    models: &mut Checkpoints,
    lifeline: &Lifeline,
) -> Result<Made, PolicyError> {
    let policy_type = known(policy_type)?;
    let read = read(policy_type, config)?;
    let policy = (read.make)(MakeContext {
        policy: policy_type,
        env,
        models,
        lifeline,
    })?;
    let mut facts = policy.facts();
    facts.policy = policy_type.name();
    facts.action_names = match (env, &facts.own_keys) {
        (Some(env), _) => env.action.names.clone(),
        (None, keys) => keys.iter().flat_map(ClientKeys::action_names).collect(),
    };
    facts.chunk_length = read.chunk_length.unwrap_or(facts.horizon);
    facts.is_remote = policy_type.row().is_remote;
    if facts.chunk_length > facts.horizon {
        let wanted = format!("expected at most the policy's {} actions", facts.horizon);
        return Err(argument(
            "action_chunk_length",
            &facts.chunk_length.to_string(),
            &wanted,
        ));
    }
    let facts = Arc::new(facts);
    Ok(Made { policy, facts })
}

/// Returns the policy of a name.
fn known(name: &str) -> Result<PolicyType, PolicyError> {
    PolicyType::of(name).ok_or_else(|| {
        let known = PolicyType::names().join(", ");
        PolicyError::Failed(format!(
            "unknown policy_type `{name}`: expected one of {known}"
        ))
    })
}

/// Reads and checks the settings of a policy, as far as that needs no environment.
fn read(policy: PolicyType, config: &Map<String, Value>) -> Result<ReadPolicy, PolicyError> {
    Ok(match policy {
        PolicyType::ZeroAction => {
            policies::read::<OneAction>(config)?;
            ReadPolicy::new(None, vec![], |on| Ok(ZeroAction::new(&on.env()?.action)))
        }
        PolicyType::RandomAction => {
            policies::read::<OneAction>(config)?;
            ReadPolicy::new(None, vec![], |on| Ok(RandomAction::new(&on.env()?.action)))
        }
        PolicyType::ReplayAction => {
            let given: Replay = policies::read(config)?;
            let files = vec![given.replay_file_path.clone()];
            ReadPolicy::new(None, files, move |on| ReplayAction::open(&given, on.env()?))
        }
        PolicyType::Scripted => {
            let given: policies::Scripted = policies::read(config)?;
            let horizon = given.action_horizon.into();
            let length = given.action_chunk_length.map(usize::from);
            policies::check_chunk_length(length, Some(horizon))?;
            let length = length.unwrap_or(Scripted::CHUNK_LENGTH.min(horizon));
            ReadPolicy::new(Some(length), vec![], move |on| {
                Scripted::new(on.env()?, horizon)
            })
        }
        PolicyType::Gr00t => {
            let given = gr00t::read(config)?;
            let length = given.wiring.action_chunk_length.map(usize::from);
            let checkpoint = std::iter::once(&given.model_path).chain(&given.vlm_path);
            let files = checkpoint.chain(given.wiring.files()).cloned().collect();
            ReadPolicy::new(length, files, |on| {
                Gr00tPolicy::new(given, on.env, on.models)
            })
        }
        PolicyType::Torchscript => {
            let given: Torchscript = policies::read(config)?;
            let files = existing(&given.model_path, given.tokenizer_path.as_deref())?;
            let length = given.action_chunk_length.map(usize::from);
            ReadPolicy::new(length, files, move |on| {
                script::open(&given, on.env()?, on.models)
            })
        }
        PolicyType::Exported => {
            let given: Exported = policies::read(config)?;
            let files = existing(&given.model_path, given.tokenizer_path.as_deref())?;
            let length = given.action_chunk_length.map(usize::from);
            ReadPolicy::new(length, files, move |on| {
                PackagedPolicy::open(&given, on.env()?, on.models)
            })
        }
        PolicyType::Python => {
            let settings = PythonPolicySettings::read(config)?;
            let files = settings.policy.file().map(Path::to_owned);
            let files = files.into_iter().collect();
            ReadPolicy::new(settings.chunk_length, files, |on| on.start(settings))
        }
        PolicyType::Lerobot => {
            let settings = LerobotSettings::read(config)?;
            let (length, files) = (settings.worker.chunk_length, settings.model_path.clone());
            ReadPolicy::new(length, vec![files], move |on| {
                let worker = settings.for_env(on.env()?)?;
                on.start(worker)
            })
        }
        PolicyType::Gr00tRemote => ReadPolicy::remote::<Gr00tRemote>(config)?,
        PolicyType::Pi0Remote => ReadPolicy::remote::<Pi0>(config)?,
        PolicyType::XpolicylabRemote => ReadPolicy::remote::<Xpolicylab>(config)?,
        PolicyType::VlaEvalRemote => ReadPolicy::remote::<VlaEval>(config)?,
        PolicyType::OpenaiAgent => {
            let settings = AgentSettings::read(config)?;
            let files = settings.job.system_prompt_file.iter().cloned().collect();
            ReadPolicy::new(None, files, |on| {
                OpenaiAgent::new(settings, on.env()?, on.lifeline)
            })
        }
    })
}

/// Returns the files of a packaged network, which must exist.
fn existing(model: &Path, tokenizer: Option<&Path>) -> Result<Vec<PathBuf>, PolicyError> {
    let paths: Vec<_> = std::iter::once(model).chain(tokenizer).collect();
    match paths.iter().find(|path| !path.is_file()) {
        Some(path) => Err(PolicyError::file(path, "there is no such file")),
        None => Ok(paths.into_iter().map(Path::to_owned).collect()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
