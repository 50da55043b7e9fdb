//! Computes paths between folders; only the folders themselves are looked up on the disk.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Returns the absolute path of a folder that need not exist; symbolic links are resolved in the
/// part that exists.
///
/// # Errors
/// Returns an error if there is no working directory.
pub(crate) fn resolved(path: &Path) -> io::Result<PathBuf> {
    let absolute = normal(&std::path::absolute(path)?);
    for base in absolute.ancestors() {
        if let (Ok(real), Ok(rest)) = (base.canonicalize(), absolute.strip_prefix(base)) {
            // Without the slash at the end that joining an empty path adds.
            return Ok(real.join(rest).components().collect());
        }
    }
    Ok(absolute)
}

/// Removes `.` and `..` from an absolute path, lexically.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            normal.pop();
        } else {
            normal.push(part);
        }
    }
    normal
}

/// Returns the relative path from a folder to a path, both absolute and without `..`; `.` if they
/// are equal.
pub(crate) fn from_to(from: &Path, to: &Path) -> String {
    let (mut from, mut to) = (from.components().peekable(), to.components().peekable());
    while from.peek().is_some() && from.peek() == to.peek() {
        from.next();
        to.next();
    }
    let up = from.map(|_| "..".to_owned());
    let down = to.map(|part| part.as_os_str().to_string_lossy().into_owned());
    let words: Vec<_> = up.chain(down).collect();
    if words.is_empty() {
        ".".to_owned()
    } else {
        words.join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_way_leads_up_and_down() {
        let way = |from: &str, to: &str| from_to(Path::new(from), Path::new(to));
        let found = way("/a/merged", "/a/worker_0/reach/x.mp4");
        assert_eq!(found, "../worker_0/reach/x.mp4");
        assert_eq!(way("/a", "/a/b"), "b".to_owned());
        assert_eq!(way("/a/b", "/a"), "..".to_owned());
        assert_eq!(way("/a", "/a"), ".".to_owned());
    }

    #[test]
    fn a_folder_that_is_not_there_is_resolved_as_far_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("there")).unwrap();
        std::os::unix::fs::symlink(real.join("there"), real.join("link")).unwrap();
        let found = resolved(&real.join("link/x/../y")).unwrap();
        assert_eq!(found, real.join("there/y"));
    }

    proptest! {
        #[test]
        fn every_way_arrives(from in "(/[ab]){0,5}", to in "(/[ab]){0,5}") {
            let (from, to) = (PathBuf::from(format!("/{from}")), PathBuf::from(format!("/{to}")));
            prop_assert_eq!(normal(&from.join(from_to(&normal(&from), &normal(&to)))), normal(&to));
        }
    }
}
