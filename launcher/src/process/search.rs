//! Where `execvp` would look for a program, as a list made before the child exists: the child
//! shares the memory of the launcher and may allocate nothing.

use std::ffi::{CStr, CString};

/// Folders of a rank without `PATH` (glibc's `_CS_PATH`).
const USUAL_PATH: &[u8] = b"/bin:/usr/bin";

/// Returns the files to try for `program`, in their order. `env` has the `NAME=value` entries of
/// the rank, whose `PATH` counts. A name with a slash is the only candidate; an empty folder in
/// `PATH` means the working directory.
pub fn candidates<'a>(program: &CStr, env: impl IntoIterator<Item = &'a CStr>) -> Vec<CString> {
    let name = program.to_bytes();
    if name.contains(&b'/') {
        return vec![program.to_owned()];
    }
    if name.is_empty() {
        return Vec::new();
    }
    let path = env
        .into_iter()
        .find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="));
    path.unwrap_or(USUAL_PATH)
        .split(|&byte| byte == b':')
        .map(|folder| match folder {
            [] => name.to_vec(),
            folder => [folder, b"/", name].concat(),
        })
        .filter_map(|file| CString::new(file).ok())
        .collect()
}

/// Returns whether the search goes on after this error of `exec`, as glibc's does.
pub fn goes_on(errno: i32) -> bool {
    matches!(
        errno,
        libc::EACCES | libc::ENOENT | libc::ESTALE | libc::ENOTDIR | libc::ENODEV | libc::ETIMEDOUT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_in_each_folder_of_the_rank_s_path() {
        for (program, env, files) in [
            (
                c"p",
                &[c"HOME=/a", c"PATH=/x::/y/"][..],
                &["/x/p", "p", "/y//p"][..],
            ),
            // A name with a slash is taken as it is.
            (c"./p", &[c"PATH=/x"], &["./p"]),
            // Without a path, the usual folders are searched.
            (c"p", &[c"XPATH=/x"], &["/bin/p", "/usr/bin/p"]),
            (c"", &[c"PATH=/x"], &[]),
        ] {
            let found = candidates(program, env.iter().copied()).into_iter();
            let found: Vec<_> = found
                .map(|file| file.into_string().expect("text"))
                .collect();
            assert_eq!(found, files, "{program:?}");
        }
    }
}
