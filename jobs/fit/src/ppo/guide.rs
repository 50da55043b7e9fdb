//! The sizes that s003 recommends, with Brax's verdict on each.

use crate::ppo::rules::{PpoSizes, SizeChange};

/// A row of the tables in s003, or of the files that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuideRow {
    /// The place in s003 or the file.
    pub place: &'static str,
    /// Memory of the GPU that the row is for, in GB, if given.
    pub gpu_gb: Option<u64>,
    /// The sizes of the row.
    pub sizes: PpoSizes,
    /// Whether s003 calls the sizes valid or recommends them.
    pub is_said_valid: bool,
}

impl GuideRow {
    /// Returns whether Brax accepts the sizes.
    pub fn is_valid(&self) -> bool {
        self.sizes.check().is_ok()
    }

    /// Returns the nearest change that Brax accepts; `None` if the sizes are valid.
    pub fn correction(&self) -> Option<SizeChange> {
        if self.is_valid() {
            None
        } else {
            self.sizes.nearest().into_iter().next()
        }
    }
}

/// Returns all rows, in the order of the document. Brax refuses two of those that s003 recommends
/// or calls valid.
pub fn rows() -> Vec<GuideRow> {
    let row = |place, gpu_gb, (num_envs, batch_size, num_minibatches), is_said_valid| GuideRow {
        place,
        gpu_gb,
        sizes: PpoSizes {
            num_envs,
            batch_size,
            num_minibatches,
            devices: 1,
        },
        is_said_valid,
    };
    vec![
        row("gpu_8gb.yaml", Some(8), (512, 128, 2), true),
        row("default.yaml", Some(12), (1024, 256, 4), true),
        row("gpu_16gb.yaml", Some(16), (1536, 384, 6), true),
        row("production.yaml", Some(24), (2048, 512, 8), true),
        row("combinations", None, (1024, 512, 2), true),
        row("combinations", None, (1024, 256, 2), false),
        row("fix for 512", None, (512, 128, 4), true),
        row("quick.yaml", None, (256, 128, 2), true),
    ]
}
