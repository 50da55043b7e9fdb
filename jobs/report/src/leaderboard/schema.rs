//! The fields of `leaderboard.json`.

use serde::Serialize;

use crate::certificate::CertifiedRates;

/// The results of many certificates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Board {
    /// Schema of the file: `rrun/leaderboard/1`.
    pub schema: String,
    /// When the leaderboard was made, RFC 3339 in UTC.
    pub created: String,
    /// Family-wise error rate of the comparisons within a group.
    pub level: f64,
    /// Rows that can be compared, because their tasks are the same.
    pub groups: Vec<BoardGroup>,
    /// Certificates that are not ranked.
    pub refused: Vec<BoardRefusal>,
    /// What a certificate does not prove.
    pub limits: Vec<String>,
}

/// Rows with the same tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoardGroup {
    /// Name of the suite; `None` for jobs that belong to none.
    pub suite: Option<String>,
    /// Version of the suite's protocol.
    pub protocol: Option<String>,
    /// Names of the environments, each once.
    pub environments: Vec<String>,
    /// SHA-256 of what the jobs ask for besides the policy.
    pub tasks_sha256: String,
    /// Whether all rows have the same seeds, so that they are compared episode by episode.
    pub is_paired: bool,
    /// The rows, best first.
    pub rows: Vec<BoardRow>,
}

/// The result of one policy in one certificate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoardRow {
    /// Policy type.
    pub policy_type: String,
    /// File or folder of the policy, as its author names it.
    pub policy: Option<String>,
    /// SHA-256 of its files.
    pub policy_sha256: Option<String>,
    /// Highest and lowest rank that the comparisons leave, from 1.
    pub rank: [usize; 2],
    /// The success rate with its interval.
    #[serde(flatten)]
    pub rates: CertifiedRates,
    /// The certificate's file, relative to the leaderboard.
    pub file: String,
    /// SHA-256 of the certificate's contents, which was computed again.
    pub sha256: String,
    /// Key of the signature, which was checked; `None` if there is none.
    pub key: Option<String>,
    /// Name of the signer in the file of allowed signers.
    pub signer: Option<String>,
    /// Of how many episodes the author says that they came out the same when they were run again,
    /// and how many were.
    pub sample: Option<[usize; 2]>,
}

/// A certificate that is not ranked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoardRefusal {
    /// The file, relative to the leaderboard.
    pub file: String,
    /// Why it is not ranked.
    pub reason: String,
}
