//! Parses rendezvous endpoints: `host`, `host:port`, `[v6]:port`.

use crate::plan::error::PlanError;

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
    pub fn parse(text: &str) -> Result<Endpoint, PlanError> {
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
        let port = port
            .map(|port| parse_port(port).ok_or_else(|| PlanError::EndpointPort(text.to_owned())));
        let endpoint = Endpoint {
            host: host.to_owned(),
            port: port.transpose()?,
        };
        if host.is_empty()
            || !host
                .chars()
                .all(|c| c.is_alphanumeric() || "_.:-".contains(c))
        {
            return Err(PlanError::EndpointHost(text.to_owned()));
        }
        Ok(endpoint)
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let is_digits = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}
