//! Reads a certificate that a stranger may have written.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use jobs::files;
use serde_json::Value;

use crate::certificate::canonical::{self, CanonicalError};
use crate::certificate::{Certificate, SCHEMA};

/// Maximum size of a certificate in bytes: a quarter of a million episodes. Its JSON takes up to
/// sixteen times as much memory while it is read.
pub const MAX_BYTES: u64 = 32 << 20;

/// Beginning of the schema of every version.
pub const PREFIX: &str = "rrun/certificate/";

/// Number of bytes at the beginning of a file in which the schema is looked for.
const HEAD_BYTES: u64 = 4096;

/// Why a file is no certificate, or one that has been changed.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Read(#[from] io::Error),
    /// The file is not JSON.
    #[error("it is not JSON: {0}")]
    Syntax(#[source] serde_json::Error),
    /// The file is of another kind or version.
    #[error("its schema is `{}`, expected `{SCHEMA}`", found.escape_debug())]
    Schema {
        /// The schema; empty if there is none.
        found: String,
    },
    /// The contents have no hash.
    #[error("its contents have no hash: {0}")]
    Canonical(#[from] CanonicalError),
    /// The contents are not those of which the hash was computed.
    #[error("its contents were changed: their SHA-256 is {found}, the certificate says {}", said.escape_debug())]
    Hash {
        /// The hash of the contents.
        found: String,
        /// The hash that the certificate contains.
        said: String,
    },
    /// A field is missing or has another type.
    #[error("a field is missing or wrong: {0}")]
    Field(#[source] serde_json::Error),
}

/// Returns whether a file says at its beginning that it is a certificate, of whatever version.
pub fn is_certificate(path: &Path) -> bool {
    let head = || -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        let file: File = files::open(path)?;
        file.take(HEAD_BYTES).read_to_end(&mut head)?;
        Ok(head)
    };
    head().is_ok_and(|head| {
        head.windows(PREFIX.len())
            .any(|window| window == PREFIX.as_bytes())
    })
}

impl Certificate {
    /// Reads a certificate and checks its hash.
    ///
    /// # Errors
    /// Returns [`CertificateError`] for the first problem found.
    pub fn read(path: &Path) -> Result<Self, CertificateError> {
        Self::parse(&files::read(path, MAX_BYTES)?)
    }

    /// Parses the text of a certificate and checks its hash.
    ///
    /// # Errors
    /// As [`Certificate::read`], without the errors of the file system.
    pub fn parse(text: &[u8]) -> Result<Self, CertificateError> {
        let value = canonical::parse(text).map_err(CertificateError::Syntax)?;
        let found = value.get("schema").and_then(Value::as_str);
        if found != Some(SCHEMA) {
            return Err(CertificateError::Schema {
                found: found.unwrap_or_default().to_owned(),
            });
        }
        // The hash is that of the text, with fields of other versions that `Self` does not have.
        let found = canonical::sha256(&value.get("contents"))?;
        let certificate: Self = serde_json::from_value(value).map_err(CertificateError::Field)?;
        if found != certificate.sha256 {
            return Err(CertificateError::Hash {
                found,
                said: certificate.sha256,
            });
        }
        Ok(certificate)
    }
}
