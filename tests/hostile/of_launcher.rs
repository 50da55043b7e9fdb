//! What strangers send to the launcher.

use hostile::Target;
use launcher::slurm::hostlist;

#[test]
fn hostile_hostlist() {
    Target::new("hostlist").dictionary(&[b"[", b"]", b"-", b",", b"node", b"001-999999999", b"[0-9]"]).run(|input| {
        let Ok(list) = std::str::from_utf8(input) else { return None };
        Some(hostlist::expand(list).map(|hosts| hosts.len().min(64)).map_err(|err| std::mem::discriminant(&err)))
    });
}
