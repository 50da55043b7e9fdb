//! Unwind tables and symbols of an ELF file. Only the parts that are asked for are read.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};

/// Files that are larger are not read; libtorch_cuda has about 1.2 GiB.
const LARGEST_FILE: u64 = 16 << 30;

/// Sections that are larger are not read.
const LARGEST_SECTION: u64 = 1 << 30;

type Elf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<File>>;

/// The file cannot be read as an ELF file.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It cannot be opened.
    #[error("cannot open it")]
    Open(#[from] io::Error),
    /// It is not a regular file of at most 16 GiB.
    #[error("not a regular file of at most 16 GiB")]
    NoFile,
    /// It is not a valid ELF file with 64 bits.
    #[error("not a valid ELF file")]
    NoElf(#[from] object::Error),
}

/// The sections by which the stack is unwound through the code of a file. All addresses are those
/// in the file.
#[derive(Clone, Debug, Default)]
pub struct UnwindTables {
    /// Addresses of `.text`.
    pub text: Option<Range<u64>>,
    /// Addresses of `.got`.
    pub got: Option<Range<u64>>,
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`, the index of `.eh_frame`.
    pub eh_frame_hdr: Option<Section>,
    /// Where parts of the file are loaded.
    pub segments: Vec<Segment>,
}

/// A section and its contents.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// Its contents.
    pub bytes: Arc<[u8]>,
}

/// A part of the file that is loaded into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its offset in the file.
    pub offset: u64,
    /// Its address.
    pub address: u64,
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its first address.
    pub address: u64,
    /// Its name, mangled.
    pub name: String,
}

/// Reads the unwind tables of the file.
///
/// # Errors
///
/// See [`ElfError`].
pub fn unwind_tables(path: &Path) -> Result<UnwindTables, ElfError> {
    let cache = ReadCache::new(open(path)?);
    let elf: Elf = ElfFile64::parse(&cache)?;
    let endian = elf.endian();
    let segments = elf
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == PT_LOAD);
    Ok(UnwindTables {
        text: addresses(&elf, ".text"),
        got: addresses(&elf, ".got"),
        eh_frame: section(&elf, ".eh_frame"),
        eh_frame_hdr: section(&elf, ".eh_frame_hdr"),
        segments: segments
            .map(|header| Segment {
                offset: header.p_offset(endian),
                address: header.p_vaddr(endian),
            })
            .collect(),
    })
}

/// Returns the function at each of these addresses, in their order. A library without a symbol
/// table still has the names of the functions that it exports; the nearest one before the address
/// is returned if it may reach that far.
///
/// # Errors
///
/// See [`ElfError`].
pub fn functions(path: &Path, addresses: &[u64]) -> Result<Vec<Option<Function>>, ElfError> {
    let cache = ReadCache::new(open(path)?);
    let elf: Elf = ElfFile64::parse(&cache)?;
    let mut found: Vec<Option<Function>> = vec![None; addresses.len()];
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || symbol.is_undefined() {
            continue;
        }
        let reach = symbol.address()..symbol.address().saturating_add(symbol.size().max(1));
        for (address, found) in addresses.iter().zip(&mut found) {
            if found.is_none() && reach.contains(address) {
                let name = symbol.name().unwrap_or_default().to_owned();
                *found = Some(Function {
                    address: reach.start,
                    name,
                });
            }
        }
    }
    Ok(found)
}

fn open(path: &Path) -> Result<File, ElfError> {
    let about = fs::metadata(path)?;
    if !about.is_file() || about.len() > LARGEST_FILE {
        return Err(ElfError::NoFile);
    }
    Ok(File::open(path)?)
}

fn addresses(elf: &Elf<'_>, name: &str) -> Option<Range<u64>> {
    let section = elf.section_by_name(name)?;
    Some(section.address()..section.address().checked_add(section.size())?)
}

fn section(elf: &Elf<'_>, name: &str) -> Option<Section> {
    let section = elf.section_by_name(name)?;
    if section.size() > LARGEST_SECTION {
        return None;
    }
    Some(Section {
        addresses: addresses(elf, name)?,
        bytes: Arc::from(section.data().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_program() -> std::path::PathBuf {
        std::env::current_exe().expect("its own path")
    }

    #[test]
    fn a_program_has_tables_and_segments() {
        let tables = unwind_tables(&own_program()).expect("an ELF file");
        assert!(tables.eh_frame.is_some() && tables.eh_frame_hdr.is_some());
        assert!(!tables.segments.is_empty());
    }

    #[test]
    fn a_file_that_is_no_program_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), b"\x7fELF\x02\x01\x01 and not more").expect("written");
        assert!(matches!(
            unwind_tables(file.path()),
            Err(ElfError::NoElf(_))
        ));
        assert!(matches!(
            unwind_tables(Path::new("/dev/zero")),
            Err(ElfError::NoFile)
        ));
    }
}
