//! Reads the `policy_config_dict` of an `openai_agent`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::PolicyError;
use crate::policy::agent::chat::ChatModel;
use crate::policy::agent::retry::RetryLimits;
use crate::policy::agent::server::{ApiKey, Certificates, ServerTerms};
use crate::policy::agent::session::PlanningRules;
use crate::policy::argument;
use jobs::policies::{PolicyType, SettingsReader};

/// Default timeout in seconds: enough for a large model with a long answer on a busy server.
const TIMEOUT_S: f64 = 120.0;
/// Default number of retries: with waits of 1, 2, 4, 8 and 16 s a server may be unreachable for
/// half a minute.
const MAX_RETRIES: u64 = 5;
const RETRY_WAIT_S: f64 = 1.0;
/// Default number of simultaneous requests, which a server with one GPU batches well.
const MAX_CONCURRENT_REQUESTS: usize = 16;
/// Default number of invalid actions, as in EmbodiedBench: `_max_invalid_actions` of its ALFRED and
/// Habitat environments.
const MAX_INVALID_ACTIONS: u64 = 10;
/// Default maximum length of an answer, as in EmbodiedBench: `max_completion_tokens`.
const MAX_TOKENS: usize = 2048;

/// The settings of a job's planner.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AgentSettings {
    pub(super) terms: ServerTerms,
    pub(super) model: ChatModel,
    pub(super) rules: PlanningRules,
    /// Name of the environment variable with the API key.
    pub(super) key_variable: Option<String>,
    pub(super) key: Option<ApiKey>,
    /// Cameras whose pictures the model sees; all cameras if not given.
    pub(super) cameras: Option<Vec<String>>,
    /// Names of the discrete actions.
    pub(super) actions: Option<Vec<String>>,
    pub(super) role_file: Option<PathBuf>,
}

impl AgentSettings {
    /// Reads the fields of a job.
    pub(crate) fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        Self::read_with(config, |name| std::env::var(name).ok())
    }

    fn read_with(
        config: &Map<String, Value>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, PolicyError> {
        if config.contains_key("api_key") {
            let wanted = "but plan and journal would show it: use `api_key_env`, the name of a \
                variable that contains it";
            return Err(argument("api_key", "a key", wanted));
        }
        let mut fields = SettingsReader::new(PolicyType::OpenaiAgent, config);
        let url = fields.string("model_url")?;
        let url = url.ok_or_else(|| fields.missing("model_url"))?;
        let name = fields.string("model")?.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| fields.missing("model"))?;
        let key_variable = fields.string("api_key_env")?;
        let key = key_variable
            .as_deref()
            .map(|name| key(name, variable(name)))
            .transpose()?;
        let sees = !fields.flag("language_only")?.unwrap_or(false);
        let chat_history = fields.flag("chat_history")?.unwrap_or(false);
        let role_file = fields.path("system_prompt_file")?;
        let role = role_file.as_deref().map(read_role).transpose()?;
        let max_invalid_actions = fields.whole("max_invalid_actions")?;
        let terms = server_terms(&mut fields, &url)?;
        let model = chat_model(&mut fields, name)?;
        let (cameras, actions) = (fields.strings("cameras")?, fields.strings("actions")?);
        fields.finish()?;
        let rules = PlanningRules {
            max_invalid_actions: max_invalid_actions.unwrap_or(MAX_INVALID_ACTIONS),
            chat_history,
            role,
            sees,
        };
        Ok(Self {
            terms,
            model,
            rules,
            key_variable,
            key,
            cameras,
            actions,
            role_file,
        })
    }
}

/// Reads how the model server is asked.
fn server_terms(fields: &mut SettingsReader, url: &str) -> Result<ServerTerms, PolicyError> {
    let wait_s = fields.number("retry_wait_s")?.unwrap_or(RETRY_WAIT_S);
    let certificates = fields
        .path("ca_file")?
        .map(|path| Certificates::read(&path))
        .transpose()?;
    let timeout_s = fields.number("request_timeout_s")?.unwrap_or(TIMEOUT_S);
    let max_retries = fields.whole("max_retries")?.unwrap_or(MAX_RETRIES);
    let limits = RetryLimits {
        max_retries: u32::try_from(max_retries).unwrap_or(u32::MAX),
        wait: Duration::from_secs_f64(wait_s),
    };
    Ok(ServerTerms {
        url: completions(url)?,
        timeout: Duration::from_secs_f64(timeout_s),
        limits,
        certificates,
        max_concurrent_requests: fields
            .count("max_concurrent_requests")?
            .unwrap_or(MAX_CONCURRENT_REQUESTS),
    })
}

/// Reads what the model server is told about the model.
fn chat_model(fields: &mut SettingsReader, name: String) -> Result<ChatModel, PolicyError> {
    Ok(ChatModel {
        name,
        temperature: fields.number("temperature")?.unwrap_or(0.0),
        max_tokens: max_tokens(fields)?,
        extra: fields.map("extra_body")?.unwrap_or_default(),
    })
}

/// Returns the maximum length of an answer with the field name that the job uses: newer models of
/// OpenAI refuse `max_tokens`, and older servers do not know `max_completion_tokens`.
fn max_tokens(fields: &mut SettingsReader) -> Result<(&'static str, usize), PolicyError> {
    let old = fields.count("max_tokens")?.unwrap_or(0);
    let new = fields.count("max_completion_tokens")?.unwrap_or(0);
    match (old, new) {
        (0, 0) => Ok(("max_tokens", MAX_TOKENS)),
        (old, 0) => Ok(("max_tokens", old)),
        (0, new) => Ok(("max_completion_tokens", new)),
        (_, new) => Err(argument(
            "max_completion_tokens",
            &new.to_string(),
            "but max_tokens is given, too",
        )),
    }
}

fn key(name: &str, value: Option<String>) -> Result<ApiKey, PolicyError> {
    let value = value.filter(|value| !value.trim().is_empty());
    let value = value.ok_or_else(|| {
        argument(
            "api_key_env",
            name,
            "but there is no such variable, or it is empty",
        )
    })?;
    if value
        .trim()
        .chars()
        .any(|letter| letter.is_control() || !letter.is_ascii())
    {
        return Err(argument(
            "api_key_env",
            name,
            "but the variable has characters that no HTTP header may have",
        ));
    }
    Ok(ApiKey::new(value.trim().to_owned()))
}

fn read_role(path: &std::path::Path) -> Result<String, PolicyError> {
    let refuse = |err: std::io::Error| PolicyError::File {
        path: path.to_owned(),
        reason: err.to_string(),
    };
    std::fs::read_to_string(path).map_err(refuse)
}

/// Returns the URL of chat completions below the given base URL, built like OpenAI's own client
/// does.
fn completions(url: &str) -> Result<String, PolicyError> {
    let given = url.trim().trim_end_matches('/');
    let rest = given
        .strip_prefix("http://")
        .or_else(|| given.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    match host {
        Some(host) if host.contains('@') => Err(argument(
            "model_url",
            "an address with a password",
            "but plan and journal show it; use `api_key_env`",
        )),
        Some(host) if !host.is_empty() && !given.contains(char::is_whitespace) => {
            let is_whole = given.ends_with("/chat/completions");
            Ok(if is_whole {
                given.to_owned()
            } else {
                format!("{given}/chat/completions")
            })
        }
        _ => Err(argument(
            "model_url",
            url,
            "expected an address with http:// or https://, for example http://localhost:8000/v1",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(more: Value) -> Result<AgentSettings, PolicyError> {
        let mut config = json!({"model_url": "http://localhost:8000/v1", "model": "m"});
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let variable = |name: &str| (name == "MY_KEY").then(|| "sk-1 ".to_owned());
        AgentSettings::read_with(config.as_object().unwrap(), variable)
    }

    #[test]
    fn an_address_and_a_model_are_enough() {
        let settings = read(json!({})).unwrap();
        assert_eq!(
            settings.terms.url,
            "http://localhost:8000/v1/chat/completions"
        );
        assert_eq!(settings.model.max_tokens, ("max_tokens", 2048));
        assert!(settings.rules.sees && settings.key.is_none());
        let whole = read(json!({"model_url": "https://x/v1/chat/completions/"})).unwrap();
        assert_eq!(whole.terms.url, "https://x/v1/chat/completions");
    }

    #[test]
    fn a_key_comes_from_its_variable_and_is_not_shown() {
        let settings = read(json!({"api_key_env": "MY_KEY"})).unwrap();
        assert_eq!(settings.key, Some(ApiKey::new("sk-1".to_owned())));
        assert!(!format!("{settings:?}").contains("sk-1"));
    }
}
