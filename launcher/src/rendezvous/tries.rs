//! The attempts to connect to a store, as a failure reports them.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::net::SocketAddr;

/// The error for an address whose listener closes the connection during the handshake.
pub const HUNG_UP: &str = "it closed the connection";

/// The attempts to connect, and their errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// The name or address that was tried.
    pub host: String,
    /// The resolver's last error, if it returned no address.
    pub unresolved: Option<String>,
    /// The last error of each address.
    pub addrs: BTreeMap<SocketAddr, String>,
}

impl Display for Tries {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        if let Some(err) = &self.unresolved {
            write!(
                f,
                "`{}` does not resolve on this node ({err}); give an address, or a name that it knows",
                self.host
            )?;
        }
        for (index, (addr, err)) in self.addrs.iter().enumerate() {
            let separator = if index > 0 || self.unresolved.is_some() {
                "; "
            } else {
                ""
            };
            write!(f, "{separator}{addr}: {err}")?;
        }
        if self.addrs.values().any(|err| err.starts_with(HUNG_UP)) {
            write!(f, " (is that a store, and is the port right?)")?;
        } else if self.addrs.values().any(|err| err.contains("refused")) {
            write!(
                f,
                " (nothing listens there: is the first node up, and is this its address and port?)"
            )?;
        } else if !self.addrs.is_empty() {
            write!(
                f,
                " (no answer: is the port open between the nodes, and is this the address of the right network?)"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_said() {
        let mut tries = Tries {
            host: "node0".to_owned(),
            ..Tries::default()
        };
        tries.addrs.insert(
            "10.0.0.1:29400".parse().expect("an address"),
            "Connection refused".to_owned(),
        );
        tries.addrs.insert(
            "[fe80::1]:29400".parse().expect("an address"),
            "timed out".to_owned(),
        );
        let text = tries.to_string();
        assert!(
            text.starts_with(
                "10.0.0.1:29400: Connection refused; [fe80::1]:29400: timed out (nothing"
            ),
            "{text}"
        );
        let tries = Tries {
            host: "node0".to_owned(),
            unresolved: Some("x".to_owned()),
            ..Tries::default()
        };
        assert!(
            tries
                .to_string()
                .starts_with("`node0` does not resolve on this node (x)"),
            "{tries}"
        );
    }
}
