//! Parses `/proc/<pid>/stat`, see proc_pid_stat(5).

/// What the launcher needs of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Whether it is a zombie or ending.
    pub is_dead: bool,
    /// Pid of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// CPU time that it has used, together with its children that have ended, in hundredths of a
    /// second: Linux shows times so on every architecture (`USER_HZ`).
    pub cpu_ticks: u32,
}

/// Parses `pid (name) state ppid pgrp session …`. The name may contain any byte, so fields are
/// counted from its last `)`.
pub fn parse(stat: &[u8]) -> Option<Stat> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    // utime, stime, cutime and cstime are fields 14 to 17 of the manual page.
    let ticks = fields
        .skip(7)
        .take(4)
        .filter_map(|ticks| ticks.parse().ok());
    Some(Stat {
        is_dead,
        parent,
        group,
        session,
        cpu_ticks: ticks.fold(0, u32::saturating_add),
    })
}

/// Returns the name of the program, at most 15 bytes.
pub fn name(stat: &[u8]) -> Option<String> {
    let start = stat.iter().position(|&byte| byte == b'(')? + 1;
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(String::from_utf8_lossy(stat.get(start..end)?).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_may_contain_brackets_and_times_are_added_up() {
        let stat = b"7 (a) b) S 1 2 3 0 -1 0 0 0 0 0 150 50 20 30 20 0 1 0 0";
        let expected = Stat {
            is_dead: false,
            parent: 1,
            group: 2,
            session: 3,
            cpu_ticks: 250,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(name(stat).as_deref(), Some("a) b"));
    }

    #[test]
    fn zombies_are_dead_and_damaged_lines_are_nothing() {
        assert!(parse(b"12 (sh) Z 1 2 3").expect("a stat line").is_dead);
        assert_eq!(parse(b"7 a"), None);
        assert_eq!(name(b") ("), None);
        assert_eq!(parse(b""), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = (parse(&bytes), name(&bytes));
        }
    }
}
