//! The name of the machine on which this process runs, and the names by which only it reaches
//! itself.

use std::net::IpAddr;

/// Returns the host name that the kernel reports; empty if there is no `/proc`.
pub fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

/// Returns whether a host is this machine by its loopback address or name.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}
