//! Reads the `policy_config_dict` of an `openai_agent`.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::PolicyError;
use crate::policy::agent::chat::ChatModel;
use crate::policy::agent::retry::RetryLimits;
use crate::policy::agent::server::{ApiKey, ServerTerms, read_authorities};
use crate::policy::agent::session::PlanningRules;
use crate::policy::argument;
use jobs::policies::{self, Agent};

/// Default maximum length of an answer, as in EmbodiedBench: `max_completion_tokens`.
const MAX_TOKENS: usize = 2048;

/// The settings of a job's planner.
#[derive(Clone, Debug)]
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
    pub(in crate::policy) role_file: Option<PathBuf>,
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
        let given: Agent = policies::read(config)?;
        let key = given.api_key_env.as_deref();
        let key = key.map(|name| key_of(name, variable(name))).transpose()?;
        let role_file = given.system_prompt_file.clone();
        let role = role_file.as_deref().map(read_role).transpose()?;
        let certificates = given.ca_file.as_deref().map(read_authorities);
        let limits = RetryLimits {
            max_retries: given.max_retries,
            wait: Duration::from_secs_f64(given.retry_wait_s),
        };
        Ok(Self {
            terms: ServerTerms {
                url: completions(&given.model_url)?,
                timeout: Duration::from_secs_f64(given.request_timeout_s),
                limits,
                certificates: certificates.transpose()?,
                max_concurrent_requests: given.max_concurrent_requests,
            },
            rules: PlanningRules {
                max_invalid_actions: given.max_invalid_actions,
                chat_history: given.chat_history,
                role,
                sees: !given.language_only,
            },
            key_variable: given.api_key_env.clone(),
            key,
            cameras: given.cameras.clone().map(|names| names.0),
            actions: given.actions.clone().map(|names| names.0),
            role_file,
            model: ChatModel {
                max_tokens: max_tokens(&given)?,
                name: given.model,
                temperature: given.temperature,
                extra: given.extra_body,
            },
        })
    }
}

/// Returns the maximum length of an answer with the field name that the job uses: newer models of
/// OpenAI refuse `max_tokens`, and older servers do not know `max_completion_tokens`.
fn max_tokens(given: &Agent) -> Result<(&'static str, usize), PolicyError> {
    let [old, new] = [given.max_tokens, given.max_completion_tokens].map(Option::unwrap_or_default);
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

fn key_of(name: &str, value: Option<String>) -> Result<ApiKey, PolicyError> {
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

/// Maximum size of a prompt in bytes, more than any model reads.
const LONGEST_ROLE: u64 = 1 << 20;

fn read_role(path: &std::path::Path) -> Result<String, PolicyError> {
    let refuse = |err: std::io::Error| PolicyError::file(path, err);
    jobs::files::read_text(path, LONGEST_ROLE).map_err(refuse)
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
