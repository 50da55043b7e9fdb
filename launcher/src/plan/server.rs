//! The servers that a launch has: the model server of an evaluation, its page (`--page`), and the
//! policy server (`serve`). Checked before anything is started.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::ensure;
use jobs::layout::RunFolder;
use jobs::model_server::{DEVICES_VARIABLE, ModelServer};
use jobs::placement::PlacedProcess;
use jobs::programs::find;
use jobs::refusal::{Refusal, Refused};
use jobs::serve_args::{ServeArgs, ServeSetup};
use serde::Serialize;

use crate::cli::Environment;
use crate::plan::eval::{EvalPlan, SeatingPlan};
use crate::plan::launch::Inputs;
use crate::plan::{ServePlan, ServerPlan, ServerRole};
use crate::say::Note;

/// Fewest characters of a token.
const SHORTEST: usize = 8;

impl ServePlan {
    /// Checks the words after `serve` for `nproc` ranks on a node with `gpus` GPUs. The ranks check
    /// the checkpoint and their ports.
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

impl ServerPlan {
    /// Returns the model server of an evaluation, if there is one, and notes about it.
    ///
    /// # Errors
    /// Returns an error if a GPU, the folder or the program does not exist.
    pub(super) fn of(
        eval: Option<&EvalPlan>,
        inputs: Inputs<'_>,
    ) -> Result<(Option<ServerPlan>, Vec<Note>), Refusal> {
        let Some((eval, server)) =
            eval.and_then(|eval| Some((eval, eval.run.model_server.as_ref()?)))
        else {
            return Ok((None, Vec::new()));
        };
        let Inputs {
            env, node, found, ..
        } = inputs;
        check_program(server, env)?;
        let mut server = server.clone();
        if let Some(devices) = &server.devices {
            let list = env.visible_devices();
            let list = visible(devices, eval.gpus, list.as_deref())?;
            server.env.insert(DEVICES_VARIABLE.to_owned(), list);
        }
        let notes = caveats(&server, eval.gpus, &eval.seating);
        let log = RunFolder::new(&eval.output).model_server_log(&node.full_name);
        // Of several tasks of SLURM, the first on a node starts it.
        let role = match found.task.as_ref().map_or(0, |task| task.local_id) {
            0 => ServerRole::Host,
            _ => ServerRole::Guest,
        };
        let plan = ServerPlan { server, log, role };
        Ok((Some(plan), notes.into_iter().map(Note::warning).collect()))
    }
}

/// Checks that its working directory exists, and its program, which is looked up as it will be at
/// the start.
fn check_program(server: &ModelServer, env: &Environment) -> Result<(), Refusal> {
    let cwd = server.cwd.as_deref();
    if let Some(cwd) = cwd.filter(|cwd| !cwd.is_dir()) {
        return Err(Refusal::at(
            "model_server.cwd",
            format_args!("there is no folder `{}`", cwd.display()),
        ));
    }
    let program = Path::new(&server.command[0]);
    let own_path = server.env.get("PATH").map(OsStr::new);
    let is_below = program.components().count() > 1 && program.is_relative();
    let place = match cwd.filter(|_| is_below) {
        Some(cwd) => cwd.join(program),
        None => program.to_owned(),
    };
    match find(&place, own_path.or(env.get("PATH"))) {
        Some(_) => Ok(()),
        None => Err(Refusal::at(
            "model_server.command",
            format_args!("there is no program `{}`", place.display()),
        )),
    }
}

/// Returns its `CUDA_VISIBLE_DEVICES`. `devices` are indices into the GPUs that `rrun` sees, which
/// `list` may have restricted already. Without a GPU the numbers are mere labels.
fn visible(devices: &[usize], gpus: usize, list: Option<&str>) -> Result<String, Refusal> {
    if let Some(device) = devices.iter().find(|device| gpus > 0 && **device >= gpus) {
        let seen = match gpus {
            1 => "GPU 0 alone is".to_owned(),
            gpus => format!("GPUs 0 to {} are", gpus - 1),
        };
        let reason = format_args!("GPU {device} does not exist, {seen} visible");
        return Err(Refusal::at("model_server.devices", reason));
    }
    let entries: Vec<&str> = list.map_or_else(Vec::new, |list| list.split(',').collect());
    let name = |device: &usize| match entries.get(*device) {
        Some(entry) => entry.trim().to_owned(),
        None => device.to_string(),
    };
    Ok(devices.iter().map(name).collect::<Vec<_>>().join(","))
}

/// Returns warnings about GPUs that the server shares with ranks. That is not an error: a machine
/// with one GPU has no alternative, and the memory that a server needs is not known.
fn caveats(server: &ModelServer, gpus: usize, seating: &SeatingPlan) -> Vec<String> {
    let note = match &server.devices {
        None if gpus == 0 => return Vec::new(),
        None => "model_server has no `devices`: it sees all GPUs, including those of the ranks",
        Some(devices) if gpus == 0 && !devices.is_empty() => {
            "model_server has `devices`, but there is no GPU here to check"
        }
        Some(devices) => {
            let shared = devices.iter().filter_map(|gpu| shared(*gpu, seating));
            return shared.collect();
        }
    };
    vec![note.to_owned()]
}

/// Returns a warning if ranks or environment workers use a GPU of the server.
fn shared(gpu: usize, seating: &SeatingPlan) -> Option<String> {
    let on_it = |processes: &[PlacedProcess], what: &str| {
        let device = |process: &PlacedProcess| seating.resources.device(process.gpu());
        let all = processes.iter().enumerate();
        let numbers = all.filter(|(_, process)| device(process) == Some(gpu));
        let numbers: Vec<String> = numbers.map(|(number, _)| number.to_string()).collect();
        (!numbers.is_empty()).then(|| format!("{what} {}", numbers.join(", ")))
    };
    let ranks = on_it(&seating.placement.rollout, "rank");
    let who = ranks.or_else(|| on_it(&seating.placement.env, "environment worker"))?;
    Some(format!(
        "GPU {gpu} is used by the model server and by {who}, which share its memory; --placement, \
         --nproc-per-node or other `devices` separate them"
    ))
}

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
    use jobs::file::JobFile;
    use jobs::placement::{Components, Placement, Resources};
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::environment;

    fn server(block: &Value) -> ModelServer {
        let file = json!({"model_server": block, "jobs": [jobs::samples::entry(json!({}))]});
        let file = JobFile::new("jobs.json".as_ref(), String::new(), &file);
        file.unwrap().model_server.unwrap()
    }

    fn block(command: &[&str], devices: Option<&[usize]>) -> Value {
        json!({"command": command, "health_port": 1, "devices": devices})
    }

    fn seating(gpus: usize, placement: &str) -> SeatingPlan {
        let resources = Resources::new(gpus, 1);
        let placement = Placement::new(&Components::parse(placement).unwrap(), resources).unwrap();
        SeatingPlan {
            placement,
            resources,
            is_placed: true,
            total_num_envs: None,
            allocation: Vec::new(),
            distribution: Vec::new(),
            memory: Vec::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn devices_count_what_the_launcher_sees() {
        let refused = |text: &str| Err(format!("model_server.devices: {text}"));
        for (devices, gpus, shown, wanted) in [
            (&[1, 0][..], 4, None, Ok("1,0".to_owned())),
            (&[1], 2, Some("3, GPU-5f"), Ok("GPU-5f".to_owned())),
            // A server without a GPU.
            (&[], 4, Some("3,5"), Ok(String::new())),
            // Without a GPU here, numbers are labels.
            (&[7], 0, None, Ok("7".to_owned())),
            (
                &[0, 4],
                4,
                None,
                refused("GPU 4 does not exist, GPUs 0 to 3 are visible"),
            ),
            (
                &[1],
                1,
                None,
                refused("GPU 1 does not exist, GPU 0 alone is visible"),
            ),
        ] {
            let found = visible(devices, gpus, shown).map_err(|err| err.to_string());
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_gpu_that_ranks_have_too_is_warned_about() {
        for (devices, gpus, placement, wanted) in [
            (Some(&[0][..]), 4, "env: 1-2, rollout: 2-3", &[][..]),
            (
                Some(&[0, 2]),
                4,
                "env: 0-1, rollout: 2-3",
                &[
                    "GPU 0 is used by the model server and by environment worker 0",
                    "GPU 2 is used by the model server and by rank 0",
                ],
            ),
            (
                None,
                4,
                "env,rollout: all",
                &["model_server has no `devices`: it sees all GPUs"],
            ),
            (
                Some(&[0]),
                0,
                "env,rollout: 0",
                &["model_server has `devices`, but there is no GPU"],
            ),
            (None, 0, "env,rollout: 0", &[]),
        ] {
            let server = server(&block(&["x"], devices));
            let said = caveats(&server, gpus, &seating(gpus, placement));
            assert_eq!(said.len(), wanted.len(), "{said:?}");
            for (line, wanted) in said.iter().zip(wanted) {
                assert!(line.starts_with(wanted), "{line}");
            }
        }
    }

    #[test]
    fn folder_and_program_are_looked_up_as_they_will_be() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/sh", dir.path().join("serve")).unwrap();
        let folder = dir.path().to_str().unwrap();
        let check = |command: &str, cwd: Option<&str>, path: Option<&str>| {
            let mut server = server(&block(&[command], None));
            server.cwd = cwd.map(Into::into);
            server
                .env
                .extend(path.map(|path| ("PATH".to_owned(), path.to_owned())));
            check_program(&server, &environment([("PATH", "/nowhere")]))
                .map_err(|err| err.to_string())
        };
        let refused = |text: &str| Err(format!("model_server.{text}"));
        assert_eq!(check("./serve", Some(folder), None), Ok(()));
        assert_eq!(check("serve", None, Some(folder)), Ok(()));
        assert_eq!(
            check("serve", None, None),
            refused("command: there is no program `serve`")
        );
        assert_eq!(
            check("/bin/sh", Some("/nowhere"), None),
            refused("cwd: there is no folder `/nowhere`")
        );
    }

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

    fn page(host: &str, token: Option<&str>) -> Result<PagePlan, Refusal> {
        PagePlan::new(SocketAddr::new(host.parse().unwrap(), 8123), token)
    }

    #[test]
    fn only_this_machine_sees_a_page_without_a_token() {
        assert!(page("127.0.0.1", None).is_ok() && page("::1", None).is_ok());
        assert!(page("0.0.0.0", Some("s3cret-token")).is_ok());
        let err = page("0.0.0.0", None).unwrap_err().to_string();
        assert_eq!(
            err,
            "--page is for 0.0.0.0, where others can reach the page: set RRUN_PAGE_TOKEN to a \
             token that browsers have to show"
        );
    }

    #[test]
    fn a_short_token_is_refused_and_no_token_is_printed() {
        let err = page("127.0.0.1", Some("short")).unwrap_err().to_string();
        assert_eq!(
            err,
            "RRUN_PAGE_TOKEN has 5 characters, at least 8 are needed"
        );
        let page = page("127.0.0.1", Some("s3cret-token")).unwrap();
        assert!(!format!("{page:?}").contains("s3cret"));
        assert!(!serde_json::to_string(&page).unwrap().contains("s3cret"));
    }
}
