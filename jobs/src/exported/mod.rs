//! Packages of `torch.export` and AOTInductor (`.pt2`): what they say about themselves, read
//! without running anything of them.
//!
//! ```text
//! policy.pt2 ─► archive ─┬─► AOTI_* (torch)          device, instruction set, GPU ─┐
//!                        ├─► rrun.inputs (exporter)  inputs, actions, batch        ├─► Package
//!                        └─► names and places of the compiled files                ┘
//! ```
//! A package is a zip file with the compiled library and its metadata. The launcher refuses one
//! that cannot run here; ranks compare it with their environment and their device, and load it.

mod archive;
mod description;
mod machine;
mod torch_keys;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};

pub use archive::{Archive, ArchiveError, Entry};
pub use description::{
    Batch, Description, DescriptionError, Input, Layout, Output, PixelKind, StateVector, TokenKind,
};
pub use machine::{Machine, Unfit};
pub use torch_keys::{TorchKeys, TorchKeysError};

/// The command that writes packages, for errors.
pub const EXPORTER: &str = "python runtime/python/export_policy.py MODULE.py:FUNCTION OUT.pt2";

/// The key of the metadata that describes inputs and actions.
const INPUTS_KEY: &str = "rrun.inputs";

/// Largest metadata of a package in bytes; a description has a few hundred.
const MOST_METADATA: u64 = 1 << 20;

/// The versions of libtorch that `rrun-rank` is built with, as major and minor number.
pub const TORCH_VERSIONS: &[&str] = &["2.11", "2.12"];

/// Why a package cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`{}`: {problem}", path.display())]
pub struct PackageError {
    /// Path of the file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: PackageProblem,
}

/// What is wrong with a package.
#[derive(Debug, thiserror::Error)]
pub enum PackageProblem {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// The file is not a zip file, or a damaged one.
    #[error(
        "it is not a `.pt2` package: {0}; expected what `torch._inductor.aoti_compile_and_package` \
         writes"
    )]
    Archive(#[from] ArchiveError),
    /// It has no compiled library, or several.
    #[error(
        "it has {found} compiled libraries in `data/aotinductor/`, expected 1; a package of one \
         model without `package_cpp_only` has one"
    )]
    Libraries {
        /// Number of libraries.
        found: usize,
    },
    /// Its weights are beside the library.
    #[error(
        "its weights are in `{name}`, expected them in the library; export it without \
         `package_constants_on_disk_format`"
    )]
    WeightsApart {
        /// Name of the entry.
        name: String,
    },
    /// The metadata of torch is missing or wrong.
    #[error("its metadata: {0}")]
    TorchKeys(#[from] TorchKeysError),
    /// The description of its inputs is missing.
    #[error(
        "its metadata has no `rrun.inputs`, which says what its inputs are; `{EXPORTER}` writes it"
    )]
    NoDescription,
    /// The description of its inputs is wrong.
    #[error("`rrun.inputs` in its metadata: {0}; `{EXPORTER}` writes it")]
    Description(#[from] DescriptionError),
    /// It was exported by a torch whose compiled code this libtorch does not run.
    #[error("it was exported by torch {found}, expected {wanted}; export it with that version")]
    Torch {
        /// The version of torch that exported it.
        found: String,
        /// The versions that can run it.
        wanted: String,
    },
    /// This machine cannot run it.
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

/// What a package says about itself.
#[derive(Clone, Debug)]
pub struct Package {
    path: PathBuf,
    /// Inputs, actions and batch sizes.
    pub description: Description,
    /// What it was compiled for.
    pub compiled_for: TorchKeys,
    library: String,
    files: Vec<Entry>,
}

impl Package {
    /// Reads the metadata of a package.
    ///
    /// # Errors
    /// Returns a [`PackageError`] for a file that is not a package, or whose metadata is missing or
    /// wrong.
    pub fn read(path: &Path) -> Result<Self, PackageError> {
        let read = || {
            let file = BufReader::new(File::open(path)?);
            Self::of(path, &mut Archive::open(file)?)
        };
        read().map_err(|problem| PackageError {
            path: path.to_owned(),
            problem,
        })
    }

    /// Reads the metadata of an open package.
    fn of<F: Read + Seek>(path: &Path, archive: &mut Archive<F>) -> Result<Self, PackageProblem> {
        let libraries: Vec<&Entry> = compiled(archive.entries())
            .filter(|entry| entry.name.ends_with(".so"))
            .collect();
        let [library] = libraries[..] else {
            let found = libraries.len();
            return Err(PackageProblem::Libraries { found });
        };
        let (folder, library_name) = split(&library.name);
        let metadata = format!("{}_metadata.json", library.name.trim_end_matches(".so"));
        let files: Vec<Entry> = compiled(archive.entries())
            .filter(|entry| split(&entry.name).0 == folder)
            .filter(|entry| !entry.name.ends_with(".cpp"))
            .cloned()
            .collect();
        if let Some(weights) = files.iter().find(|entry| entry.name.ends_with(".blob")) {
            let name = weights.name.clone();
            return Err(PackageProblem::WeightsApart { name });
        }
        files.iter().try_for_each(Entry::check)?;
        let library = library_name.to_owned();
        let Some(metadata) = archive.entry(&metadata).cloned() else {
            return Err(TorchKeysError::Missing { key: "metadata" }.into());
        };
        let bytes = archive.read(&metadata, MOST_METADATA)?;
        let (compiled_for, others) = TorchKeys::parse(&bytes)?;
        let described = others.get(INPUTS_KEY);
        let described = described.ok_or(PackageProblem::NoDescription)?;
        Ok(Self {
            path: path.to_owned(),
            description: Description::parse(described)?,
            compiled_for,
            library,
            files,
        })
    }

    /// Returns the path of the package.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the compiled library among its files.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Returns the size in bytes of the files that [`extract`](Self::extract) writes.
    pub fn extracted_bytes(&self) -> u64 {
        let sizes = self.files.iter().map(|entry| entry.size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Writes the compiled files to `folder`, which must be empty.
    ///
    /// # Errors
    /// Returns the error of the file that could not be read or written.
    pub fn extract(&self, folder: &Path) -> Result<(), PackageProblem> {
        let mut archive = Archive::open(BufReader::new(File::open(&self.path)?))?;
        for entry in &self.files {
            let (_, name) = split(&entry.name);
            let mut file = File::create_new(folder.join(name))?;
            archive.copy(entry, &mut file)?;
            file.flush()?;
        }
        Ok(())
    }

    /// Checks what can be checked without libtorch: the version of torch, and the instruction set
    /// of the CPU.
    ///
    /// # Errors
    /// Returns the reason why it cannot run on `machine`.
    pub fn check(&self, machine: &Machine) -> Result<(), PackageError> {
        let check = || {
            self.check_torch(TORCH_VERSIONS)?;
            Ok(machine.check(&self.compiled_for, &self.description)?)
        };
        check().map_err(|problem| self.error(problem))
    }

    /// Checks that the package was exported by one of these versions of torch (`2.11`).
    ///
    /// # Errors
    /// Returns [`PackageProblem::Torch`] for another one.
    pub fn check_torch(&self, versions: &[&str]) -> Result<(), PackageProblem> {
        let found = &self.description.torch;
        let mut numbers = found.splitn(3, '.');
        let minor = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
        if versions.contains(&minor.join(".").as_str()) {
            return Ok(());
        }
        Err(PackageProblem::Torch {
            found: found.clone(),
            wanted: versions.join(" or "),
        })
    }

    /// Returns an error about this package.
    pub fn error(&self, problem: PackageProblem) -> PackageError {
        PackageError {
            path: self.path.clone(),
            problem,
        }
    }
}

/// Returns the entries in the folder of compiled models.
fn compiled(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries
        .iter()
        .filter(|entry| entry.name.contains("data/aotinductor/") && !entry.name.ends_with('/'))
}

/// Splits the name of an entry into its folder and the name of the file.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
