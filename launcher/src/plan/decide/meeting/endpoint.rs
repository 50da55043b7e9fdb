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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> (String, Option<u16>) {
        let endpoint = Endpoint::parse(text).unwrap();
        (endpoint.host, endpoint.port)
    }

    #[test]
    fn every_form_is_read() {
        assert_eq!(
            parsed(" node-1.cluster_a:29500 "),
            ("node-1.cluster_a".to_owned(), Some(29500))
        );
        assert_eq!(parsed("localhost"), ("localhost".to_owned(), None));
        assert_eq!(parsed("[fe80::1]:0"), ("fe80::1".to_owned(), Some(0)));
        assert_eq!(parsed("[::1]"), ("::1".to_owned(), None));
        assert_eq!(parsed("::1:29500"), ("::1".to_owned(), Some(29500)));
    }

    #[test]
    fn a_port_has_up_to_five_digits_and_16_bits() {
        for text in [
            "h:", "h:65536", "h:-1", "h:abc", "h:000001", "[::1]x", "[::1]:",
        ] {
            assert_eq!(
                Endpoint::parse(text),
                Err(PlanError::EndpointPort(text.to_owned()))
            );
        }
    }

    #[test]
    fn a_host_has_no_blanks_or_slashes() {
        for text in ["", " ", ":1", "a b:1", "a/b", "[a:1", "[]:1"] {
            assert_eq!(
                Endpoint::parse(text),
                Err(PlanError::EndpointHost(text.to_owned()))
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,24}") {
            let _ = Endpoint::parse(&text);
        }
    }
}
