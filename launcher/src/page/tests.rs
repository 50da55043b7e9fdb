//! Attacks a page over its port, as browsers and strangers would.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use jobs::journal::{Line, RankStart};
use jobs::layout::{RunFolder, write_whole};
use jobs::live::Commands;
use jobs::plan::RunPlan;
use jobs::time::now;
use serde_json::{Value, json};

use super::*;

const TOKEN: &str = "s3cret-and-long";

/// Time for anything that is waited for.
const DEADLINE: Duration = Duration::from_secs(60);

/// A run folder with a page.
struct Site {
    folder: RunFolder,
    page: LivePage,
    _dir: tempfile::TempDir,
}

impl Site {
    fn new(token: Option<&str>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let job = |name: &str| json!({"name": name, "num_episodes": 4});
        let plan = RunPlan {
            schema: "rrun/plan/4".to_owned(),
            jobs_file: "night.json".to_owned(),
            world_size: 1,
            jobs: jobs::samples::jobs(["reach", "push"].map(job)),
            ..RunPlan::default()
        };
        write_whole(&folder.plan(), &serde_json::to_vec(&plan).unwrap()).unwrap();
        for made in [
            folder.journals(),
            folder.logs(),
            folder.live(),
            folder.job("reach"),
        ] {
            std::fs::create_dir(made).unwrap();
        }
        std::fs::write(folder.job("reach").join("a.mp4"), "0123456789").unwrap();
        std::fs::write(folder.hang_report(1), "rank 0 <hangs>").unwrap();
        let plan = PagePlan::new(([127, 0, 0, 1], 0).into(), token).unwrap();
        let page = LivePage::open(&plan, dir.path(), "0a1b").unwrap();
        // Pictures of earlier launches are removed.
        std::fs::write(folder.picture(0, 3), "a picture").unwrap();
        let site = Self {
            folder,
            page,
            _dir: dir,
        };
        site.append(&[Line::Rank(Box::new(RankStart {
            world_size: 1,
            started: "2026-11-21T10:00:00.000Z".to_owned(),
            ..RankStart::default()
        }))]);
        site.solve(0);
        site
    }

    fn append(&self, lines: &[Line]) {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.journal(0));
        let mut file = file.unwrap();
        for line in lines {
            let text = serde_json::to_string(line).unwrap() + "\n";
            file.write_all(text.as_bytes()).unwrap();
        }
    }

    fn solve(&self, episode: u64) {
        let video = jobs::episode::VideoRef {
            file: "reach/a.mp4".to_owned(),
            first_frame: 0,
            frames: 1,
            fps: Some(10),
        };
        let ended = jobs::episode::Episode {
            video: Some(video),
            ended: "2026-11-21T10:00:09.000Z".to_owned(),
            ..jobs::samples::episode(0, "reach", episode)
        };
        self.append(&[Line::from(ended)]);
    }

    /// Opens a connection, and sends these bytes.
    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.page.address()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        // The server may have closed it already.
        let _ = stream.write_all(bytes);
        stream
    }

    /// Sends a request, and returns the whole answer.
    fn ask(&self, head: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        let text = format!(
            "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        let mut answer = Vec::new();
        // A connection that is reset has no more to say.
        let _ = self.send(text.as_bytes()).read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path}"), "", "")
    }

    /// Returns what has changed since `seen`.
    fn news(&self, seen: &str) -> Value {
        let answer = self.get(&format!("/news?seen={seen}"));
        let (_, body) = answer.split_once("\r\n\r\n").expect(&answer);
        serde_json::from_str(body).expect(&answer)
    }

    /// Asks for everything until the fragment `id` contains `text`.
    fn wait_for(&self, id: &str, text: &str) {
        rig::wait::until(text, || {
            let found = part(&self.news(""), id).is_some_and(|html| html.contains(text));
            found.then_some(())
        });
    }
}

/// Returns a fragment of news.
fn part(news: &Value, id: &str) -> Option<String> {
    let mut parts = news["parts"].as_array()?.iter();
    let part = parts.find(|part| part["id"] == id)?;
    Some(part["html"].as_str()?.to_owned())
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or("none")
}

#[test]
fn the_page_has_the_run_and_its_news_follow_the_journal() {
    let site = Site::new(None);
    let page = site.get("/");
    assert_eq!(status(&page), "200", "{page}");
    assert!(
        page.contains("<h1>night (")
            && page.contains("content-security-policy: default-src 'none'"),
        "{page}"
    );
    assert!(page.contains("rank 0 &lt;hangs&gt;"), "{page}");
    let news = site.news("");
    assert!(part(&news, "head").is_some(), "{news}");
    assert!(news["pictures"]["0/3"].is_string(), "{news}");
    site.solve(1);
    site.wait_for("head", "<b>2</b> of <b>8</b>");
}

#[test]
fn a_browser_gets_the_pictures_and_what_it_has_missed() {
    let site = Site::new(None);
    let page = site.get("/");
    let (_, seen) = page.split_once("data-seen=\"").unwrap();
    let (seen, _) = seen.split_once('"').unwrap();
    assert!(site.news(seen)["pictures"]["0/3"].is_string());
    site.solve(1);
    site.wait_for("head", "<b>2</b> of <b>8</b>");
    let news = site.news(seen);
    assert!(part(&news, "success").is_some(), "{news}");
    assert_eq!(part(&news, "settings"), None, "it has that already");
    let newest = site.news(news["seen"].as_str().unwrap());
    assert_eq!(part(&newest, "success"), None, "{newest}");
    assert!(part(&site.news("other-99"), "settings").is_some());
}

#[test]
fn who_asks_for_news_waits_for_some() {
    let site = Site::new(None);
    site.wait_for("head", "<b>1</b> of <b>8</b>");
    let news = site.news("");
    let seen = news["seen"].as_str().unwrap();
    let head =
        format!("GET /news?seen={seen} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let asked_at = now();
    let mut asked = site.send(head.as_bytes());
    site.solve(1);
    let mut answer = String::new();
    asked.read_to_string(&mut answer).unwrap();
    // On a busy machine, the next look at the folder may take longer than an answer waits for news.
    assert!(
        !answer.contains("\"parts\":[]") || asked_at.elapsed() >= http::NEWS,
        "{answer}"
    );
}

#[test]
fn a_browser_that_reads_nothing_keeps_nobody_waiting() {
    let site = Site::new(None);
    site.get("/");
    let asleep = b"GET /news HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let _asleep: Vec<_> = (0..8).map(|_| site.send(asleep)).collect();
    let _half: Vec<_> = (0..8)
        .map(|_| site.send(b"GET /news HTTP/1.1\r\nHo"))
        .collect();
    for episode in 1..4 {
        site.solve(episode);
        site.wait_for("head", &format!("<b>{}</b> of <b>8</b>", episode + 1));
    }
}

#[test]
fn only_films_that_the_journal_names_are_sent_and_by_range() {
    let site = Site::new(None);
    site.get("/");
    let film = site.get("/reach/a.mp4");
    assert!(
        film.contains("content-type: video/mp4") && film.ends_with("0123456789"),
        "{film}"
    );
    let part = site.ask("GET /reach/a.mp4", "Range: bytes=2-4\r\n", "");
    assert_eq!(status(&part), "206");
    assert!(
        part.contains("content-range: bytes 2-4/10") && part.ends_with("\r\n\r\n234"),
        "{part}"
    );
    let outside = site.ask("GET /reach/a.mp4", "Range: bytes=99-\r\n", "");
    assert_eq!(status(&outside), "416");
    assert!(site.get("/hang/1").ends_with("rank 0 <hangs>"));
    assert!(site.get("/picture/0/3").ends_with("a picture"));
    for path in [
        "/plan.json",
        "/journal/journal_rank0.jsonl",
        "/reach/b.mp4",
        "/reach/../plan.json",
        "/reach/%2e%2e/plan.json",
        "/%2fetc/passwd",
        "//etc/passwd",
        "/etc/passwd",
        "/hang/2",
        "/picture/0/4",
        "/picture/..%2f..%2fplan.json/0",
        "/reach",
        "/reach/a.mp4%00",
        "/a%",
        "/a%4",
        "/a%zz",
        "/a%ff",
        "/picture/0/-1",
        "/picture/a/b",
        "/picture/0/../../plan.json",
        "/hang/99999999999999999999",
        "/hang/x",
        "/live/commands.json",
    ] {
        assert_eq!(status(&site.get(path)), "404", "{path}");
    }
}

#[test]
fn nothing_is_shown_without_the_token() {
    let site = Site::new(Some(TOKEN));
    for path in [
        "/news",
        "/reach/a.mp4",
        "/picture/0/3",
        "/hang/1",
        "/nothing",
    ] {
        let answer = site.get(path);
        assert!(
            status(&answer) == "401" && !answer.contains("reach"),
            "{path}: {answer}"
        );
    }
    let door = site.get("/");
    assert!(
        status(&door) == "401" && door.contains("name=\"token\"") && !door.contains("night"),
        "{door}"
    );
    let wrong = site.ask("GET /", "Authorization: Bearer wrong-token\r\n", "");
    assert_eq!(status(&wrong), "401");
    let wrong = site.ask("POST /login", "", "token=wrong-token");
    assert!(
        status(&wrong) == "401" && wrong.contains("not the token"),
        "{wrong}"
    );
    let right = site.ask("POST /login", "", &format!("token={TOKEN}"));
    assert_eq!(status(&right), "303", "{right}");
    let cookie = right
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let page = site.ask("GET /", &format!("Cookie: {cookie}\r\n"), "");
    assert!(status(&page) == "200" && page.contains("night"), "{page}");
    let page = site.ask("GET /", &format!("Authorization: Bearer {TOKEN}\r\n"), "");
    assert_eq!(status(&page), "200");
}

#[test]
fn a_page_from_elsewhere_reads_and_changes_nothing() {
    let site = Site::new(None);
    let mut answer = String::new();
    let request = b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    site.send(request).read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), "421", "{answer}");
    assert!(!answer.contains("night"));
}

#[test]
fn commands_reach_the_ranks_of_this_launch_if_the_token_was_shown() {
    let site = Site::new(Some(TOKEN));
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let json = format!("{token}Content-Type: application/json\r\n");
    let skip = r#"{"command": "skip", "job": "push"}"#;
    assert_eq!(
        status(&site.ask("POST /command", "Content-Type: application/json\r\n", skip)),
        "401"
    );
    assert_eq!(
        status(&site.ask("POST /command", &token, skip)),
        "415",
        "a form from elsewhere"
    );
    let unknown = site.ask("POST /command", &json, r#"{"command": "skip", "job": "x"}"#);
    assert!(
        status(&unknown) == "400" && unknown.contains("no job `x`"),
        "{unknown}"
    );
    assert_eq!(status(&site.ask("GET /command", &json, "")), "405");
    assert_eq!(Commands::read(&site.folder, "0a1b").skip.len(), 0);
    assert_eq!(status(&site.ask("POST /command", &json, skip)), "204");
    assert_eq!(
        status(&site.ask("POST /command", &json, r#"{"command": "stop"}"#)),
        "204"
    );
    let found = Commands::read(&site.folder, "0a1b");
    assert_eq!((found.stop, found.skip.len()), (true, 1));
    assert!(!Commands::read(&site.folder, "another").stop);
    let open = Site::new(None);
    let answer = open.ask("POST /command", "Content-Type: application/json\r\n", skip);
    assert_eq!(status(&answer), "403", "without a token nobody may");
}

#[test]
fn what_changes_something_is_posted_and_all_else_is_not() {
    let site = Site::new(None);
    for request in [
        "GET /command",
        "PUT /command",
        "GET /login",
        "POST /",
        "DELETE /reach/video.mp4",
    ] {
        assert_eq!(status(&site.ask(request, "", "")), "405", "{request}");
    }
}

#[test]
fn what_is_no_request_is_refused_and_the_next_one_is_answered() {
    let site = Site::new(None);
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20));
    let headers = format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(5000));
    let body = format!(
        "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
        1 << 20,
        "a".repeat(1 << 20)
    );
    for bytes in [
        &b"\r\n\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /login HTTP/1.1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        long.as_bytes(),
        headers.as_bytes(),
        body.as_bytes(),
    ] {
        let mut stream = site.send(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.is_empty() || status(&answer).starts_with('4'), "{answer}");
    }
    assert_eq!(status(&site.get("/")), "200");
}

#[test]
fn a_page_that_ends_tells_its_browsers_and_frees_its_port() {
    let site = Site::new(None);
    let address = site.page.address();
    site.get("/");
    let Site { page, _dir, .. } = site;
    let end = std::thread::spawn(move || drop(page));
    let request = b"GET /news HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut news = String::new();
    while !news.contains("id=\\\"ended\\\"") {
        let mut stream = TcpStream::connect(address).expect("it answers until that was told");
        stream.write_all(request).unwrap();
        news.clear();
        // A reset is an end as well.
        let _ = stream.read_to_string(&mut news);
    }
    end.join().unwrap();
    assert!(std::net::TcpListener::bind(address).is_ok());
}

#[test]
fn a_port_that_is_taken_is_named() {
    let site = Site::new(None);
    let port = site.page.address().port();
    let plan = PagePlan::new(([127, 0, 0, 1], port).into(), None).unwrap();
    let err = LivePage::open(&plan, site.folder.root(), "0a1b")
        .unwrap_err()
        .to_string();
    assert!(
        err.starts_with(&format!(
            "cannot serve the page on 127.0.0.1:{port} (--page): "
        )),
        "{err}"
    );
}
