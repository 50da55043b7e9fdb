//! The single write that makes an episode visible: it swaps two entries of a root group.
//!
//! An HDF5 file of format version 0 lists the members of its root group in a *symbol table node*.
//! Each entry has a name, the address of the object header, and cached parts of it (HDF5 File
//! Format Specification 3.0, III.A–C):
//!
//! ```text
//! superblock: 0 signature │ 8 version 0 │ 13 offset size 8 │ 56 root entry: 56+24 B-tree address
//! B-tree    : 0 "TREE"    │ 5 level 0   │ 6 children u16       │ 32 address of the first child
//! node      : 0 "SNOD"    │ 6 entries u16 │ 8 entries of 40 bytes, sorted by name
//! entry     : 0 name offset u64 │ 8 object header address, cache type, scratch: 32 bytes
//! ```
//!
//! With exactly two members, swapping bytes 8..40 of both entries swaps what the two names refer
//! to. The 80 bytes lie in one page (checked), so a killed process has swapped both or none.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
const ENTRY: usize = 40;
/// Linux copies a write into the page cache page by page and checks for a kill in between.
const PAGE: u64 = 4096;

/// Swaps the two members of the root group. The file must not be open in the HDF5 library.
pub(super) fn swap(file: &File) -> io::Result<()> {
    let node = locate(file)?;
    let mut entries = [0; 2 * ENTRY];
    file.read_exact_at(&mut entries, node + 8)?;
    let (first, second) = entries.split_at_mut(ENTRY);
    first[8..].swap_with_slice(&mut second[8..]);
    file.write_all_at(&entries, node + 8)
}

/// Returns the address of the root group's only symbol table node.
fn locate(file: &File) -> io::Result<u64> {
    let superblock = read::<96>(file, 0)?;
    expect(
        superblock.starts_with(SIGNATURE) && superblock[8] == 0,
        "a superblock of version 0",
    )?;
    expect(superblock[13] == 8, "offsets of 8 bytes")?;
    let tree_at = u64_at(&superblock, 56 + 24);
    let tree = read::<40>(file, tree_at)?;
    let one_leaf = tree.starts_with(b"TREE") && tree[5] == 0 && u16_at(&tree, 6) == 1;
    expect(one_leaf, "a root group with one leaf")?;
    let node_at = u64_at(&tree, 32);
    let node = read::<8>(file, node_at)?;
    expect(
        node.starts_with(b"SNOD") && u16_at(&node, 6) == 2,
        "a root group with two members",
    )?;
    let last = node_at.checked_add(8 + 2 * ENTRY as u64 - 1);
    expect(
        last.is_some_and(|last| (node_at + 8) / PAGE == last / PAGE),
        "root entries in one page",
    )?;
    Ok(node_at)
}

fn read<const N: usize>(file: &File, at: u64) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn expect(holds: bool, what: &str) -> io::Result<()> {
    if holds {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("expected {what}"),
        ))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_file_that_is_not_hdf5_is_refused() {
        let err = swap(&file_of(&[0; 4096])).unwrap_err();
        assert_eq!(err.to_string(), "expected a superblock of version 0");
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_swapped_without_a_panic(tail in proptest::collection::vec(any::<u8>(), 0..512)) {
            let mut bytes = SIGNATURE.to_vec();
            bytes.extend([0, 0, 0, 0, 0, 8]);
            bytes.extend(tail);
            let _ = swap(&file_of(&bytes));
        }
    }
}
