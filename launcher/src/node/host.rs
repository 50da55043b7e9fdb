//! The name under which this node appears in reports and events.

use std::fs;

/// Returns the full name of this machine according to `/etc/hosts`, or else its host name. No name
/// server is asked, because a bad one takes seconds to answer.
pub fn full_name() -> String {
    let name = jobs::host::name();
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    name_with_domain(&name, &hosts).unwrap_or(name)
}

/// Returns the first name with a dot on the line of `/etc/hosts` that contains `name`.
fn name_with_domain(name: &str, hosts: &str) -> Option<String> {
    let names = |line: &str| -> Vec<String> {
        let line = line.split('#').next().unwrap_or_default();
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    let known = hosts
        .lines()
        .map(names)
        .find(|names| names.iter().any(|known| known == name))?;
    known.into_iter().find(|known| known.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_with_domain_is_that_of_the_hosts_file() {
        let hosts = "127.0.0.1 localhost # node1\n10.0.0.1 node1 node1.cluster.org\n";
        assert_eq!(
            name_with_domain("node1", hosts).as_deref(),
            Some("node1.cluster.org")
        );
        assert_eq!(
            (
                name_with_domain("localhost", hosts),
                name_with_domain("node2", hosts)
            ),
            (None, None)
        );
    }
}
