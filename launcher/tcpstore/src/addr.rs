//! Where the store of a launch listens.

use std::fmt;

/// The address on which the store listens: `MASTER_ADDR` and `MASTER_PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddr {
    /// Host name or IP address, IPv6 without brackets.
    pub host: String,
    /// TCP port of the store.
    pub port: u16,
}

impl StoreAddr {
    /// Returns the address of a port on this machine.
    pub fn local(port: u16) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port,
        }
    }
}

impl fmt::Display for StoreAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

/// Returns `host:port`, with brackets if the host is an IPv6 address.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_shown_in_brackets() {
        let addr = StoreAddr {
            host: "::1".to_owned(),
            port: 29500,
        };
        assert_eq!(addr.to_string(), "[::1]:29500");
    }
}
