use serde_json::json;

use std::time::Duration;

use super::*;
use crate::file;
use crate::rlinf::Config;

fn file_with(block: &Value) -> Value {
    json!({"model_server": block, "jobs": [crate::samples::entry(json!({}))]})
}

/// Returns why the block with these changes is refused.
fn refused(given: &str) -> String {
    let block = json!({"command": ["serve"], "health_port": 8000});
    let file = file_with(&rig::cases::changed(&block, given));
    file::parse(&file).map_or_else(|err| err.to_string(), |_| "accepted".to_owned())
}

#[test]
fn a_block_is_read_with_its_defaults() {
    let server = read(&json!({"command": ["serve", "--port", "8000"], "health_port": 8000}))
        .unwrap()
        .unwrap();
    assert_eq!(server.command, ["serve", "--port", "8000"]);
    assert_eq!(server.health, Health::Port(8000));
    assert_eq!(server.devices, None);
    assert_eq!(server.cwd, None);
    assert_eq!(server.start_timeout.0, Duration::from_secs(600));
    assert_eq!(server.stop_timeout.0, Duration::from_secs(30));
    assert_eq!((server.max_restarts, server.env.len()), (3, 0));
}

#[test]
fn a_text_goes_to_the_shell_and_all_fields_count() {
    let server = read(&json!({
        "command": "exec serve --port $PORT", "health_url": "http://127.0.0.1:8000/health", "devices": [1, 0],
        "env": {"PORT": 8000, "HF_HOME": "/data"}, "cwd": "server", "start_timeout": 5, "max_restarts": 0, "stop_timeout": 7,
    }))
    .unwrap()
    .unwrap();
    assert_eq!(server.command, ["/bin/sh", "-c", "exec serve --port $PORT"]);
    let wanted = ("http://127.0.0.1:8000/health", Some(vec![1, 0]));
    assert_eq!((server.health.to_string().as_str(), server.devices), wanted);
    assert_eq!(server.env["PORT"].as_str(), "8000");
    assert_eq!(server.env["HF_HOME"].as_str(), "/data");
    assert_eq!(server.cwd, Some("server".into()));
    assert_eq!(server.max_restarts, 0);
    assert_eq!(server.start_timeout.0, Duration::from_secs(5));
    assert_eq!(server.stop_timeout.0, Duration::from_secs(7));
}

#[test]
fn what_is_wrong_is_refused_by_field() {
    rig::cases::check("src/model_server/refusals.txt", refused);
    let list = file::parse(&file_with(&json!([]))).unwrap_err().to_string();
    assert_eq!(list, "model_server: found a list of 0, expected an object");
}

#[test]
fn a_misspelt_block_is_refused_with_the_name_of_the_right_one() {
    let mut file = file_with(&Value::Null);
    file["model_sever"] = json!({});
    let refusal = file::parse(&file).unwrap_err().to_string();
    let told = "did you mean `model_server`?";
    assert!(refusal.contains(told), "{refusal}");
}

#[test]
fn a_configuration_has_it_too_and_its_refusals_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["run.yaml", "server.yaml"].map(|name| dir.path().join(name));
    std::fs::write(&paths[0], "env: {eval: {environment: reach}}\n").unwrap();
    let read = |text: &str| {
        std::fs::write(&paths[1], text).unwrap();
        Config::read(&paths, &[], &|name| {
            (name == "PORT").then(|| "8001".to_owned())
        })
    };
    let config =
        read("model_server:\n  command: exec serve ${HOME}\n  health_port: ${oc.env:PORT}\n")
            .unwrap_err();
    let told = "server.yaml`: model_server.health_port: found \"8001\"";
    assert!(config.to_string().contains(told), "{config}");
    let config = read(
        "model_server:\n  command: exec serve ${HOME}\n  health_url: http://h:${oc.env:PORT}/\n",
    )
    .unwrap();
    let server = config.model_server.unwrap();
    assert_eq!(server.command[2].as_str(), "exec serve ${HOME}");
    assert_eq!(server.health.to_string().as_str(), "http://h:8001/");
}

mod health {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> Result<(String, u16, String), Refusal> {
        HealthUrl::parse(text).map(|url| (url.host, url.port, url.path))
    }

    #[test]
    fn a_url_is_taken_apart() {
        let of = |host: &str, port, path: &str| Ok((host.to_owned(), port, path.to_owned()));
        let found = parts("http://127.0.0.1:8000/health");
        assert_eq!(found, of("127.0.0.1", 8000, "/health"));
        assert_eq!(parts("http://localhost"), of("localhost", 80, "/"));
        let shown = parts("http://[::1]:81/v1?x=1#top");
        assert_eq!(shown, of("::1", 81, "/v1?x=1"));
        assert_eq!(parts("http://h?x"), of("h", 80, "/?x"));
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_a_reason() {
        let reasons = [
            ("https://h", "http://"),
            ("h:8000", "http://"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http://h:", "port"),
            ("http://h:0", "port"),
            ("http://h:+8", "port"),
            ("http://h:65536", "port"),
            ("http://${oc.env:HOST}/", "port"),
            ("http://[::1/", "brackets"),
            ("http://[::1]8/", "brackets"),
            ("http://me@h/", "user name"),
            ("http://h/a b", "blank"),
            ("http://h/\r\nX: y", "blank"),
        ];
        for (url, reason) in reasons {
            assert!(
                parts(url).unwrap_err().to_string().contains(reason),
                "{url}: {:?}",
                parts(url)
            );
        }
    }

    #[test]
    fn a_url_reads_as_it_was_written() {
        let written = |text: &str| Health::Url(HealthUrl::parse(text).unwrap()).to_string();
        assert_eq!(written("http://[::1]:81/v1"), "http://[::1]:81/v1");
        assert_eq!(written("http://h"), "http://h:80/".to_owned());
        assert_eq!(Health::Port(81).to_string(), "port 81".to_owned());
    }

    proptest! {
        #[test]
        fn any_text_is_a_url_that_reads_back_or_refused(text in "(http://)?[\\PC\\r\\n]{0,30}") {
            if let Ok(url) = HealthUrl::parse(&text) {
                prop_assert!(url.path.starts_with('/') && !url.path.contains(['\r', '\n']));
                prop_assert_eq!(HealthUrl::parse(&Health::Url(url.clone()).to_string()), Ok(url));
            }
        }
    }
}
