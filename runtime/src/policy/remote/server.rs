//! Address and timeouts of a policy server: the `remote_…` settings.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jobs::policies::Server;
use rustls::ClientConfig;
use serde_json::{Map, Value};

use crate::policy::remote::tls;
use crate::policy::{PolicyError, RowError, argument};

/// Maximum size of a reason in bytes: it goes into the journal of each episode, and an answer may
/// be 256 MiB of text.
const LONGEST_REASON: usize = 4096;

/// Ports that URLs mean if they name none, without TLS and with TLS.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// The address and timeouts of a policy server.
#[derive(Clone)]
pub(crate) struct PolicyServer {
    /// URL scheme: `tcp`, `ws` or `wss`.
    pub(super) scheme: &'static str,
    /// Host name or address.
    pub(super) host: String,
    /// TCP port of the server.
    pub(super) port: u16,
    /// Path of the URL of a websocket, such as `/policy`; usually empty.
    pub(super) path: String,
    /// Whose certificates are trusted, if the connection is encrypted.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// Token that is sent with every request, or when the connection is made.
    pub(crate) token: Option<Token>,
    /// Timeout for each of three steps: connecting, sending a request, and receiving its answer.
    pub(super) timeout: Duration,
    /// How long the server may be unreachable.
    pub(super) retry: Duration,
    /// Looks up the addresses of a host; may take as long as it likes.
    pub(super) lookup: fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
}

/// A secret, which never appears in messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl PolicyServer {
    /// Returns the server that the settings name. What they leave open are the protocol's scheme
    /// (`tcp`, or `ws`, beside which `wss` is known), its port without TLS, and its timeout.
    ///
    /// # Errors
    /// Returns an error with the name of the field.
    pub(crate) fn new(
        given: &Server,
        ca_file: Option<&PathBuf>,
        (scheme, own_port, timeout): (&'static str, u16, Duration),
    ) -> Result<Self, PolicyError> {
        let host = &given.remote_host;
        let Some(address) = ServerAddress::parse(host, scheme) else {
            let known = if scheme == "ws" {
                "ws:// or wss"
            } else {
                scheme
            };
            let wanted = format!("expected a name or an address, reached by {known}://");
            return Err(argument("remote_host", &format!("{host:?}"), &wanted));
        };
        let tls = match (address.scheme, ca_file) {
            ("wss", ca_file) => Some(tls::trusting(ca_file)?),
            (_, None) => None,
            (scheme, Some(path)) => {
                let wanted = format!(
                    "but {scheme}:// is not encrypted; write wss:// and the name in remote_host"
                );
                return Err(argument("remote_ca_file", &format!("{path:?}"), &wanted));
            }
        };
        let port = match (given.remote_port.map(|port| port.0), address.port) {
            (Some(given), Some(other)) if given != other => {
                let wanted = format!("but remote_host has the port {other}");
                return Err(argument("remote_port", &given.to_string(), &wanted));
            }
            (given, other) => given.or(other),
        };
        let timeout = given.remote_timeout_s.map_or(timeout, |seconds| seconds.0);
        if timeout.is_zero() {
            let wanted = "expected more than 0 seconds";
            return Err(argument("remote_timeout_s", "0", wanted));
        }
        Ok(Self {
            scheme: address.scheme,
            port: port.unwrap_or(if tls.is_some() { HTTPS } else { own_port }),
            host: address.host,
            path: address.path,
            tls,
            token: token(given)?,
            timeout,
            retry: given.remote_retry_s.0,
            lookup: |host, port| Ok((host, port).to_socket_addrs()?.collect()),
        })
    }

    /// Returns the URL of a websocket. As browsers do, it leaves out the port that its scheme means
    /// anyway: a proxy may look for the name alone.
    pub(super) fn url(&self) -> String {
        match (self.scheme, self.port) {
            ("wss", HTTPS) | ("ws", HTTP) => {
                format!("{}://{}{}", self.scheme, bracketed(&self.host), self.path)
            }
            _ => self.to_string(),
        }
    }

    /// Returns a note on the fields that only matter for a policy in the rank, and on others.
    pub(in crate::policy) fn without_effect(
        &self,
        config: &Map<String, Value>,
        others: &[&str],
    ) -> Option<String> {
        let here = ["policy_device", "policy_device_id"].iter().chain(others);
        let here = here.copied().filter(|field| config.contains_key(*field));
        let said: Vec<&str> = here.collect();
        let fields = Some(said.join(", ")).filter(|fields| !fields.is_empty())?;
        Some(format!("no effect of {fields}: the policy is at {self}"))
    }

    /// Returns an error about this server, which ends the job.
    pub(crate) fn error(&self, reason: String) -> PolicyError {
        PolicyError::Failed(self.refusal(reason).0)
    }

    /// Returns why a row failed, due to an answer of this server, which may be long.
    pub(super) fn refusal(&self, mut reason: String) -> RowError {
        if reason.len() > LONGEST_REASON {
            reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
            reason.push('…');
        }
        RowError(format!("policy server {self}: {reason}"))
    }
}

impl fmt::Display for PolicyServer {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let (host, port) = (bracketed(&self.host), self.port);
        write!(formatter, "{}://{host}:{port}{}", self.scheme, self.path)
    }
}

/// Where a server is, as `remote_host` says it: a name, an address, or the start of a URL.
struct ServerAddress {
    scheme: &'static str,
    host: String,
    port: Option<u16>,
    path: String,
}

impl ServerAddress {
    /// Reads `name`, `name:port`, or `scheme://name:port/path`; `own` is the protocol's scheme.
    fn parse(given: &str, own: &'static str) -> Option<Self> {
        let is_websocket = own == "ws";
        let (scheme, rest) = match given.split_once("://") {
            None => (own, given),
            Some((scheme, rest)) if scheme == own => (own, rest),
            Some(("wss", rest)) if is_websocket => ("wss", rest),
            Some(_) => return None,
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path = path.trim_end_matches('/');
        let is_url = given.contains("://") && is_websocket;
        let is_path = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '?' | '#');
        if !(path.is_empty() || is_url) || !path.chars().all(is_path) {
            return None;
        }
        let (host, port) = host_and_port(authority)?;
        let is_host = |letter: char| {
            letter.is_ascii_graphic() && !matches!(letter, '@' | '?' | '#' | '[' | ']')
        };
        if host.is_empty() || !host.chars().all(is_host) {
            return None;
        }
        Some(Self {
            scheme,
            host: host.to_owned(),
            port,
            path: path.to_owned(),
        })
    }
}

/// Splits `name:port`, `[address]:port`, and either without a port; an address of IPv6 may stand
/// without brackets.
fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let port = |text: &str| text.parse().ok().filter(|port| *port != 0);
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after.strip_prefix(':') {
            Some(text) => Some((host, Some(port(text)?))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    match authority.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Some((authority, None)),
        Some((host, text)) => Some((host, Some(port(text)?))),
        None => Some((authority, None)),
    }
}

fn bracketed(host: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Token")
    }
}

/// Reads `remote_api_token`, or the environment variable that `remote_api_token_env` names, so that
/// no file has to contain the token.
fn token(given: &Server) -> Result<Option<Token>, PolicyError> {
    let Some(name) = &given.remote_api_token_env else {
        return Ok(given.remote_api_token.clone().map(Token));
    };
    let shown = format!("{name:?}");
    let refuse = |wanted| Err(argument("remote_api_token_env", &shown, wanted));
    if given.remote_api_token.is_some() {
        return refuse("but remote_api_token is also given");
    }
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => Ok(Some(Token(value))),
        _ => refuse("but there is no such environment variable"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(config: &Value) -> PolicyServer {
        let given = jobs::settings::read("", config.as_object().unwrap()).unwrap();
        PolicyServer::new(&given, None, ("ws", 8000, Duration::from_secs(7))).unwrap()
    }

    #[test]
    fn a_reason_as_long_as_an_answer_is_cut() {
        let server = read(&json!({}));
        let text = server.error("é".repeat(1 << 20)).to_string();
        let is_cut = text.ends_with("éé…") && text.len() < 5000;
        assert!(is_cut, "{} bytes", text.len());
    }

    #[test]
    fn settings_without_effect_are_said_together() {
        let server = read(&json!({}));
        let config = json!({"model_path": "x", "policy_device": "cuda:0", "num_envs": 4});
        let note = server.without_effect(config.as_object().unwrap(), &["model_path", "dtype"]);
        let wanted = "no effect of policy_device, model_path: the policy is at ws://localhost:8000";
        assert_eq!(note.as_deref(), Some(wanted));
        assert_eq!(server.without_effect(&Map::new(), &["model_path"]), None);
    }

    #[test]
    fn a_server_is_where_the_settings_say() {
        assert_eq!(read(&json!({})).timeout.as_secs(), 7);
        assert_eq!(
            read(&json!({"remote_retry_s": 0.5})).retry,
            Duration::from_millis(500)
        );
        let host = |host: &str| json!({ "remote_host": host });
        for (given, shown, url) in [
            (json!({}), "ws://localhost:8000", "ws://localhost:8000"),
            (
                json!({"remote_host": "ws://gpu7/", "remote_port": 9}),
                "ws://gpu7:9",
                "ws://gpu7:9",
            ),
            (host("::1"), "ws://[::1]:8000", "ws://[::1]:8000"),
            (host("[::1]:9"), "ws://[::1]:9", "ws://[::1]:9"),
            (host("gpu7:9"), "ws://gpu7:9", "ws://gpu7:9"),
            (host("ws://gpu7:80/"), "ws://gpu7:80", "ws://gpu7"),
            (host("wss://gpu7"), "wss://gpu7:443", "wss://gpu7"),
            (
                host("wss://gpu7:8443"),
                "wss://gpu7:8443",
                "wss://gpu7:8443",
            ),
            (
                host("wss://lab/pi/0/"),
                "wss://lab:443/pi/0",
                "wss://lab/pi/0",
            ),
            (
                json!({"remote_host": "wss://lab", "remote_port": 9}),
                "wss://lab:9",
                "wss://lab:9",
            ),
        ] {
            let server = read(&given);
            assert_eq!((&*server.to_string(), &*server.url()), (shown, url));
            assert_eq!(server.tls.is_some(), url.starts_with("wss"), "{given}");
        }
    }

    #[test]
    fn a_token_is_not_shown_and_may_stand_in_the_environment() {
        let given = read(&json!({"remote_api_token": "s3cret"})).token;
        assert!(!format!("{given:?}").contains("s3cret"));
        let path = read(&json!({"remote_api_token_env": "PATH"})).token;
        assert_eq!(path.map(|token| token.0), std::env::var("PATH").ok());
    }
}
