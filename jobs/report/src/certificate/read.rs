//! Reads a certificate that a stranger may have written.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use jobs::files;
use jobs::refusal::Refusal;
use serde_json::Value;

use crate::certificate::{Certificate, SCHEMA, canonical};

/// Maximum size of a certificate in bytes: a quarter of a million episodes. Its JSON takes up to
/// sixteen times as much memory while it is read.
pub const MAX_BYTES: u64 = 32 << 20;

/// Beginning of the schema of every version.
pub const PREFIX: &str = "rrun/certificate/";

/// Number of bytes at the beginning of a file in which the schema is looked for.
const HEAD_BYTES: u64 = 4096;

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
    /// Refuses the file for the first problem found.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let text = files::read(path, MAX_BYTES);
        Self::parse(&text.map_err(|err| Refusal::at("cannot read the file", err))?)
    }

    /// Parses the text of a certificate and checks its hash.
    ///
    /// # Errors
    /// As [`Certificate::read`], without the errors of the file system.
    pub fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let value = canonical::parse(text).map_err(|err| Refusal::at("it is not JSON", err))?;
        let found = value.get("schema").and_then(Value::as_str);
        if found != Some(SCHEMA) {
            let found = found.unwrap_or_default().escape_debug();
            return Err(Refusal::new(format_args!(
                "its schema is `{found}`, expected `{SCHEMA}`"
            )));
        }
        // The hash is that of the text, with fields of other versions that `Self` does not have.
        let found = canonical::sha256(&value.get("contents"))
            .map_err(|err| err.inside("its contents have no hash"))?;
        let certificate: Self = serde_json::from_value(value)
            .map_err(|err| Refusal::at("a field is missing or wrong", err))?;
        if found != certificate.sha256 {
            return Err(Refusal::new(format_args!(
                "its contents were changed: their SHA-256 is {found}, the certificate says {}",
                certificate.sha256.escape_debug()
            )));
        }
        Ok(certificate)
    }
}
