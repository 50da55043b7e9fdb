//! TLS for `wss://`: which certificates are trusted, and what a failed handshake means.
//!
//! The same stack as for planners behind HTTPS: rustls with ring, and the authorities that browsers
//! trust unless a file names others.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jobs::files::{self, MAX_DOCUMENT_BYTES};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use crate::policy::PolicyError;

/// Returns what a connection is made with that trusts the authorities in a PEM file, or those that
/// browsers trust.
///
/// # Errors
/// Returns an error if the file cannot be read, or contains no usable certificate.
pub(super) fn trusting(ca_file: Option<&PathBuf>) -> Result<Arc<ClientConfig>, PolicyError> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            for certificate in read_certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|err| PolicyError::file(path, format_args!("a certificate: {err}")))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the cipher suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Reads the certificates of a PEM file.
///
/// # Errors
/// Returns an error if the file cannot be read, or has no certificate.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PolicyError> {
    let pem = files::read(path, MAX_DOCUMENT_BYTES);
    let pem = pem.map_err(|err| PolicyError::file(path, err))?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .filter_map(Result::ok)
        .collect();
    if found.is_empty() {
        return Err(PolicyError::file(path, "it has no certificate in PEM"));
    }
    Ok(found)
}

/// Explains an error of reading or writing, if it is one of TLS.
pub(super) fn reason_of(err: &io::Error) -> Option<String> {
    err.get_ref()?.downcast_ref().map(tls_reason)
}

/// Explains an error of TLS, as a sentence about the server.
fn tls_reason(err: &Error) -> String {
    match err {
        Error::InvalidCertificate(err) => certificate_reason(err),
        Error::InvalidMessage(_) => {
            "it does not speak TLS: with wss:// in remote_host, a server with TLS is needed"
                .to_owned()
        }
        Error::AlertReceived(alert) => format!("it refuses the TLS handshake: {alert:?}"),
        other => format!("its TLS cannot be used: {other}"),
    }
}

fn certificate_reason(err: &CertificateError) -> String {
    use CertificateError as Reason;
    match err {
        Reason::UnknownIssuer => {
            "its certificate is not signed by a trusted authority; remote_ca_file names the PEM \
             file of another authority"
                .to_owned()
        }
        Reason::Expired | Reason::ExpiredContext { .. } => "its certificate has expired".to_owned(),
        Reason::NotValidYet | Reason::NotValidYetContext { .. } => {
            "its certificate is not valid yet; is the clock of this machine right?".to_owned()
        }
        Reason::NotValidForNameContext {
            expected,
            presented,
        } if !presented.is_empty() => format!(
            "its certificate is for {}, not for {}",
            presented
                .iter()
                .map(|name| plain(name))
                .collect::<Vec<_>>()
                .join(", "),
            expected.to_str()
        ),
        Reason::NotValidForName | Reason::NotValidForNameContext { .. } => {
            "its certificate is for another name than that in remote_host".to_owned()
        }
        other => format!("its certificate is refused: {other}"),
    }
}

/// Returns the name in rustls' `DnsName("gpu7")` or `IpAddress(10.0.0.7)`.
fn plain(presented: &str) -> &str {
    let inner = presented
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (text, reason) in [
            (None, "ca.pem`: No such file"),
            (Some("no PEM"), "ca.pem`: it has no certificate in PEM"),
            (Some(broken), "ca.pem`: a certificate: "),
        ] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let refusal = trusting(Some(&path)).unwrap_err().to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }

    #[test]
    fn every_reason_names_what_is_wrong() {
        let expected = ServerName::try_from("gpu7").unwrap();
        let presented = vec!["DnsName(\"gpu8\")".to_owned()];
        let other_name = CertificateError::NotValidForNameContext {
            expected,
            presented,
        };
        let no_tls = rustls::InvalidMessage::InvalidContentType;
        for (err, wanted) in [
            (CertificateError::UnknownIssuer.into(), "remote_ca_file"),
            (CertificateError::Expired.into(), "has expired"),
            (
                other_name.into(),
                "its certificate is for gpu8, not for gpu7",
            ),
            (Error::InvalidMessage(no_tls), "it does not speak TLS"),
        ] {
            assert!(tls_reason(&err).contains(wanted), "{}", tls_reason(&err));
        }
    }
}
