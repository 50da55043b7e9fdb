//! Reads the last lines of a log file, for a failure report.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Number of bytes to read from the end of the file.
const WINDOW: u64 = 16 << 10;

/// Returns up to `count` of the last lines of the file, without a line that begins before the last
/// 16 KiB. Invalid UTF-8 is replaced.
pub fn last_lines(path: &Path, count: usize) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(WINDOW);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(WINDOW).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = if start == 0 {
        &*text
    } else {
        text.split_once('\n').map_or(&*text, |(_, whole)| whole)
    };
    let lines: Vec<&str> = whole.lines().collect();
    Ok(lines[lines.len().saturating_sub(count)..]
        .iter()
        .map(|&line| line.to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content: &[u8], count: usize) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), content).expect("written");
        last_lines(file.path(), count).expect("read")
    }

    #[test]
    fn the_last_lines_are_in_order() {
        assert_eq!(of(b"a\nb\nc\n", 2), ["b", "c"]);
    }

    #[test]
    fn a_short_file_is_given_whole() {
        assert_eq!(of(b"a\xff", 9), ["a\u{fffd}"]);
        assert!(of(b"", 9).is_empty());
    }

    #[test]
    fn a_line_that_begins_too_early_is_left_out() {
        let content = [vec![b'x'; 20_000], b"\nlast\n".to_vec()].concat();
        assert_eq!(of(&content, 9), ["last"]);
    }
}
