//! Computes SHA-256 as hex digits, like `sha256sum`, for jobs files, runs, journals and policies.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufReader, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Bytes that are read at once.
const BLOCK: usize = 1 << 20;

/// The checksum and size of the content of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// SHA-256 as 64 hex digits.
    pub sha256: String,
    /// Number of bytes.
    pub bytes: u64,
}

/// Returns the SHA-256 of bytes.
pub fn digest(bytes: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Returns the SHA-256 of bytes as hex digits.
pub fn of(bytes: impl AsRef<[u8]>) -> String {
    hex(digest(bytes))
}

/// Reads to the end and returns the checksum and size.
///
/// # Errors
/// Returns the errors of the reader, except [`io::ErrorKind::Interrupted`], after which reading is
/// retried.
pub fn of_reader(reader: impl Read) -> io::Result<Sum> {
    let mut sha256 = Sha256::new();
    let bytes = io::copy(&mut BufReader::with_capacity(BLOCK, reader), &mut sha256)?;
    let sha256 = hex(sha256.finalize());
    Ok(Sum { sha256, bytes })
}

/// Returns the checksum of a file, or of all files in a folder without hidden ones: for a folder,
/// that of the lines `<sha256>  <name>` of its files sorted by name. `file` computes that of a file.
///
/// # Errors
/// Returns the errors of the file system and of `file`.
pub fn of_files(path: &Path, mut file: impl FnMut(&Path) -> io::Result<Sum>) -> io::Result<Sum> {
    if !path.is_dir() {
        return file(path);
    }
    let (mut listing, mut bytes) = (String::new(), 0);
    for name in files_below(path)? {
        let sum = file(&path.join(&name))?;
        listing += &format!("{}  {name}\n", sum.sha256);
        bytes += sum.bytes;
    }
    Ok(Sum {
        sha256: of(listing),
        bytes,
    })
}

/// Returns the relative paths of all files below a folder, sorted by bytes, without hidden ones.
/// Symbolic links are followed, because the Hugging Face cache consists of them.
fn files_below(root: &Path) -> io::Result<BTreeSet<String>> {
    let (mut names, mut folders) = (BTreeSet::new(), vec![(root.to_owned(), 0)]);
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_hidden = path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with('.'));
            match fs::metadata(&path) {
                _ if is_hidden => {}
                // The limit on the depth ends loops of links to a parent folder.
                Ok(found) if found.is_dir() && depth < 16 => folders.push((path, depth + 1)),
                Ok(found) if found.is_file() => {
                    names.insert(
                        path.strip_prefix(root)
                            .unwrap_or(&path)
                            .to_string_lossy()
                            .into_owned(),
                    );
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    Ok(names)
}

/// Formats bytes with two hex digits each.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of "abc", the one-block example of FIPS 180-4.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn bytes_have_the_sum_of_the_standard() {
        assert_eq!(of("abc"), ABC);
    }

    #[test]
    fn a_reader_has_the_sum_of_its_bytes_in_whatever_pieces_they_come() {
        let text = vec![7; BLOCK + 3];
        let pieces = [&text[..1], &text[1..]];
        let read = of_reader(pieces[0].chain(pieces[1])).unwrap();
        let found = read;
        assert_eq!(
            found,
            Sum {
                sha256: of(&text),
                bytes: text.len() as u64
            }
        );
    }

    #[test]
    fn a_reader_that_fails_has_none() {
        struct FailingReader;
        impl Read for FailingReader {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        }
        let found = of_reader(FailingReader).unwrap_err().kind();
        assert_eq!(found, io::ErrorKind::UnexpectedEof);
    }
}
