//! Which file an episode goes to.

use std::path::PathBuf;

use super::file::DemoFile;
use super::plan::{DatasetPlan, Export};
use crate::record::closed::Closed;
use crate::record::episode::Episode;
use crate::record::writer::Store;
use crate::record::{EpisodeEnd, RecordError};

/// The HDF5 files of one plan.
pub(super) struct Files {
    export: Export,
    first: DemoFile,
    failed: Option<DemoFile>,
}

impl Files {
    /// Creates the files, or goes on with those that are there.
    pub(super) fn open(plan: &DatasetPlan, notes: &mut Vec<String>) -> Result<Self, RecordError> {
        let mut open = |path: PathBuf, first_demo| {
            let (file, lost) = DemoFile::open(path, &plan.env_args, first_demo)?;
            notes.extend(lost);
            Ok::<_, RecordError>(file)
        };
        let first = open(plan.path.clone(), plan.first_demo)?;
        let failed = (plan.export == Export::Separate)
            .then(|| open(DatasetPlan::failed_path(&plan.path), plan.first_failed_demo))
            .transpose()?;
        Ok(Self { export: plan.export, first, failed })
    }
}

impl Store for Files {
    fn append(&mut self, episode: &Episode, end: EpisodeEnd) -> Result<Option<(PathBuf, String)>, RecordError> {
        let file = match (self.export, end.success, &mut self.failed) {
            (Export::Separate, false, Some(failed)) => failed,
            (Export::Succeeded, false, _) => return Ok(None),
            _ => &mut self.first,
        };
        let demo = file.append(episode, end)?;
        Ok(Some((file.path().to_owned(), demo)))
    }

    fn finish(mut self: Box<Self>) -> Closed {
        let failed = self.failed.as_mut().map_or(Ok(()), DemoFile::finish);
        Closed::of(self.first.finish().and(failed))
    }
}
