//! What a request asks for. Pure: method and path in, a route out.

use hyper::Method;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The page.
    Page,
    /// The events of the page, from this one on.
    Events {
        /// Number of the last event that the browser has seen.
        seen: Option<String>,
    },
    /// The newest picture of an environment.
    Picture {
        /// The rank.
        rank: usize,
        /// Index of the environment within the rank.
        env: usize,
    },
    /// A hang report.
    Hang(u64),
    /// A path as a journal may name it. Whether one does is for others to say.
    File(String),
    /// The form with the token.
    Login,
    /// A command to the ranks.
    Command,
    /// Nothing that there is.
    NotFound,
    /// The method is another one for this path.
    OtherMethod,
}

impl Route {
    /// Reads a request; `query` is what follows `?`.
    pub(super) fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        let is_form = matches!(path, "/login" | "/command");
        match (is_form, method) {
            (true, &Method::POST) if path == "/login" => return Self::Login,
            (true, &Method::POST) => return Self::Command,
            (false, &Method::GET) => {}
            _ => return Self::OtherMethod,
        }
        let parts: Vec<_> = path.trim_start_matches('/').split('/').collect();
        match parts[..] {
            [""] => Self::Page,
            ["events"] => Self::Events {
                seen: query.and_then(|query| Some(query.strip_prefix("seen=")?.to_owned())),
            },
            ["picture", rank, env] => match (rank.parse(), env.parse()) {
                (Ok(rank), Ok(env)) => Self::Picture { rank, env },
                _ => Self::NotFound,
            },
            ["hang", number] => number.parse().map_or(Self::NotFound, Self::Hang),
            _ => decoded(path.trim_start_matches('/')).map_or(Self::NotFound, Self::File),
        }
    }
}

/// Replaces `%XX` in a path; `None` if that is no text.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || (rest.next()? as char).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.contains('\0')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str) -> Route {
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path, None),
        };
        Route::of(&Method::GET, path, query)
    }

    #[test]
    fn paths_are_what_they_say_and_what_is_no_number_and_no_text_is_not_found() {
        let file = |name: &str| Route::File(name.to_owned());
        let seen = |number: Option<&str>| Route::Events {
            seen: number.map(str::to_owned),
        };
        for (path, route) in [
            ("/", Route::Page),
            ("/events", seen(None)),
            ("/events?seen=ab-7", seen(Some("ab-7"))),
            ("/picture/0/12?99", Route::Picture { rank: 0, env: 12 }),
            ("/picture/0/-1", Route::NotFound),
            ("/picture/a/b", Route::NotFound),
            ("/hang/3", Route::Hang(3)),
            ("/hang/99999999999999999999", Route::NotFound),
            ("/hang/x", Route::NotFound),
            ("/reach/video%20%231.mp4", file("reach/video #1.mp4")),
            ("/a%", Route::NotFound),
            ("/a%4", Route::NotFound),
            ("/a%zz", Route::NotFound),
            ("/a%ff", Route::NotFound),
            ("/a%00b", Route::NotFound),
            // These stay names, which no journal has.
            (
                "/picture/0/../../plan.json",
                file("picture/0/../../plan.json"),
            ),
            ("/%2e%2e/plan.json", file("../plan.json")),
        ] {
            assert_eq!(get(path), route, "{path}");
        }
    }

    #[test]
    fn what_changes_something_is_posted_and_all_else_is_not() {
        let of = |method, path| Route::of(&method, path, None);
        assert_eq!(of(Method::POST, "/command"), Route::Command);
        assert_eq!(of(Method::POST, "/login"), Route::Login);
        for (method, path) in [
            (Method::GET, "/command"),
            (Method::GET, "/login"),
            (Method::POST, "/"),
            (Method::DELETE, "/reach/video.mp4"),
            (Method::CONNECT, "/command"),
        ] {
            assert_eq!(of(method, path), Route::OtherMethod, "{path}");
        }
    }
}
