//! Unwinds captured stacks by the unwind tables of the mapped ELF files, and finds the names of
//! functions in them. Only the parts of a file that are asked for are read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwinderAarch64 as NativeUnwinder};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwinderX86_64 as NativeUnwinder};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};

use crate::capture::CapturedThread;

/// Frames beyond this number are left out.
const MAX_FRAMES: usize = 256;

/// Mappings beyond this number are ignored; a process with all of PyTorch has about 2 000.
const MAX_MAPPINGS: usize = 65_536;

/// Files that are larger are not read; libtorch_cuda has about 1.2 GiB.
const LARGEST_FILE: u64 = 16 << 30;

/// Sections that are larger are not read.
const LARGEST_SECTION: u64 = 1 << 30;

/// Longest name that is shown, in characters.
const LONGEST_NAME: usize = 120;

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
pub fn mappings(text: &str) -> Vec<Mapping> {
    text.lines()
        .filter_map(mapping)
        .take(MAX_MAPPINGS)
        .collect()
}

/// Parses one line: `55e0-55f0 r-xp 00001000 08:01 1234   /usr/bin/cat`.
fn mapping(line: &str) -> Option<Mapping> {
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

/// Unwind tables and names of functions of files, shared by all processes that have mapped them:
/// ranks mostly stand at the same addresses.
#[derive(Debug, Default)]
pub struct Files {
    tables: BTreeMap<PathBuf, Option<Arc<UnwindTables>>>,
    names: BTreeMap<CodeAddress, Option<String>>,
}

/// An address in the code of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeAddress {
    /// The file, as this process names it; `None` for code that belongs to no file.
    pub file: Option<PathBuf>,
    /// The address in the file, or in memory if it belongs to no file.
    pub address: u64,
}

/// Unwinds the stacks of one process.
pub struct ProcessUnwinder<'a> {
    root: PathBuf,
    mappings: &'a [Mapping],
    files: &'a mut Files,
    unwinder: NativeUnwinder<Arc<[u8]>>,
    /// Files whose tables the unwinder has, with their path for this process and the distance of their
    /// addresses in memory.
    loaded: BTreeMap<PathBuf, (PathBuf, Option<u64>)>,
}

impl<'a> ProcessUnwinder<'a> {
    /// Creates the unwinder of the process `pid` with these mappings.
    pub fn new(pid: i32, mappings: &'a [Mapping], files: &'a mut Files) -> ProcessUnwinder<'a> {
        ProcessUnwinder {
            root: PathBuf::from(format!("/proc/{pid}/root")),
            mappings,
            files,
            unwinder: NativeUnwinder::new(),
            loaded: BTreeMap::new(),
        }
    }

    /// Returns the addresses of the frames of `thread`, innermost first.
    pub fn unwind(&mut self, thread: &CapturedThread) -> Vec<CodeAddress> {
        loop {
            let addresses = self.addresses(thread);
            // A file is loaded when the first frame in its code is met; then the frames behind it
            // have to be found anew.
            let is_new = addresses.iter().any(|address| self.load(*address));
            if !is_new {
                return addresses
                    .into_iter()
                    .map(|address| self.in_file(address))
                    .collect();
            }
        }
    }

    fn addresses(&self, thread: &CapturedThread) -> Vec<u64> {
        let Some((instruction, registers)) = thread.registers else {
            return Vec::new();
        };
        let mut read = |address| thread.stack.word(address).ok_or(());
        let mut cache = Cache::<framehop::MayAllocateDuringUnwind>::new();
        let unwinder = &self.unwinder;
        let mut frames = unwinder.iter_frames(instruction, registers, &mut cache, &mut read);
        let mut addresses = Vec::new();
        while addresses.len() < MAX_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            // A return address may already belong to the next function.
            addresses.push(frame.address_for_lookup());
        }
        addresses
    }

    /// Adds the file at `address` to the unwinder. Returns whether that was necessary.
    fn load(&mut self, address: u64) -> bool {
        let Some(mapping) = self.mapping(address) else {
            return false;
        };
        let path = &mapping.path;
        if self.loaded.contains_key(path) {
            return false;
        }
        let file = in_root(&self.root, path);
        let tables = self.files.tables.entry(file.clone());
        let tables = tables.or_insert_with(|| unwind_tables(&file).map(Arc::new));
        let tables = tables.clone();
        let bias = tables.as_deref().and_then(|tables| bias(mapping, tables));
        if let (Some(tables), Some(bias)) = (tables, bias) {
            let name = path.to_string_lossy().into_owned();
            let module = Module::new(name, self.extent(path), bias, tables.sections.clone());
            self.unwinder.add_module(module);
        }
        self.loaded.insert(path.clone(), (file, bias));
        true
    }

    fn mapping(&self, address: u64) -> Option<&'a Mapping> {
        let code = self
            .mappings
            .iter()
            .filter(|mapping| mapping.is_executable && mapping.path.is_absolute());
        code.into_iter()
            .find(|mapping| mapping.addresses.contains(&address))
    }

    /// Returns the addresses from the first to the last mapping of the file.
    fn extent(&self, path: &Path) -> Range<u64> {
        let of_file = || self.mappings.iter().filter(|mapping| mapping.path == path);
        let start = of_file().map(|mapping| mapping.addresses.start).min();
        let end = of_file().map(|mapping| mapping.addresses.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    fn in_file(&self, address: u64) -> CodeAddress {
        let mapping = self.mapping(address);
        let loaded = mapping.and_then(|mapping| self.loaded.get(&mapping.path));
        CodeAddress {
            file: loaded.map(|(file, _)| file.clone()),
            address: address.wrapping_sub(loaded.and_then(|(_, bias)| *bias).unwrap_or(0)),
        }
    }
}

impl Files {
    /// Finds the names of functions at these addresses, of those that are new.
    pub fn learn<'a>(&mut self, addresses: impl Iterator<Item = &'a CodeAddress>) {
        let mut by_file: BTreeMap<&Path, BTreeSet<u64>> = BTreeMap::new();
        for at in addresses.filter(|at| !self.names.contains_key(at)) {
            if let Some(file) = &at.file {
                by_file.entry(file).or_default().insert(at.address);
            }
        }
        for (file, addresses) in by_file {
            let addresses: Vec<u64> = addresses.into_iter().collect();
            let names = functions(file, &addresses);
            for (address, name) in addresses.into_iter().zip(names) {
                let file = Some(file.to_path_buf());
                self.names.insert(CodeAddress { file, address }, name);
            }
        }
    }

    /// Returns the name of the function at this address, if it is known.
    pub fn name(&self, at: &CodeAddress) -> Option<&String> {
        self.names.get(at)?.as_ref()
    }
}

/// Returns the path of a file of the process, which may have another root folder. The same files of
/// several processes should be read once, so the process's root is only used if it is needed.
fn in_root(root: &Path, path: &Path) -> PathBuf {
    if path.is_file() {
        return path.to_path_buf();
    }
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns how far the addresses in memory are from those in the file.
fn bias(mapping: &Mapping, tables: &UnwindTables) -> Option<u64> {
    const PAGE: u64 = 4096;
    let is_it = |(offset, _): &&(u64, u64)| offset / PAGE * PAGE == mapping.offset;
    let (_, address) = tables.segments.iter().find(is_it)?;
    let start = mapping.addresses.start;
    Some(start.wrapping_sub(address / PAGE * PAGE))
}

type Elf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<File>>;

/// That by which the stack is unwound through the code of a file. All addresses are those in the
/// file.
#[derive(Clone, Debug)]
struct UnwindTables {
    /// `.eh_frame`, its index, and what their entries are relative to.
    sections: ExplicitModuleSectionInfo<Arc<[u8]>>,
    /// Offset in the file and address of each part that is loaded.
    segments: Vec<(u64, u64)>,
}

/// Reads the unwind tables of the file; `None` if it is not an ELF file with 64 bits.
fn unwind_tables(path: &Path) -> Option<UnwindTables> {
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
fn functions(path: &Path, addresses: &[u64]) -> Vec<Option<String>> {
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
    let name = without_brackets(&demangled(mangled));
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
    fn a_mapping_has_addresses_offset_and_path() {
        let text = "55e0a000-55e0f000 r-xp 00002000 fe:00 397 \
                    /usr/bin/a program (deleted)\n7ffd0000-7ffd1000 rw-p 00000000 00:00 0 \n";
        let expected = Mapping {
            addresses: 0x55e0_a000..0x55e0_f000,
            offset: 0x2000,
            is_executable: true,
            path: PathBuf::from("/usr/bin/a program"),
        };
        assert_eq!(mappings(text), [expected]);
    }

    #[test]
    fn lines_that_are_no_mappings_are_left_out() {
        assert_eq!(
            mappings("\n-\nx-y r-xp 0 0 0 /a\n1-2\n1-2 r-xp z 0 0 /a"),
            []
        );
    }

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
