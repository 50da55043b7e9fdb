//! Address and timeouts of a policy server: the `remote_…` settings.

use std::fmt;
use std::time::Duration;

use crate::policy::PolicyError;
use crate::policy::argument;
use jobs::policies::SettingsReader;

/// How long a server may be unreachable unless `remote_retry_s` says otherwise; large models take
/// minutes to load.
const RETRY: Duration = Duration::from_secs(300);

/// Maximum size of a reason in bytes: it goes into the journal of each episode, and an answer may
/// be 256 MiB of text.
const LONGEST_REASON: usize = 4096;

/// The address and timeouts of a policy server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyServer {
    /// URL scheme: `tcp` or `ws`.
    pub scheme: &'static str,
    /// Host name or address.
    pub host: String,
    /// TCP port of the server.
    pub port: u16,
    /// Token that is sent with every request, or when the connection is made.
    pub token: Option<Token>,
    /// Timeout for each of three steps: connecting, sending a request, and receiving its answer.
    pub timeout: Duration,
    /// How long the server may be unreachable.
    pub retry: Duration,
}

/// A secret, which never appears in messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

/// The defaults, which differ between protocols.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// URL scheme: `tcp` or `ws`.
    pub scheme: &'static str,
    /// Default of `remote_port`.
    pub port: u16,
    /// Default of `remote_timeout_s`.
    pub timeout: Duration,
}

impl PolicyServer {
    /// Reads the settings.
    ///
    /// # Errors
    /// Returns [`PolicyError::Setting`] with the name of the field.
    pub(crate) fn read(
        fields: &mut SettingsReader,
        defaults: Defaults,
    ) -> Result<Self, PolicyError> {
        let given = fields
            .string("remote_host")?
            .unwrap_or_else(|| "localhost".to_owned());
        let host = given
            .strip_prefix(&format!("{}://", defaults.scheme))
            .unwrap_or(&given)
            .trim_end_matches('/');
        if host.is_empty() || host.contains(['/', ' ']) {
            let wanted = format!(
                "expected a name or an address, reached by {}://",
                defaults.scheme
            );
            return Err(argument("remote_host", &format!("{given:?}"), &wanted));
        }
        Ok(Self {
            scheme: defaults.scheme,
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: fields.port("remote_port")?.unwrap_or(defaults.port),
            token: token(fields)?,
            timeout: timeout(fields)?.unwrap_or(defaults.timeout),
            retry: fields.seconds("remote_retry_s")?.unwrap_or(RETRY),
        })
    }

    /// Returns an error about this server. A reason may be as long as an answer, so it is
    /// truncated.
    pub fn error(&self, mut reason: String) -> PolicyError {
        if reason.len() > LONGEST_REASON {
            reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
            reason.push('…');
        }
        PolicyError::Remote {
            server: self.to_string(),
            reason,
        }
    }
}

impl fmt::Display for PolicyServer {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let Self {
            scheme, host, port, ..
        } = self;
        if host.contains(':') {
            write!(formatter, "{scheme}://[{host}]:{port}")
        } else {
            write!(formatter, "{scheme}://{host}:{port}")
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Token")
    }
}

fn timeout(fields: &mut SettingsReader) -> Result<Option<Duration>, PolicyError> {
    let timeout = fields.seconds("remote_timeout_s")?;
    if timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(argument(
            "remote_timeout_s",
            "0",
            "expected more than 0 seconds",
        ));
    }
    Ok(timeout)
}

/// Reads `remote_api_token`, or the environment variable that `remote_api_token_env` names, so that
/// no file has to contain the token.
fn token(fields: &mut SettingsReader) -> Result<Option<Token>, PolicyError> {
    let (given, name) = (
        fields.string("remote_api_token")?,
        fields.string("remote_api_token_env")?,
    );
    let Some(name) = name else {
        return Ok(given.map(Token));
    };
    if given.is_some() {
        return Err(argument(
            "remote_api_token_env",
            &format!("{name:?}"),
            "but remote_api_token is also given",
        ));
    }
    let value = std::env::var(&name).ok().filter(|value| !value.is_empty());
    let unset = || {
        argument(
            "remote_api_token_env",
            &format!("{name:?}"),
            "but there is no such environment variable",
        )
    };
    value.map(|value| Some(Token(value))).ok_or_else(unset)
}

#[cfg(test)]
mod tests {
    use jobs::policies::PolicyType;
    use serde_json::{Value, json};

    use super::*;

    fn read(config: Value) -> Result<PolicyServer, String> {
        let Value::Object(config) = config else {
            panic!("an object is meant")
        };
        let defaults = Defaults {
            scheme: "ws",
            port: 8000,
            timeout: Duration::from_secs(7),
        };
        PolicyServer::read(
            &mut SettingsReader::new(PolicyType::Pi0Remote, &config),
            defaults,
        )
        .map_err(|err| err.to_string())
    }

    #[test]
    fn a_reason_as_long_as_an_answer_is_cut() {
        let server = read(json!({})).unwrap();
        let text = server.error("é".repeat(1 << 20)).to_string();
        assert!(
            text.ends_with("éé…") && text.len() < 5000,
            "{} bytes",
            text.len()
        );
    }

    #[test]
    fn a_server_is_where_the_settings_say() {
        let server = read(json!({})).unwrap();
        assert_eq!(
            (server.to_string().as_str(), server.timeout.as_secs()),
            ("ws://localhost:8000", 7)
        );
        let server =
            read(json!({"remote_host": "ws://gpu7/", "remote_port": 9, "remote_retry_s": 0.5}))
                .unwrap();
        assert_eq!(
            (server.to_string().as_str(), server.retry),
            ("ws://gpu7:9", Duration::from_millis(500))
        );
        assert_eq!(
            read(json!({"remote_host": "::1"})).unwrap().to_string(),
            "ws://[::1]:8000"
        );
    }

    #[test]
    fn what_cannot_be_reached_is_refused() {
        assert!(
            read(json!({"remote_host": "wss://gpu7"}))
                .unwrap_err()
                .contains("reached by ws://")
        );
        assert!(
            read(json!({"remote_host": ""}))
                .unwrap_err()
                .contains("`policy_config_dict.remote_host` is \"\"")
        );
        assert!(
            read(json!({"remote_port": 70000}))
                .unwrap_err()
                .contains("is 70000, expected a port from 1 to 65535")
        );
        assert!(
            read(json!({"remote_timeout_s": 0}))
                .unwrap_err()
                .contains("is 0, expected more than 0 seconds")
        );
        assert!(
            read(json!({"remote_timeout_s": -1}))
                .unwrap_err()
                .contains("is -1, expected a number of seconds")
        );
    }

    #[test]
    fn a_token_is_not_shown_and_may_stand_in_the_environment() {
        assert!(
            !format!("{:?}", read(json!({"remote_api_token": "s3cret"})).unwrap())
                .contains("s3cret")
        );
        let path = read(json!({"remote_api_token_env": "PATH"})).unwrap().token;
        assert_eq!(path.map(|token| token.0), std::env::var("PATH").ok());
        assert!(
            read(json!({"remote_api_token_env": "RRUN_NO_SUCH"}))
                .unwrap_err()
                .contains("no such environment")
        );
    }
}
