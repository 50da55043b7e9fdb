//! The sizes that s003 recommends, each looked at.

use super::rules::{Change, Sizes};

/// A row of s003, or of the files that it speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where it stands.
    pub place: &'static str,
    /// The card it is for, in GB, if it says.
    pub gpu_gb: Option<u64>,
    /// Its sizes.
    pub sizes: Sizes,
    /// Whether s003 says that it is valid; a recommendation says so, too.
    pub is_said_valid: bool,
}

impl Row {
    /// Whether Brax accepts it.
    pub fn is_valid(&self) -> bool {
        self.sizes.check().is_ok()
    }

    /// What would be accepted in its place, the nearest.
    pub fn correction(&self) -> Option<Change> {
        if self.is_valid() { None } else { self.sizes.nearest().into_iter().next() }
    }
}

/// All rows, in the order of the document. Two of those that it recommends or calls valid are refused by Brax.
pub fn rows() -> Vec<Row> {
    let row = |place, gpu_gb, (num_envs, batch_size, num_minibatches), is_said_valid| Row {
        place,
        gpu_gb,
        sizes: Sizes { num_envs, batch_size, num_minibatches, devices: 1 },
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
