//! Programs that users name, as `execvp` finds them.

use std::env::split_paths;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// The search path of `execvp` without a `PATH` (glibc's `_CS_PATH`).
pub const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns the file that `execvp(program)` would execute: `program` itself if it contains a slash,
/// else the first match in the folders of `path`, the value of `PATH`.
pub fn find(program: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    if has_slash(program) {
        return is_executable(program).then(|| program.to_owned());
    }
    folders(path)
        .map(|folder| folder.join(program))
        .find(|path| is_executable(path))
}

/// Says whether a program is a path, which `execvp` does not look for in `PATH`.
pub fn has_slash(program: &Path) -> bool {
    program.as_os_str().as_bytes().contains(&b'/')
}

/// Returns the interpreter that a path or a name means, which may be the folder of a venv.
pub fn interpreter_at(given: &Path) -> PathBuf {
    if given.is_dir() {
        given.join("bin/python")
    } else {
        given.to_owned()
    }
}

/// Returns the folders of a `PATH`.
pub fn folders(path: Option<&OsStr>) -> impl Iterator<Item = PathBuf> {
    split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH)))
}

/// Says whether this process may execute a file.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_program_is_found_by_path_or_by_its_own_slash() {
        let bin = tempfile::tempdir().unwrap();
        let program = bin.path().join("prog");
        for (path, mode) in [(&program, 0o755), (&bin.path().join("plain"), 0o644)] {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = Some(bin.path().as_os_str());
        assert_eq!(find("prog".as_ref(), path), Some(program.clone()));
        assert_eq!(find("plain".as_ref(), path), None);
        assert_eq!(find("./prog".as_ref(), path), None);
        assert_eq!(find(&program, None), Some(program));
    }
}
