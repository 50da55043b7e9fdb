//! `health_url` and `health_port`: how to check that a model server works.

use std::fmt::{Display, Formatter};
use std::net::Ipv6Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::settings::kinds::Port;

/// How to check that a server works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "Written")]
#[schemars(with = "Written")]
pub enum Health {
    /// The server answers a GET of this URL with a status of 200 to 299.
    Url(HealthUrl),
    /// The server accepts connections on this port of the machine.
    Port(u16),
}

/// The parts of a URL `http://host[:port][/path]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthUrl {
    /// Host name or address; an IPv6 address is without brackets.
    pub host: String,
    /// Port; 80 if none is given.
    pub port: u16,
    /// Path with query, from the `/` on.
    pub path: String,
}

impl HealthUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// Refuses what cannot be requested, with the reason.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let Some(rest) = text.strip_prefix("http://") else {
            return Err(Refusal::new(
                "it does not start with http://, the only supported scheme",
            ));
        };
        if rest
            .chars()
            .any(|letter| letter.is_whitespace() || letter.is_control())
        {
            return Err(Refusal::new("it has a blank or a control character"));
        }
        // A fragment is never sent to the server.
        let rest = rest.split('#').next().unwrap_or(rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(Refusal::new("it has a user name, which is not sent"));
        }
        let (host, port) = split(authority)?;
        if host.is_empty() {
            return Err(Refusal::new("it has no host"));
        }
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("/{path}")
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            path,
        })
    }

    /// Returns host and port as they are written in a URL.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// Splits `host`, `host:80` or `[::1]:80` into host and port.
fn split(authority: &str) -> Result<(&str, u16), Refusal> {
    let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, rest)))
            if host.parse::<Ipv6Addr>().is_ok() && (rest.is_empty() || rest.starts_with(':')) =>
        {
            (host, rest.strip_prefix(':'))
        }
        Some(_) => return Err(Refusal::new("there is no IPv6 address in its brackets")),
        None if authority.contains(['[', ']']) => {
            return Err(Refusal::new("its brackets are in the wrong place"));
        }
        None => authority
            .split_once(':')
            .map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let Some(port) = port else {
        return Ok((host, 80));
    };
    // `parse` alone would accept a sign.
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|&found| is_number && found > 0);
    port.map(|port| (host, port))
        .ok_or_else(|| Refusal::new("its port is not a number from 1 to 65535"))
}

/// The fields of a model server.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(super) struct Written {
    /// a GET of this URL is answered with a status of 200 to 299
    #[serde(skip_serializing_if = "Option::is_none")]
    health_url: Option<String>,
    /// this port of the machine accepts connections
    #[serde(skip_serializing_if = "Option::is_none")]
    health_port: Option<Port>,
}

impl TryFrom<Written> for Health {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match (written.health_url, written.health_port) {
            (Some(url), None) => HealthUrl::parse(&url).map(Self::Url).map_err(|reason| {
                let url = url.escape_debug();
                format!("health_url `{url}` cannot be polled: {reason}")
            }),
            (None, Some(Port(port))) => Ok(Self::Port(port)),
            (Some(_), Some(_)) => {
                Err("health_url and health_port are both given; keep one of them".to_owned())
            }
            (None, None) => Err(
                "health_url and health_port are both missing; one of them is required to see \
                 when the server is ready"
                    .to_owned(),
            ),
        }
    }
}

impl From<Health> for Written {
    fn from(health: Health) -> Self {
        let (health_url, health_port) = match &health {
            Health::Url(_) => (Some(health.to_string()), None),
            Health::Port(port) => (None, Some(Port(*port))),
        };
        Self {
            health_url,
            health_port,
        }
    }
}

impl Display for Health {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => write!(f, "http://{}{}", url.authority(), url.path),
            Self::Port(port) => write!(f, "port {port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> Result<(String, u16, String), Refusal> {
        HealthUrl::parse(text).map(|url| (url.host, url.port, url.path))
    }

    #[test]
    fn a_url_is_taken_apart() {
        let of = |host: &str, port, path: &str| Ok((host.to_owned(), port, path.to_owned()));
        let found = parts("http://127.0.0.1:8000/health");
        assert_eq!(found, of("127.0.0.1", 8000, "/health"));
        assert_eq!(parts("http://localhost"), of("localhost", 80, "/"));
        let shown = parts("http://[::1]:81/v1?x=1#top");
        assert_eq!(shown, of("::1", 81, "/v1?x=1"));
        assert_eq!(parts("http://h?x"), of("h", 80, "/?x"));
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_a_reason() {
        let reasons = [
            ("https://h", "http://"),
            ("h:8000", "http://"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http://h:", "port"),
            ("http://h:0", "port"),
            ("http://h:+8", "port"),
            ("http://h:65536", "port"),
            ("http://${oc.env:HOST}/", "port"),
            ("http://[::1/", "brackets"),
            ("http://[::1]8/", "brackets"),
            ("http://me@h/", "user name"),
            ("http://h/a b", "blank"),
            ("http://h/\r\nX: y", "blank"),
        ];
        for (url, reason) in reasons {
            assert!(
                parts(url).unwrap_err().to_string().contains(reason),
                "{url}: {:?}",
                parts(url)
            );
        }
    }

    #[test]
    fn a_url_reads_as_it_was_written() {
        let written = |text: &str| Health::Url(HealthUrl::parse(text).unwrap()).to_string();
        assert_eq!(written("http://[::1]:81/v1"), "http://[::1]:81/v1");
        assert_eq!(written("http://h"), "http://h:80/".to_owned());
        assert_eq!(Health::Port(81).to_string(), "port 81".to_owned());
    }

    proptest! {
        #[test]
        fn any_text_is_a_url_that_reads_back_or_refused(text in "(http://)?[\\PC\\r\\n]{0,30}") {
            if let Ok(url) = HealthUrl::parse(&text) {
                prop_assert!(url.path.starts_with('/') && !url.path.contains(['\r', '\n']));
                prop_assert_eq!(HealthUrl::parse(&Health::Url(url.clone()).to_string()), Ok(url));
            }
        }
    }
}
