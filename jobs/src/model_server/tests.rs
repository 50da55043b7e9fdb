use serde_json::json;

use super::*;
use crate::file;
use crate::rlinf::Config;

/// Returns in what the server of a changed block differs from that of the block, or why it is
/// refused.
fn read_changed(given: &str) -> String {
    let block = json!({"command": ["serve"], "health_port": 8000});
    let server = match read(&rig::cases::changed(&block, given)) {
        Ok(server) => json!(server),
        Err(refusal) => return refusal.to_string(),
    };
    let again = json!(read(&server).unwrap());
    assert_eq!(again, server, "it is written as it was read");
    rig::cases::changes(&json!(read(&block).unwrap()), &server)
}

#[test]
fn a_block_is_read_with_its_defaults_or_refused_by_field() {
    rig::cases::check("src/model_server/cases.txt", read_changed);
    let defaults = json!(read(&json!({"command": "serve", "health_url": "http://h"})).unwrap());
    let wanted = json!({"command": ["/bin/sh", "-c", "serve"], "health_url": "http://h:80/",
                        "start_timeout": 600.0, "max_restarts": 3, "stop_timeout": 30.0});
    assert_eq!(defaults, wanted);
}

#[test]
fn a_file_and_a_configuration_have_it_and_refusals_name_the_file() {
    let mut file = json!({"jobs": [crate::samples::entry(json!({}))],
                          "model_server": {"command": "serve", "health_port": 1}});
    let read = |file: &Value| file::JobFile::new("a".as_ref(), String::new(), file).unwrap();
    let first = read(&file);
    let written = file::jobs_file(&first.jobs, first.model_server.as_ref());
    assert_eq!(read(&written), first);
    file["model_server"] = json!([]);
    let list = file::parse(&file).unwrap_err().to_string();
    assert_eq!(list, "model_server: found a list of 0, expected an object");
    file["model_sever"] = file["model_server"].take();
    let misspelt = file::parse(&file).unwrap_err().to_string();
    let told = "did you mean `model_server`?";
    assert!(misspelt.contains(told), "{misspelt}");
    let dir = tempfile::tempdir().unwrap();
    let paths = ["run.yaml", "server.yaml"].map(|name| dir.path().join(name));
    std::fs::write(&paths[0], "env: {eval: {environment: reach}}\n").unwrap();
    let read = |text: &str| {
        std::fs::write(&paths[1], text).unwrap();
        Config::read(&paths, &[], &|name| {
            (name == "PORT").then(|| "8001".to_owned())
        })
    };
    let refused =
        read("model_server:\n  command: exec serve ${HOME}\n  health_port: ${oc.env:PORT}\n")
            .unwrap_err();
    let told = "server.yaml`: model_server.health_port: found \"8001\"";
    assert!(refused.to_string().contains(told), "{refused}");
    let config = read(
        "model_server:\n  command: exec serve ${HOME}\n  health_url: http://h:${oc.env:PORT}/\n",
    )
    .unwrap();
    let server = config.model_server.unwrap();
    assert_eq!(server.command[2].as_str(), "exec serve ${HOME}");
    assert_eq!(server.health.to_string().as_str(), "http://h:8001/");
}

#[test]
fn a_port_is_named() {
    assert_eq!(Health::Port(81).to_string(), "port 81");
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_url_that_reads_back_or_refused(
        text in "(http://)?([\\PC\\r\\n]{0,30}|[a-z0-9:.%@/?#\\[\\]]{0,12}|\\[[0-9a-f:\\]]{1,12}/?)"
    ) {
        if let Ok(url) = HealthUrl::parse(&text) {
            proptest::prop_assert!(url.path.starts_with('/') && !url.path.contains(['\r', '\n']));
            proptest::prop_assert!(!url.host.is_empty() && !url.host.contains(['[', ']', '%']));
            let again = HealthUrl::parse(&Health::Url(url.clone()).to_string());
            proptest::prop_assert_eq!(again, Ok(url));
        }
    }
}
