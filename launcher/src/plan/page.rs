//! The plan of the page that is served while an evaluation lasts (`--page`).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use jobs::refusal::Refusal;
use serde::Serialize;

/// Fewest characters of a token.
const SHORTEST: usize = 8;

/// Where the page of a run is served, and to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PagePlan {
    /// Address to listen on.
    pub host: IpAddr,
    /// Port to listen on.
    pub port: u16,
    /// The token that browsers have to show; without one the address is a loopback one.
    #[serde(skip)]
    pub token: Option<PageToken>,
}

/// The token of a page. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct PageToken(String);

impl PagePlan {
    /// Checks what the command line and the environment ask for.
    ///
    /// # Errors
    /// Refuses a page that others could see, and a token that is easy to guess.
    pub fn new(address: SocketAddr, token: Option<&str>) -> Result<Self, Refusal> {
        let (host, port) = (address.ip(), address.port());
        let token = token.map(PageToken::new).transpose()?;
        if token.is_none() && !host.is_loopback() {
            return Err(Refusal::new(format_args!(
                "--page is for {host}, where others can reach the page: set RRUN_PAGE_TOKEN to a \
                 token that browsers have to show"
            )));
        }
        Ok(Self { host, port, token })
    }

    /// Returns the address to listen on.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }
}

impl PageToken {
    /// Checks a token.
    ///
    /// # Errors
    /// Refuses one that is easy to guess.
    pub fn new(token: &str) -> Result<Self, Refusal> {
        match token.chars().count() {
            found if found < SHORTEST => Err(Refusal::new(format_args!(
                "RRUN_PAGE_TOKEN has {found} characters, at least {SHORTEST} are needed"
            ))),
            _ => Ok(Self(token.to_owned())),
        }
    }

    /// Returns the text, which must not be printed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageToken(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(host: &str, token: Option<&str>) -> Result<PagePlan, Refusal> {
        PagePlan::new(SocketAddr::new(host.parse().unwrap(), 8123), token)
    }

    #[test]
    fn only_this_machine_sees_a_page_without_a_token() {
        assert!(plan("127.0.0.1", None).is_ok() && plan("::1", None).is_ok());
        assert!(plan("0.0.0.0", Some("s3cret-token")).is_ok());
        let err = plan("0.0.0.0", None).unwrap_err().to_string();
        assert_eq!(
            err,
            "--page is for 0.0.0.0, where others can reach the page: set RRUN_PAGE_TOKEN to a \
             token that browsers have to show"
        );
    }

    #[test]
    fn a_short_token_is_refused_and_no_token_is_printed() {
        let err = plan("127.0.0.1", Some("short")).unwrap_err().to_string();
        assert_eq!(
            err,
            "RRUN_PAGE_TOKEN has 5 characters, at least 8 are needed"
        );
        let plan = plan("127.0.0.1", Some("s3cret-token")).unwrap();
        assert!(!format!("{plan:?}").contains("s3cret"));
        assert!(!serde_json::to_string(&plan).unwrap().contains("s3cret"));
    }
}
