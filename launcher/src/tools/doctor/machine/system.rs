//! Names the machine and its system, for those who read the output elsewhere.

use std::fs;

use crate::node::host;
use crate::tools::doctor::diagnosis::Diagnosis;
use crate::tools::doctor::machine::value;

pub(super) fn found() -> Diagnosis {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let found = format!(
        "rrun {} on {}: {}, Linux {}, {}",
        env!("CARGO_PKG_VERSION"),
        host::full_name(),
        name(&release),
        kernel.trim(),
        std::env::consts::ARCH,
    );
    Diagnosis::ok("system", found)
}

/// Returns the name of the distribution in `/etc/os-release`.
fn name(release: &str) -> &str {
    let name = value(release, "PRETTY_NAME", '=').map(|name| name.trim_matches('"'));
    name.unwrap_or("unknown distribution")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_names_itself() {
        let release = "NAME=\"Rocky Linux\"\nPRETTY_NAME=\"Rocky Linux 9.4 (Blue Onyx)\"\n";
        assert_eq!(name(release), "Rocky Linux 9.4 (Blue Onyx)");
        assert_eq!(name(""), "unknown distribution");
    }
}
