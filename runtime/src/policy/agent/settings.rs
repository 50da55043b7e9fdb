//! Reads the `policy_config_dict` of an `openai_agent`.

use std::sync::Arc;

use serde_json::{Map, Value};
use ureq::tls::Certificate;

use crate::policy::remote::{Token, read_certificates};
use crate::policy::{PolicyError, argument};
use jobs::policies::{self, Agent};

/// Default maximum length of an answer, as in EmbodiedBench: `max_completion_tokens`.
const MAX_TOKENS: usize = 2048;

/// Maximum size of a prompt in bytes, more than any model reads.
const LONGEST_ROLE: u64 = 1 << 20;

/// The settings of a job's planner, and what they name.
#[derive(Clone, Debug)]
pub(crate) struct AgentSettings {
    /// The settings themselves.
    pub(in crate::policy) job: Agent,
    /// The URL of the endpoint: `http://host:port/v1/chat/completions`.
    pub(super) url: String,
    /// The key in the variable that the job names.
    pub(super) key: Option<Token>,
    /// Root certificates for a server with HTTPS; if not given, those that browsers trust.
    pub(super) certificates: Option<Arc<Vec<Certificate<'static>>>>,
    /// Role of the model, replacing the built-in text.
    pub(super) role: Option<String>,
    /// Name and value of the length limit: `max_tokens`, or `max_completion_tokens` for servers
    /// that require it.
    pub(super) max_tokens: (&'static str, usize),
}

impl AgentSettings {
    /// Reads the fields of a job.
    pub(crate) fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        if config.contains_key("api_key") {
            let wanted = "but plan and journal would show it: use `api_key_env`, the name of a \
                variable that contains it";
            return Err(argument("api_key", "a key", wanted));
        }
        let job: Agent = policies::read(config)?;
        let role = job.system_prompt_file.as_deref().map(|path| {
            let text = jobs::files::read_text(path, LONGEST_ROLE);
            text.map_err(|err| PolicyError::file(path, err))
        });
        let certificates = job.ca_file.as_deref().map(read_certificates).transpose()?;
        let certificates = certificates.map(|read| {
            let known = read
                .iter()
                .map(|read| Certificate::from_der(read).to_owned());
            Arc::new(known.collect())
        });
        Ok(Self {
            url: completions(&job.model_url)?,
            key: job.api_key_env.as_deref().map(key).transpose()?,
            certificates,
            role: role.transpose()?,
            max_tokens: max_tokens(&job)?,
            job,
        })
    }
}

/// Returns the maximum length of an answer with the field name that the job uses: newer models of
/// OpenAI refuse `max_tokens`, and older servers do not know `max_completion_tokens`.
fn max_tokens(job: &Agent) -> Result<(&'static str, usize), PolicyError> {
    let [old, new] = [job.max_tokens, job.max_completion_tokens].map(Option::unwrap_or_default);
    match (old, new) {
        (0, 0) => Ok(("max_tokens", MAX_TOKENS)),
        (old, 0) => Ok(("max_tokens", old)),
        (0, new) => Ok(("max_completion_tokens", new)),
        (_, new) => {
            let wanted = "but max_tokens is given, too";
            Err(argument("max_completion_tokens", &new.to_string(), wanted))
        }
    }
}

fn key(name: &str) -> Result<Token, PolicyError> {
    let value = std::env::var(name).unwrap_or_default();
    let value = value.trim();
    let is_sendable = |letter: char| letter.is_ascii() && !letter.is_control();
    let wanted = if value.is_empty() {
        "but there is no such variable, or it is empty"
    } else if !value.chars().all(is_sendable) {
        "but the variable has characters that no HTTP header may have"
    } else {
        return Ok(Token(value.to_owned()));
    };
    Err(argument("api_key_env", name, wanted))
}

/// Returns the URL of chat completions below the given base URL, built like OpenAI's own client
/// does.
fn completions(url: &str) -> Result<String, PolicyError> {
    let given = url.trim().trim_end_matches('/');
    let (scheme, rest) = given.split_once("://").unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (found, wanted) = if host.contains('@') {
        let wanted = "but plan and journal show it; use `api_key_env`";
        ("an address with a password", wanted)
    } else if !matches!(scheme, "http" | "https")
        || host.is_empty()
        || given.contains(char::is_whitespace)
    {
        let wanted =
            "expected an address with http:// or https://, for example http://localhost:8000/v1";
        (url, wanted)
    } else if given.ends_with("/chat/completions") {
        return Ok(given.to_owned());
    } else {
        return Ok(format!("{given}/chat/completions"));
    };
    Err(argument("model_url", found, wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::agent::tests::settings;

    #[test]
    fn an_address_and_a_model_are_enough() {
        let settings = settings(json!({}));
        assert_eq!(settings.url, "http://localhost:8000/v1/chat/completions");
        assert_eq!(settings.max_tokens, ("max_tokens", 2048));
        assert!(!settings.job.language_only && settings.key.is_none());
        let whole = completions("https://x/v1/chat/completions/").unwrap();
        assert_eq!(whole, "https://x/v1/chat/completions");
    }

    #[test]
    fn an_address_is_one_of_http_without_a_password() {
        for (url, reason) in [
            ("localhost:8000", "expected an address with http://"),
            ("http:///v1", "expected an address with http://"),
            ("ftp://a", "expected an address with http://"),
            ("https://me:s3cret@x/v1", "an address with a password"),
        ] {
            let text = completions(url).unwrap_err().to_string();
            assert!(text.contains(reason) && !text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_key_comes_from_its_variable_and_is_not_shown() {
        let settings = settings(json!({"api_key_env": "PATH"}));
        let path = std::env::var("PATH").unwrap();
        assert_eq!(settings.key, Some(Token(path.clone())));
        assert!(!format!("{settings:?}").contains(&path));
        let text = key("NO_SUCH_KEY").unwrap_err().to_string();
        assert!(text.contains("there is no such variable"), "{text}");
    }
}
