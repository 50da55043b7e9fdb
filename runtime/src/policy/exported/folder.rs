//! The folder into which a package is extracted: a library can be loaded from a file alone.
//!
//! Each rank has a folder of its own, in `TMPDIR`, which nobody else may read. On a CPU it exists
//! until the package has run once; on a GPU, until the policy is dropped.

use std::io;
use std::path::Path;

use jobs::bytes::ByteSize;
use jobs::exported::Package;
use nix::sys::statvfs::{FsFlags, statvfs};
use tempfile::TempDir;

/// Extracts the compiled files of a package to a new folder in `TMPDIR`, which is deleted when the
/// value is dropped.
///
/// # Errors
/// Returns the reason: no room, no permission, or a file system whose files may not be executed.
pub(super) fn extract(package: &Package) -> Result<TempDir, String> {
    extract_in(&std::env::temp_dir(), package)
}

fn extract_in(parent: &Path, package: &Package) -> Result<TempDir, String> {
    let needed = package.extracted_bytes();
    if let Ok(found) = statvfs(parent) {
        let free = found.blocks_available() * found.fragment_size();
        let is_noexec = found.flags().contains(FsFlags::ST_NOEXEC);
        check(parent, needed, free, is_noexec)?;
    }
    let prefix = format!("rrun-package-{}-", std::process::id());
    let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent);
    let folder = folder.map_err(|err| {
        format!(
            "cannot make a folder in `{}`, where its library is extracted: {err}; set TMPDIR to \
             another one",
            parent.display()
        )
    })?;
    let extracted = package.extract(folder.path());
    extracted.map_err(|err| match err.kind() {
        io::ErrorKind::StorageFull => full(parent, needed, 0),
        _ => format!("cannot extract it to `{}`: {err}", folder.path().display()),
    })?;
    Ok(folder)
}

/// Checks that files of `needed` bytes can be extracted to a file system with `free` bytes, and
/// executed there.
fn check(folder: &Path, needed: u64, free: u64, is_noexec: bool) -> Result<(), String> {
    if is_noexec {
        return Err(format!(
            "its library is extracted to `{}`, where nothing may be executed (noexec); set TMPDIR \
             to another folder",
            folder.display()
        ));
    }
    if free < needed {
        return Err(full(folder, needed, free));
    }
    Ok(())
}

fn full(folder: &Path, needed: u64, free: u64) -> String {
    format!(
        "its library takes {} in `{}` while it is loaded, where only {} is free; set TMPDIR to \
         another folder",
        ByteSize(needed),
        folder.display(),
        ByteSize(free)
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use jobs::samples::{DESCRIPTION, keys, package};

    fn packed(folder: &Path) -> Package {
        let path = folder.join("policy.pt2");
        fs::write(&path, package(&keys(), DESCRIPTION)).unwrap();
        Package::read(&path).unwrap()
    }

    #[test]
    fn a_folder_has_the_files_and_is_gone_with_its_value() {
        let parent = tempfile::tempdir().unwrap();
        let package = packed(parent.path());
        let folders = [0, 1].map(|_| extract_in(parent.path(), &package).unwrap());
        let [first, second] = folders.each_ref().map(TempDir::path);
        assert_ne!(first, second);
        assert!(first.join(package.library()).is_file());
        drop(folders);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_room_and_no_execution_are_refused_before_anything_is_written() {
        let folder = Path::new("/scratch");
        assert_eq!(check(folder, 5 << 20, 5 << 20, false), Ok(()));
        assert_eq!(
            check(folder, 600 << 20, 5 << 20, false).unwrap_err(),
            "its library takes 600 MiB in `/scratch` while it is loaded, where only 5 MiB is \
             free; set TMPDIR to another folder"
        );
        assert_eq!(
            check(folder, 1, 5 << 20, true).unwrap_err(),
            "its library is extracted to `/scratch`, where nothing may be executed (noexec); set \
             TMPDIR to another folder"
        );
    }

    #[test]
    fn a_parent_that_is_not_there_is_an_error_that_names_tmpdir() {
        let parent = tempfile::tempdir().unwrap();
        let package = packed(parent.path());
        let reason = extract_in(Path::new("/nowhere"), &package).unwrap_err();
        assert!(
            reason.starts_with("cannot make a folder in `/nowhere`") && reason.contains("TMPDIR"),
            "{reason}"
        );
    }
}
