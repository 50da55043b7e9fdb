//! Checks the command line of `serve` before anything is started.

use std::ffi::OsString;
use std::net::SocketAddr;

use anyhow::ensure;
use jobs::refusal::Refused;
use jobs::serve_args::{ServeArgs, ServeSetup};

use crate::plan::serve::ServePlan;

impl ServePlan {
    /// Checks the words after `serve` for `nproc` ranks on a node with `gpus` GPUs. The ranks check the checkpoint and their
    /// ports.
    ///
    /// # Errors
    /// Returns clap's text (errors and help), and an error for what is served and the ports.
    pub fn new(words: &[OsString], nproc: usize, gpus: usize) -> anyhow::Result<ServePlan> {
        let args = ServeArgs::parse_words(words).map_err(Refused::Usage)?;
        let setup = ServeSetup::read(&args)?;
        ensure!(
            !args.is_front_port_taken(nproc),
            "--front-port {} is also the port of a rank, of which there are {nproc}; leave out \
             --port, and they get the ports behind it",
            args.front_port.unwrap_or_default()
        );
        Ok(ServePlan {
            front: args.front_port.map(|port| SocketAddr::new(args.host, port)),
            job: setup.job(),
            gpus,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> anyhow::Result<ServePlan> {
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        ServePlan::new(&words, 2, 0)
    }

    fn refusal(words: &[&str]) -> String {
        plan(words).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_word_is_refused_before_anything_is_started() {
        assert!(
            refusal(&["--policy", "gr00d"])
                .starts_with("--policy `gr00d` is neither a folder nor a known policy")
        );
        assert!(
            refusal(&["--policy", "replay_action"])
                .contains("`replay_action`, which cannot be served: ")
        );
        assert!(refusal(&["--policy", "gr00t", "--max-batch", "0"]).contains("--max-batch"));
        assert!(
            refusal(&["--policy", "gr00t"])
                .contains("policy_config_dict.model_path: it is missing")
        );
        assert_eq!(plan(&["--policy", "/tmp"]).unwrap().front, None);
    }

    #[test]
    fn a_front_port_is_not_that_of_a_rank() {
        let plan = |words: &[&str]| plan(&[&["--policy", "/tmp"], words].concat());
        let front = plan(&["--front-port", "5555", "--host", "127.0.0.1"]);
        let address = front.unwrap().front.unwrap();
        assert_eq!(address.to_string(), "127.0.0.1:5555");
        let taken = plan(&["--front-port", "5556", "--port", "5555"]);
        let text = taken.unwrap_err().to_string();
        assert!(
            text.starts_with("--front-port 5556 is also the port of a rank"),
            "{text}"
        );
    }
}
