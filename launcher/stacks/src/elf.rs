//! Unwind tables and names of functions of an ELF file. Only the parts that are asked for are read.

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};

/// Files that are larger are not read; libtorch_cuda has about 1.2 GiB.
const LARGEST_FILE: u64 = 16 << 30;

/// Sections that are larger are not read.
const LARGEST_SECTION: u64 = 1 << 30;

/// Longest name that is shown, in characters.
const LONGEST_NAME: usize = 120;

type Elf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<File>>;

/// That by which the stack is unwound through the code of a file. All addresses are those in the
/// file.
#[derive(Clone, Debug)]
pub struct UnwindTables {
    /// `.eh_frame`, its index, and what their entries are relative to.
    pub sections: ExplicitModuleSectionInfo<Arc<[u8]>>,
    /// Offset in the file and address of each part that is loaded.
    pub segments: Vec<(u64, u64)>,
}

/// Reads the unwind tables of the file; `None` if it is not an ELF file with 64 bits.
pub fn unwind_tables(path: &Path) -> Option<UnwindTables> {
    let cache = ReadCache::new(open(path)?);
    let elf: Elf = ElfFile64::parse(&cache).ok()?;
    let endian = elf.endian();
    let headers = elf.elf_program_headers().iter();
    let loaded = headers.filter(|header| header.p_type(endian) == PT_LOAD);
    Some(UnwindTables {
        sections: ExplicitModuleSectionInfo {
            text_svma: addresses(&elf, ".text"),
            got_svma: addresses(&elf, ".got"),
            eh_frame_svma: addresses(&elf, ".eh_frame"),
            eh_frame: bytes(&elf, ".eh_frame"),
            eh_frame_hdr_svma: addresses(&elf, ".eh_frame_hdr"),
            eh_frame_hdr: bytes(&elf, ".eh_frame_hdr"),
            ..ExplicitModuleSectionInfo::default()
        },
        segments: loaded
            .map(|header| (header.p_offset(endian), header.p_vaddr(endian)))
            .collect(),
    })
}

/// Returns the name of the function at each of these addresses, in their order. A library without a
/// symbol table still has the names of the functions that it exports.
pub fn functions(path: &Path, addresses: &[u64]) -> Vec<Option<String>> {
    let mut found = vec![None; addresses.len()];
    let Some(file) = open(path) else {
        return found;
    };
    let cache = ReadCache::new(file);
    let Ok(elf) = Elf::parse(&cache) else {
        return found;
    };
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || symbol.is_undefined() {
            continue;
        }
        let reach = symbol.address()..symbol.address().saturating_add(symbol.size().max(1));
        for (address, found) in addresses.iter().zip(&mut found) {
            if found.is_none() && reach.contains(address) {
                *found = Some(readable(symbol.name().unwrap_or_default()));
            }
        }
    }
    found
}

fn open(path: &Path) -> Option<File> {
    let about = fs::metadata(path).ok()?;
    let is_read = about.is_file() && about.len() <= LARGEST_FILE;
    File::open(path).ok().filter(|_| is_read)
}

fn addresses(elf: &Elf<'_>, name: &str) -> Option<Range<u64>> {
    let section = elf.section_by_name(name)?;
    Some(section.address()..section.address().checked_add(section.size())?)
}

fn bytes(elf: &Elf<'_>, name: &str) -> Option<Arc<[u8]>> {
    let section = elf.section_by_name(name)?;
    let is_read = section.size() <= LARGEST_SECTION;
    Some(Arc::from(section.data().ok().filter(|_| is_read)?))
}

/// Returns the name without mangling, parameters, template arguments and a Rust hash.
fn readable(mangled: &str) -> String {
    let name = demangled(mangled);
    let name = without_brackets(&name);
    match name.char_indices().nth(LONGEST_NAME) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name,
    }
}

fn demangled(mangled: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(mangled) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type();
    cpp_demangle::Symbol::new(mangled)
        .ok()
        .and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| mangled.to_owned())
}

/// Leaves out what angle brackets enclose, except where they begin a name, as in Rust's
/// `<T as Trait>::method`, and in operators.
fn without_brackets(name: &str) -> String {
    let mut depth = 0_usize;
    let mut short = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '<' if depth > 0 || !(short.is_empty() || short.ends_with("operator")) => depth += 1,
            '>' if depth > 0 => depth -= 1,
            other if depth == 0 => short.push(other),
            _ => {}
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_tables_and_segments() {
        let own = std::env::current_exe().expect("its own path");
        let UnwindTables { sections, segments } = unwind_tables(&own).expect("an ELF file");
        assert!(sections.eh_frame.is_some() && sections.eh_frame_hdr.is_some());
        assert!(!segments.is_empty());
    }

    #[test]
    fn a_file_that_is_no_program_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), b"\x7fELF\x02\x01\x01 and not more").expect("written");
        for path in [file.path(), Path::new("/dev/zero")] {
            assert!(unwind_tables(path).is_none());
            assert_eq!(functions(path, &[1]), [None]);
        }
    }

    #[test]
    fn cpp_names_lose_parameters_and_template_arguments() {
        let mangled = "_ZN2at6native3addIfEEvRKNS_6TensorE";
        assert_eq!(readable(mangled), "at::native::add");
    }

    #[test]
    fn rust_names_lose_their_hash() {
        let mangled = "_ZN4core3fmt5write17h0123456789abcdefE";
        assert_eq!(readable(mangled), "core::fmt::write");
    }

    #[test]
    fn other_names_stay() {
        assert_eq!(readable("__futex_abstimed_wait"), "__futex_abstimed_wait");
        assert_eq!(readable(""), "");
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(
            readable(&"a".repeat(1000)).chars().count(),
            LONGEST_NAME + 1
        );
    }
}
