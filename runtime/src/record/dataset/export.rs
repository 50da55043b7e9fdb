//! Chooses the dataset of an episode.

use crate::record::dataset::plan::Export;
use crate::record::episode::EpisodeRows;
use crate::record::lane::Closed;
use crate::record::parts::EpisodeLocation;
use crate::record::writer::DatasetWriter;
use crate::record::{EpisodeEnd, RecordError};

/// The datasets of one plan.
pub(super) struct Exported {
    /// Selects the episodes to keep.
    pub(super) export: Export,
    /// The dataset of all episodes, or of the successful ones.
    pub(super) first: Box<dyn DatasetWriter>,
    /// The dataset of the failed episodes, if they are kept separately.
    pub(super) failed: Option<Box<dyn DatasetWriter>>,
}

impl DatasetWriter for Exported {
    fn append(
        &mut self,
        episode: &EpisodeRows,
        end: EpisodeEnd,
    ) -> Result<Option<EpisodeLocation>, RecordError> {
        match (self.export, end.success, &mut self.failed) {
            (Export::Separate, false, Some(failed)) => failed.append(episode, end),
            (Export::Succeeded, false, _) => Ok(None),
            _ => self.first.append(episode, end),
        }
    }

    fn finish(self: Box<Self>) -> Closed {
        self.first.finish().and(
            self.failed
                .map_or_else(Closed::default, DatasetWriter::finish),
        )
    }
}
