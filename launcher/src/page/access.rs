//! Who may see the page. Pure.
//!
//! Without a token the page is on a loopback address, and everybody on the machine may see it. Then
//! the request has to name this machine: a page from elsewhere whose name was made to lead here (DNS
//! rebinding) does not. With a token the browser has to show it, once in the form of the page's door,
//! from then on by a cookie; programs send `Authorization: Bearer …`.

use jobs::sha256;

use crate::plan::server::PageToken;

/// Name of the cookie of those who have shown the token.
const COOKIE: &str = "rrun_page";

/// What a request says of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claims<'a> {
    /// The header `Host`.
    pub(super) host: Option<&'a str>,
    /// The header `Authorization`.
    pub(super) authorization: Option<&'a str>,
    /// The header `Cookie`.
    pub(super) cookie: Option<&'a str>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It is answered.
    Welcome,
    /// It has to show the token first.
    TokenNeeded,
    /// It has shown something else.
    WrongToken,
    /// It is for another host.
    OtherHost,
}

/// The rule by which requests are judged.
#[derive(Debug)]
pub(super) struct Access {
    token: Option<TokenDigests>,
}

/// Digests of the token, so that comparisons tell nothing by their time.
#[derive(Debug)]
struct TokenDigests {
    token: [u8; 32],
    cookie: String,
}

impl Access {
    pub(super) fn new(token: Option<&PageToken>) -> Self {
        let digests = |token: &PageToken| TokenDigests {
            token: sha256::digest(token.as_str()),
            cookie: sha256::of(format!("rrun page cookie\n{}", token.as_str())),
        };
        Self {
            token: token.map(digests),
        }
    }

    pub(super) fn judge(&self, claims: Claims) -> Judgement {
        let Some(token) = &self.token else {
            return match claims.host.is_none_or(is_this_machine) {
                true => Judgement::Welcome,
                false => Judgement::OtherHost,
            };
        };
        let cookies = claims.cookie.into_iter().flat_map(|all| all.split(';'));
        let mut values = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        let is_known = |(name, value): (&str, &str)| {
            name == COOKIE && sha256::digest(value) == sha256::digest(&token.cookie)
        };
        if values.any(is_known) {
            return Judgement::Welcome;
        }
        match claims
            .authorization
            .map(|value| value.strip_prefix("Bearer "))
        {
            None => Judgement::TokenNeeded,
            Some(Some(shown)) if self.is_token(shown) => Judgement::Welcome,
            Some(_) => Judgement::WrongToken,
        }
    }

    /// Returns whether this is the token.
    pub(super) fn is_token(&self, shown: &str) -> bool {
        let token = self.token.as_ref();
        token.is_some_and(|token| sha256::digest(shown) == token.token)
    }

    /// Returns the header `Set-Cookie` for one who has shown the token.
    pub(super) fn cookie(&self) -> Option<String> {
        let value = &self.token.as_ref()?.cookie;
        Some(format!(
            "{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict"
        ))
    }
}

/// Returns whether a header `Host` is one by which only this machine reaches itself.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    jobs::host::is_loopback(&address.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_host(host: &str) -> Judgement {
        Access::new(None).judge(Claims {
            host: Some(host),
            ..Claims::default()
        })
    }

    #[test]
    fn without_a_token_only_names_of_this_machine_are_answered() {
        for host in [
            "localhost:8123",
            "127.0.0.1",
            "127.0.0.2:1",
            "[::1]:80",
            "LOCALHOST",
        ] {
            assert_eq!(of_host(host), Judgement::Welcome, "{host}");
        }
        for host in [
            "evil.example:8123",
            "10.0.0.1:8123",
            "localhost.evil.example",
            "",
            "[::2]",
        ] {
            assert_eq!(of_host(host), Judgement::OtherHost, "{host}");
        }
    }

    #[test]
    fn a_token_is_shown_by_a_header_or_a_cookie() {
        let token = PageToken::new("s3cret-and-long").unwrap();
        let access = Access::new(Some(&token));
        let bearer = |value| {
            access.judge(Claims {
                authorization: Some(value),
                host: Some("evil.example"),
                ..Claims::default()
            })
        };
        assert_eq!(access.judge(Claims::default()), Judgement::TokenNeeded);
        assert_eq!(bearer("Bearer s3cret-and-long"), Judgement::Welcome);
        for wrong in ["Bearer s3cret", "Bearer ", "Basic s3cret-and-long", ""] {
            assert_eq!(bearer(wrong), Judgement::WrongToken, "{wrong}");
        }
        let set = access.cookie().unwrap();
        let pair = set.split(';').next().unwrap();
        assert!(!set.contains("s3cret"), "the cookie is not the token");
        let cookie = |cookie: &str| {
            access.judge(Claims {
                cookie: Some(cookie),
                ..Claims::default()
            })
        };
        assert_eq!(cookie(&format!("a=b; {pair}")), Judgement::Welcome);
        for wrong in ["rrun_page=", "rrun_page=s3cret-and-long", "x", ""] {
            assert_eq!(cookie(wrong), Judgement::TokenNeeded, "{wrong}");
        }
    }

    #[test]
    fn another_token_has_another_cookie() {
        let cookie = |token| Access::new(PageToken::new(token).ok().as_ref()).cookie();
        assert_ne!(cookie("one-long-token"), cookie("two-long-token"));
        assert_eq!(Access::new(None).cookie(), None);
        assert!(!Access::new(None).is_token(""));
    }
}
