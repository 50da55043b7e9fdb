//! The executable files that a process has mapped, from `/proc/<pid>/maps`.

use std::ops::Range;
use std::path::PathBuf;

/// Mappings beyond this number are ignored; a process with all of PyTorch has about 2 000.
const MAX_MAPPINGS: usize = 65_536;

/// A mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses in the process.
    pub addresses: Range<u64>,
    /// Offset in the file of its first byte.
    pub offset: u64,
    /// Whether it contains code.
    pub is_executable: bool,
    /// Path of the file as the process sees it, or a name such as `[stack]`.
    pub path: PathBuf,
}

/// Parses the contents of `/proc/<pid>/maps`. Anonymous mappings and unreadable lines are left out.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(line).take(MAX_MAPPINGS).collect()
}

/// Parses one line: `55e0-55f0 r-xp 00001000 08:01 1234   /usr/bin/cat`.
fn line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = hex(fields.next()?)?;
    let path = fields.nth(2)?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    (!path.is_empty()).then_some(Mapping {
        addresses: hex(start)?..hex(end)?,
        offset,
        is_executable: permissions.contains('x'),
        path: PathBuf::from(path),
    })
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_addresses_offset_and_path() {
        let text = "55e0a000-55e0f000 r-xp 00002000 fe:00 397 \
                    /usr/bin/a program (deleted)\n7ffd0000-7ffd1000 rw-p 00000000 00:00 0 \n";
        let expected = Mapping {
            addresses: 0x55e0_a000..0x55e0_f000,
            offset: 0x2000,
            is_executable: true,
            path: PathBuf::from("/usr/bin/a program"),
        };
        assert_eq!(parse(text), [expected]);
    }

    #[test]
    fn lines_that_are_no_mappings_are_left_out() {
        assert_eq!(parse("\n-\nx-y r-xp 0 0 0 /a\n1-2\n1-2 r-xp z 0 0 /a"), []);
    }
}
