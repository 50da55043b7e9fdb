//! Checks whether the host name of this node resolves to this node: gloo announces the address
//! behind it to the other nodes.
//!
//! Debian's installer writes `127.0.1.1 <name>` into `/etc/hosts`, and containers often have a name
//! that does not resolve. Then the ranks meet, but their first collective fails
//! (pytorch/pytorch#150532).

use std::env;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};

use jobs::host::is_loopback;

use crate::plan::LaunchPlan;
use crate::say;

/// Warns about an unusable host name, if several nodes take part and no interface is set for gloo.
/// Name resolution may be slow, so it runs beside the launch, which does not wait for its result.
pub fn check(plan: &LaunchPlan) {
    let concerns = plan
        .rendezvous
        .as_ref()
        .is_some_and(|how| !is_loopback(&how.host));
    if !concerns || env::var_os("GLOO_SOCKET_IFNAME").is_some() {
        return;
    }
    let name = jobs::host::name();
    std::thread::spawn(move || {
        if let Some(line) = caveat(&name, addresses(&name)) {
            say::warning(line);
        }
    });
}

fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|addr| addr.ip()).collect())
}

fn caveat(name: &str, found: io::Result<Vec<IpAddr>>) -> Option<String> {
    let what = match found {
        Ok(addresses) if addresses.iter().any(|ip| !ip.is_loopback()) => return None,
        Ok(addresses) => match addresses.first() {
            Some(ip) => format!("leads to {ip}, which other nodes cannot reach"),
            None => "has no address".to_owned(),
        },
        Err(err) => format!("cannot be resolved ({err})"),
    };
    Some(format!(
        "the name of this node, `{name}`, {what}: gloo needs GLOO_SOCKET_IFNAME, the interface to the others"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_nowhere_is_said_and_one_that_leads_here_from_elsewhere_is_not() {
        for (addresses, wanted) in [
            (&["127.0.1.1", "10.0.0.7"][..], None),
            (&["fe80::1"], None),
            (
                &["127.0.1.1"],
                Some("`node1`, leads to 127.0.1.1, which other nodes"),
            ),
            (&[], Some("has no address")),
        ] {
            let addresses = addresses.iter().map(|ip| ip.parse().expect("an address"));
            let told = caveat("node1", Ok(addresses.collect()));
            assert_eq!(told.is_some(), wanted.is_some(), "{told:?}");
            let told = told.unwrap_or_default();
            assert!(told.contains(wanted.unwrap_or_default()), "{told}");
        }
        let err = caveat("x", Err(io::Error::other("no such name")));
        assert!(err.is_some_and(|line| line.contains("cannot be resolved (no such name)")));
    }
}
