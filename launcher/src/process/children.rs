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
        children.extend(
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<i32>().ok()),
        );
    }
    Some(children)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_is_listed_until_it_is_reaped() {
        let mut child = Command::new("/bin/cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        let pid = child.id().cast_signed();
        let is_listed = || children().map(|children| children.contains(&pid));
        let before = is_listed();
        drop(child.stdin.take());
        child.wait().expect("it ends");
        // `None`: the kernel has no list, or a thread of another test ended while the list was
        // read.
        assert_ne!(before, Some(false));
        assert_ne!(is_listed(), Some(true));
    }
}
