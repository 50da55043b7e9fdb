//! Tests of policy servers behind `wss://`: the certificates in `tests/fixtures/tls`, whose key is
//! beside them, because they are only for tests.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::eval::remote::{Server, eval, local, outcomes, root};

fn file(name: &str) -> PathBuf {
    root().join("tests/fixtures/tls").join(name)
}

/// Starts a server with a certificate.
fn start(program: &str, certificate: &str, more: Value) -> Server {
    let mut settings = json!({"tls": [file(certificate), file("key.pem")]});
    settings
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    Server::start(program, settings)
}

/// Returns the settings for a server with TLS that the authority in a file vouches for.
fn trusting(certificate: &str) -> Value {
    json!({"remote_host": "wss://127.0.0.1", "remote_ca_file": file(certificate),
           "remote_api_token_env": "POLICY_TOKEN"})
}

#[test]
fn episodes_are_the_same_over_tls() {
    let wanted = local();
    for (program, policy) in [
        ("openpi_server.py", "pi0_remote"),
        ("xpolicylab_server.py", "xpolicylab_remote"),
    ] {
        let server = start(program, "cert.pem", json!({"token": "s3cret"}));
        let evaluation = eval(server.job(policy, trusting("cert.pem")));
        evaluation.run().succeeds();
        assert_eq!(outcomes(&evaluation), wanted, "{policy}");
    }
}

#[test]
fn a_server_whose_certificate_proves_nothing_gets_no_token_and_says_why() {
    let failure = |certificate: &str, more: Value, reason: &str| {
        let server = start("openpi_server.py", certificate, json!({}));
        let mut config = trusting(certificate);
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let reason = format!(
            "policy server wss://127.0.0.1:{}: connecting: {reason}",
            server.port
        );
        eval(server.job("pi0_remote", config))
            .run()
            .fails_with(1)
            .stderr_has(&reason);
        assert_eq!(server.count("connected"), 0);
    };
    failure(
        "cert.pem",
        json!({"remote_ca_file": null}),
        "its certificate is not signed by a trusted authority; remote_ca_file names",
    );
    failure("expired.pem", json!({}), "its certificate has expired");
    failure(
        "elsewhere.pem",
        json!({}),
        "its certificate is for gpu7.example, not for 127.0.0.1",
    );
}

#[test]
fn tls_on_one_side_alone_is_told_with_the_remedy() {
    let plain = Server::openpi(json!({}));
    let mut config = trusting("cert.pem");
    config["remote_retry_s"] = json!(1);
    eval(plain.job("pi0_remote", config))
        .run()
        .fails_with(1)
        .stderr_has("; a server without TLS needs ws:// in remote_host");

    let encrypted = start("openpi_server.py", "cert.pem", json!({}));
    eval(encrypted.job("pi0_remote", json!({"remote_retry_s": 1})))
        .run()
        .fails_with(1)
        .stderr_has("; a server with TLS needs wss:// in remote_host");
}

#[test]
fn a_file_of_authorities_is_refused_before_anything_starts() {
    let server = Server::nowhere();
    let refusal = |more: Value, reason: &str| {
        eval(server.job("pi0_remote", more))
            .run()
            .fails_with(1)
            .stderr_has(reason);
    };
    refusal(
        json!({"remote_host": "wss://gpu7", "remote_ca_file": "/no/ca.pem"}),
        "/no/ca.pem",
    );
    refusal(
        json!({"remote_host": "wss://gpu7", "remote_port": 1, "remote_ca_file": file("key.pem")}),
        "key.pem`: it has no certificate in PEM",
    );
    refusal(
        json!({"remote_ca_file": file("cert.pem")}),
        "but ws:// is not encrypted; write wss:// and the name in remote_host",
    );
}
