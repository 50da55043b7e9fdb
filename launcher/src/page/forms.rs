//! What a browser posts: the token, and commands.

use std::io;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode};
use jobs::plan::RunPlan;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::page::answer::WRONG_TOKEN;
use crate::page::commands::{self, Asked, CommandError};
use crate::page::reply::{Body, ask, plain};
use crate::page::request;
use crate::page::shared::Shared;
use crate::say;

/// Takes the token of the form, and sends the browser to the page.
pub(super) async fn login(request: Request<Incoming>, shared: &Shared) -> Response<Body> {
    let Some(form) = request::body(request).await else {
        return plain(StatusCode::BAD_REQUEST, "the form is incomplete");
    };
    let token = request::field(&form, "token").unwrap_or_default();
    let cookie = shared
        .access
        .cookie()
        .filter(|_| shared.access.is_token(&token));
    let Some(cookie) = cookie.and_then(|cookie| HeaderValue::try_from(cookie).ok()) else {
        sleep(WRONG_TOKEN).await;
        return ask(StatusCode::UNAUTHORIZED, true);
    };
    let mut response = plain(StatusCode::SEE_OTHER, "");
    let headers = response.headers_mut();
    headers.insert(header::SET_COOKIE, cookie);
    headers.insert(header::LOCATION, HeaderValue::from_static("./"));
    response
}

/// Takes a command. A page from elsewhere cannot send JSON here without being asked for permission,
/// which nobody gives.
pub(super) async fn command(request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    if !shared.has_buttons {
        let text = "commands need a token: start the run with RRUN_PAGE_TOKEN";
        return plain(StatusCode::FORBIDDEN, text);
    }
    let kind = request::text(request.headers(), &header::CONTENT_TYPE);
    if kind != Some("application/json") {
        return plain(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "application/json is expected",
        );
    }
    let Some(body) = request::body(request).await else {
        return plain(StatusCode::BAD_REQUEST, "the command is incomplete");
    };
    let task_shared = Arc::clone(shared);
    match spawn_blocking(move || obey(&body, &task_shared)).await {
        Ok(Ok(())) => plain(StatusCode::NO_CONTENT, ""),
        Ok(Err(err)) => plain(StatusCode::BAD_REQUEST, &err.to_string()),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the command could not be carried out",
        ),
    }
}

/// Passes a command on to the ranks.
fn obey(body: &[u8], shared: &Shared) -> Result<(), CommandError> {
    let asked = Asked::read(body)?;
    let plan = RunPlan::read(&shared.folder).map_err(io::Error::other)?;
    shared.command(|mut commands| {
        commands.launch.clone_from(&shared.launch);
        let commands = asked.added_to(&commands, &plan)?;
        commands::write(&commands, &shared.folder)?;
        Ok(commands)
    })?;
    say::info(asked.said());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use jobs::layout::{RunFolder, write_whole};
    use jobs::live::Commands;
    use serde_json::json;

    use super::*;
    use crate::plan::page::PagePlan;

    const BROWSERS: usize = 16;

    #[test]
    fn commands_that_come_at_once_are_all_obeyed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let jobs = (0..BROWSERS).map(|index| json!({"name": format!("job{index}")}));
        let plan = RunPlan {
            schema: "rrun/plan/3".to_owned(),
            world_size: 1,
            jobs: jobs::samples::jobs(jobs),
            ..RunPlan::default()
        };
        write_whole(&folder.plan(), &serde_json::to_vec(&plan).unwrap()).unwrap();
        std::fs::create_dir(folder.live()).unwrap();
        let page = PagePlan::new("127.0.0.1".parse().unwrap(), 0, Some("s3cret-and-long")).unwrap();
        let shared = Shared::new(&page, dir.path(), "0a1b");

        let all_there = Barrier::new(BROWSERS);
        let press = |index: usize| {
            let body = json!({"command": "skip", "job": format!("job{index}")}).to_string();
            all_there.wait();
            obey(body.as_bytes(), &shared).unwrap();
        };
        std::thread::scope(|browsers| {
            for index in 0..BROWSERS {
                let press = &press;
                browsers.spawn(move || press(index));
            }
        });
        assert_eq!(shared.commands().skip.len(), BROWSERS);
        assert_eq!(Commands::read(&folder, "0a1b").skip.len(), BROWSERS);
    }
}
