//! Signs certificates with SSH keys, and checks such signatures. `ssh-keygen -Y` does both, so that
//! keys of agents and security keys work, and no key passes through this program.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use report::certificate::canonical::CanonicalError;
use report::certificate::{Certificate, Signature};

/// The namespace of the signatures: a signature of anything else is not one of a certificate.
pub(super) const NAMESPACE: &str = "rrun-certificate";

/// Maximum size of a signature in bytes; one of a 16384-bit RSA key has 6 KB.
const MAX_BYTES: usize = 16 << 10;

/// The reason why a certificate cannot be signed, or why its signature does not hold.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("cannot start `ssh-keygen`, which makes and checks signatures: {0}")]
    Start(io::Error),
    #[error("`ssh-keygen` cannot sign with `{}`: {said}", key.display())]
    Sign { key: PathBuf, said: String },
    #[error("--sign: cannot read the key `{}`: {err}", key.display())]
    Key { key: PathBuf, err: io::Error },
    #[error("--allowed-signers: cannot read `{}`: {err}", file.display())]
    Signers { file: PathBuf, err: io::Error },
    #[error("the signature does not hold: {0}")]
    Broken(String),
    #[error("the signature has {0} bytes, expected at most {MAX_BYTES}")]
    Large(usize),
    #[error(
        "the signature is by {key}, for which `{}` has no line for the namespace {NAMESPACE}",
        file.display()
    )]
    Unknown { key: String, file: PathBuf },
    #[error("the signed text cannot be made: {0}")]
    Text(#[from] CanonicalError),
    #[error("cannot write a temporary file: {0}")]
    Io(io::Error),
}

/// By whom a certificate is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signer {
    /// Type and fingerprint of the key, as in `ED25519 key SHA256:…`.
    pub(super) key: String,
    /// Who vouches for the key, from the file of allowed signers; `None` without such a file.
    pub(super) name: Option<String>,
}

/// Checks that there is a key to sign with.
pub(super) fn check_key(key: &Path) -> Result<(), SignatureError> {
    File::open(key)
        .map(drop)
        .map_err(|err| SignatureError::Key {
            key: key.to_owned(),
            err,
        })
}

/// Checks that the file of allowed signers can be read. Otherwise `ssh-keygen` knows no key, and the
/// certificate would seem to be wrong.
pub(super) fn check_signers(file: &Path) -> Result<(), SignatureError> {
    // A folder can be opened, but not read.
    fs::read(file)
        .map(drop)
        .map_err(|err| SignatureError::Signers {
            file: file.to_owned(),
            err,
        })
}

/// Signs a certificate. `key` is a private key, or a public key whose private half an agent has.
pub(super) fn sign(certificate: &Certificate, key: &Path) -> Result<Signature, SignatureError> {
    let words = [
        "-Y".as_ref(),
        "sign".as_ref(),
        "-n".as_ref(),
        NAMESPACE.as_ref(),
    ];
    let mut command = keygen(&words);
    command.arg("-f").arg(key);
    let output = run(command, &certificate.signed_text()?)?;
    if !output.status.success() {
        return Err(SignatureError::Sign {
            key: key.to_owned(),
            said: last_line(&output),
        });
    }
    Ok(Signature {
        ssh: String::from_utf8_lossy(&output.stdout).into_owned(),
    })
}

/// Checks the signature of a certificate, if it has one. With a file of allowed signers (see
/// `ssh-keygen(1)`), the key must be in it.
pub(super) fn check(
    certificate: &Certificate,
    allowed: Option<&Path>,
) -> Result<Option<Signer>, SignatureError> {
    let Some(Signature { ssh }) = &certificate.signature else {
        return Ok(None);
    };
    if ssh.len() > MAX_BYTES {
        return Err(SignatureError::Large(ssh.len()));
    }
    let folder = tempfile::tempdir().map_err(SignatureError::Io)?;
    let file = folder.path().join("signature");
    fs::write(&file, ssh).map_err(SignatureError::Io)?;
    let text = certificate.signed_text()?;
    let holds = ask("check-novalidate", &file, &[], &text)?;
    if !holds.status.success() {
        return Err(SignatureError::Broken(last_line(&holds)));
    }
    let said = String::from_utf8_lossy(&holds.stdout).into_owned();
    let key = said.trim().rsplit_once(" with ");
    let key = key.map_or(said.trim(), |(_, key)| key).to_owned();
    let Some(allowed) = allowed else {
        return Ok(Some(Signer { key, name: None }));
    };
    match principal(&file, allowed, &text)? {
        None => Err(SignatureError::Unknown {
            key,
            file: allowed.to_owned(),
        }),
        name => Ok(Some(Signer { key, name })),
    }
}

/// Returns the name by which the file of allowed signers knows the key, if it does.
fn principal(file: &Path, allowed: &Path, text: &[u8]) -> Result<Option<String>, SignatureError> {
    let among = ["-f".as_ref(), allowed.as_os_str()];
    let found = ask("find-principals", file, &among, text)?;
    let names = String::from_utf8_lossy(&found.stdout).into_owned();
    let Some(name) = names.lines().next().filter(|_| found.status.success()) else {
        return Ok(None);
    };
    let by = [
        "-f".as_ref(),
        allowed.as_os_str(),
        "-I".as_ref(),
        name.as_ref(),
    ];
    let holds = ask("verify", file, &by, text)?;
    Ok(holds.status.success().then(|| name.to_owned()))
}

fn ask(
    what: &str,
    signature: &Path,
    others: &[&std::ffi::OsStr],
    text: &[u8],
) -> Result<Output, SignatureError> {
    let words = [
        "-Y".as_ref(),
        what.as_ref(),
        "-n".as_ref(),
        NAMESPACE.as_ref(),
    ];
    let mut command = keygen(&words);
    command.arg("-s").arg(signature).args(others);
    run(command, text)
}

fn keygen(words: &[&std::ffi::OsStr]) -> Command {
    let mut command = Command::new("ssh-keygen");
    command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a command with a text as its input.
fn run(mut command: Command, text: &[u8]) -> Result<Output, SignatureError> {
    let mut child = command.spawn().map_err(SignatureError::Start)?;
    if let Some(mut input) = child.stdin.take() {
        // A program that refuses its arguments ends without reading.
        let _ = input.write_all(text);
    }
    child.wait_with_output().map_err(SignatureError::Start)
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().last().unwrap_or("no reason given").to_owned()
}
