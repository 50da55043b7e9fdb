//! All shards of a model directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::super::LoadError;
use super::header::Entry;
use super::index;
use super::shard::Shard;

/// A checkpoint in one file.
pub(crate) const SINGLE: &str = "model.safetensors";
/// Which shard holds what, of a checkpoint in several.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Tensors by name, none of them read yet.
#[derive(Debug)]
pub(super) struct Checkpoint {
    dir: PathBuf,
    shards: Vec<Shard>,
    /// Tensor to place in its shard, by number.
    tensors: BTreeMap<String, (usize, Entry)>,
}

impl Checkpoint {
    /// Maps `model.safetensors`, or the shards of its index; checks the headers, reads no tensor.
    pub(super) fn open(dir: &Path) -> Result<Self, LoadError> {
        let mut checkpoint = Self { dir: dir.to_owned(), shards: Vec::new(), tensors: BTreeMap::new() };
        let index = dir.join(INDEX);
        if dir.join(SINGLE).is_file() {
            checkpoint.add(&dir.join(SINGLE), None)?;
        } else if index.is_file() {
            checkpoint.add_all(&index)?;
        } else {
            return Err(LoadError::NoFile { dir: dir.to_owned(), wanted: format!("`{SINGLE}` or `{INDEX}`") });
        }
        Ok(checkpoint)
    }

    /// The model directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a tensor lies: the number of its shard, and its place there.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &Entry)> {
        self.tensors.get(name).map(|(shard, entry)| (*shard, entry))
    }

    /// The shards in the order of their numbers.
    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Names in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shards that an index names.
    fn add_all(&mut self, index: &Path) -> Result<(), LoadError> {
        let mut wanted = BTreeMap::<String, BTreeSet<String>>::new();
        for (name, file) in index::read(index)? {
            wanted.entry(file).or_default().insert(name);
        }
        for (file, names) in &wanted {
            let path = self.dir.join(file);
            if !path.is_file() {
                let wanted = format!("`{file}`, a shard of `{INDEX}`");
                return Err(LoadError::NoFile { dir: self.dir.clone(), wanted });
            }
            self.add(&path, Some((index, names)))?;
        }
        Ok(())
    }

    /// One file; with an index, it must hold exactly the tensors that the index says.
    fn add(&mut self, path: &Path, index: Option<(&Path, &BTreeSet<String>)>) -> Result<(), LoadError> {
        let (shard, entries) = Shard::open(path)?;
        if let Some((index, wanted)) = index {
            let found: BTreeSet<_> = entries.iter().map(|(name, _)| name.clone()).collect();
            let bad = |reason| Err(LoadError::Index { path: index.to_owned(), reason });
            if let Some(name) = wanted.difference(&found).next() {
                return bad(format!("tensor `{name}` is not in `{}`", path.display()));
            }
            if let Some(name) = found.difference(wanted).next() {
                return bad(format!("tensor `{name}` of `{}` is not there in the index", path.display()));
            }
        }
        let number = self.shards.len();
        self.shards.push(shard);
        self.tensors.extend(entries.into_iter().map(|(name, entry)| (name, (number, entry))));
        Ok(())
    }
}
