//! Lists the children of this process as the kernel reports them. That takes a few system calls,
//! however many processes the machine has.

use std::collections::BTreeSet;
use std::fs;

/// Returns the children of all threads of this process, including zombies. Returns `None` if the
/// kernel has no such list (it is built without `CONFIG_PROC_CHILDREN`).
///
/// proc(5) warns that the list may be incomplete if a child is reaped while it is read; only this
/// process reaps its children.
pub fn children() -> Option<BTreeSet<i32>> {
    let mut children = BTreeSet::new();
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let list = fs::read_to_string(thread.path().join("children")).ok()?;
        let pids = list.split_ascii_whitespace();
        children.extend(pids.filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Some(children)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_is_listed_until_it_is_reaped() {
        if fs::read("/proc/thread-self/children").is_err() {
            eprintln!("skipped: this kernel does not list children");
            return;
        }
        let mut child = Command::new("/bin/cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        let pid = child.id().cast_signed();
        // A look fails if a thread of another test ends meanwhile.
        let is_listed = || rig::wait::until("a whole list", children).contains(&pid);
        assert!(is_listed());
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(!is_listed());
    }
}
