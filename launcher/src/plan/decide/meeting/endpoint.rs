//! Parses rendezvous endpoints: `host`, `host:port`, `[v6]:port`.

use anyhow::{Context as _, ensure};

/// A parsed endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address, without brackets.
    pub host: String,
    /// Port, if one was given.
    pub port: Option<u16>,
}

impl Endpoint {
    /// Parses an endpoint as torchrun does: the port follows the last colon, unless there are
    /// brackets.
    ///
    /// # Errors
    /// Returns an error for an invalid host or port.
    pub fn parse(text: &str) -> anyhow::Result<Endpoint> {
        let trimmed = text.trim();
        let (host, port) = match trimmed
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("no port"))),
            None => trimmed
                .rsplit_once(':')
                .map_or((trimmed, None), |(host, port)| (host, Some(port))),
        };
        let number = |port| {
            parse_port(port).with_context(|| {
                format!(
                    "The port number of the rendezvous endpoint '{text}' must be an integer \
                     between 0 and 65536."
                )
            })
        };
        let port = port.map(number).transpose()?;
        let is_in_names = |c: char| c.is_alphanumeric() || "_.:-".contains(c);
        ensure!(
            !host.is_empty() && host.chars().all(is_in_names),
            "The hostname of the rendezvous endpoint '{text}' must be a dot-separated list of \
             labels, an IPv4 address, or an IPv6 address."
        );
        Ok(Endpoint {
            host: host.to_owned(),
            port,
        })
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let is_digits = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}
