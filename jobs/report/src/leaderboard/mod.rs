//! A leaderboard: the results of many certificates, as a page and as JSON.
//!
//! ```text
//! certificate ─► entry ─┬─ fails ──► refused, with the reason
//!                       └─ holds ──► rows, one for each policy and suite
//! rows of the same tasks ─► pairwise tests ─► rank intervals ─► leaderboard.json, leaderboard.html
//! ```
//! Rows have intervals of ranks instead of ranks, because rates that are not significantly
//! different have no order.

mod entry;
mod page;
mod ranks;
mod schema;

pub use entry::{Entry, Signed};
pub use page::render;
pub use schema::{Board, BoardGroup, BoardRefusal, BoardRow};

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::leaderboard::entry::{Row, Tasks};
use crate::leaderboard::ranks::Results;
use crate::merge::paths;

/// The `schema` field of every `leaderboard.json` that this version writes.
pub const SCHEMA: &str = "rrun/leaderboard/1";

/// Family-wise error rate of the comparisons of a group, and so of its rank intervals.
pub const LEVEL: f64 = 0.05;

/// Maximum number of rows; each is compared with all others of its group.
pub const MAX_ROWS: usize = 500;

/// What a certificate does not prove, for the page and for `docs/certificates.md`.
pub const LIMITS: [&str; 7] = [
    "That the policy was not trained or selected on these seeds: whoever has the certificate of a suite has its seeds.",
    "That this is the only run: an author may evaluate many times, with many seeds, and publish the best.",
    "That the simulator was not patched: versions of packages are compared by name and number, not by their contents.",
    "That the other episodes hold: of n episodes with d changed ones, a sample of k misses all of them with probability C(n−d, k) / C(n, k).",
    "That the author's own sample was run: it is what the author says. `rrun verify --rerun` runs one of your own.",
    "That a signer is who the key's name says: that is up to the file of allowed signers.",
    "What a policy on a server is: only the files of policies that ran in the ranks are hashed.",
];

/// Returns the path of a certificate from the folder of the leaderboard.
///
/// # Errors
/// Returns an error if there is no working directory.
pub fn link(folder: &Path, file: &Path) -> io::Result<String> {
    let (folder, file) = (paths::resolved(folder)?, paths::resolved(file)?);
    Ok(paths::from_to(&folder, &file))
}

impl Board {
    /// Makes the leaderboard of certificates. Of two with the same contents, the first counts.
    pub fn new(entries: Vec<Entry>, created: String) -> Self {
        let (mut groups, mut refused): (BTreeMap<Tasks, Vec<Row>>, _) = (BTreeMap::new(), vec![]);
        let (mut seen, mut count) = (BTreeMap::new(), 0);
        for Entry { file, found } in entries {
            let refuse = |reason: String| BoardRefusal {
                file: file.clone(),
                reason,
            };
            let certified = match found {
                Ok(certified) => certified,
                Err(reason) => {
                    refused.push(refuse(reason));
                    continue;
                }
            };
            if let Some(first) = seen.get(&certified.sha256) {
                refused.push(refuse(format!("has the same contents as `{first}`")));
            } else if count + certified.rows.len() > MAX_ROWS {
                let reason = format!("the leaderboard is full: it has {count} of {MAX_ROWS} rows");
                refused.push(refuse(reason));
            } else {
                count += certified.rows.len();
                seen.insert(certified.sha256, file.clone());
                for (tasks, row) in certified.rows {
                    groups.entry(tasks).or_default().push(row);
                }
            }
        }
        Self {
            schema: SCHEMA.to_owned(),
            created,
            level: LEVEL,
            groups: groups.into_iter().map(group).collect(),
            refused,
            limits: LIMITS.map(str::to_owned).to_vec(),
        }
    }
}

fn group((tasks, rows): (Tasks, Vec<Row>)) -> BoardGroup {
    let results: Vec<&Results> = rows.iter().map(|row| &row.results).collect();
    let ranks = ranks::intervals(&results, LEVEL);
    let is_paired = rows.windows(2).all(|pair| {
        let [a, b] = pair else { return true };
        a.results.is_paired_with(&b.results)
    });
    let mut rows: Vec<BoardRow> = rows
        .into_iter()
        .zip(ranks)
        .map(|(row, rank)| BoardRow { rank, ..row.shown })
        .collect();
    // Ties keep the order of their files.
    rows.sort_by(|a, b| {
        let rate = |row: &BoardRow| row.rates.success_rate.unwrap_or(0.0);
        a.rank.cmp(&b.rank).then(rate(b).total_cmp(&rate(a)))
    });
    BoardGroup {
        suite: tasks.suite,
        protocol: tasks.protocol,
        environments: tasks.environments,
        tasks_sha256: tasks.sha256,
        is_paired,
        rows,
    }
}

#[cfg(test)]
mod tests;
