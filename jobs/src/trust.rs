//! Determines what a plan would execute, read, write and connect to, and whether this user has
//! started a run with the same things before.
//!
//! `rrun eval --resume DIR` takes its jobs from `DIR/plan.json`. In another user's folder, that
//! file names programs, modules, addresses and variables that the user has not typed. Whatever a
//! jobs file on the command line names is the user's own choice: its digest is remembered in
//! `$XDG_STATE_HOME/rrun/begun`. Anything else is refused until the user agrees.
//!
//! ```text
//! --jobs, --config ─► uses ─► remember ─┐
//! --resume ─────────► uses of the plan ─► known? ─┬ yes: the run continues
//!                                                 └ no: refused with the list of unknown uses
//! ```

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::environments::is_python_environment;
use crate::job::{Job, Status};
use crate::model_server::ModelServer;
use crate::policies::canonical_policy;
use crate::{files, sha256, tree};

/// Maximum size in bytes of the list of digests, enough for half a million. A longer list is
/// discarded and started anew.
const MAX_BYTES: u64 = 32 << 20;

/// Maximum number of bytes of settings that are shown.
const SHOWN_BYTES: usize = 4000;

/// Maximum number of unknown uses that are shown.
const NAMED: usize = 12;

/// What a job or the model server uses: programs that are run, and places that data is sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// Description for the user.
    pub text: String,
    digest: String,
}

impl Use {
    fn new(text: String, content: &Value) -> Self {
        Self {
            text,
            digest: sha256::of(content.to_string()),
        }
    }
}

/// Returns what the pending jobs and the model server use, without duplicates.
pub fn uses(jobs: &[Job], server: Option<&ModelServer>) -> Vec<Use> {
    let pending = jobs.iter().filter(|job| job.status == Status::Pending);
    let of_jobs = pending.filter_map(of_job);
    let mut uses: Vec<Use> = server.map(of_server).into_iter().chain(of_jobs).collect();
    let mut seen = BTreeSet::new();
    uses.retain(|item| seen.insert(item.digest.clone()));
    uses
}

fn of_server(server: &ModelServer) -> Use {
    let (command, env) = (&server.command, &server.env);
    let is_here = command.first().is_some_and(|program| is_path(program));
    let here = || is_here.then(|| std::env::current_dir().unwrap_or_default());
    let (cwd, health) = (server.cwd.clone().or_else(here), server.health.to_string());
    let text = named("model server", &command.join(" "), &json!(env));
    Use::new(text, &json!(["model server", command, env, cwd, health]))
}

/// Returns what a job uses; `None` if nothing of it is more than `rrun` itself brings.
fn of_job(job: &Job) -> Option<Use> {
    let policy = canonical_policy(&job.policy_type);
    let (env_args, config) = (json!(job.env_args), json!(job.policy_config));
    let mut parts = Vec::new();
    if is_python_environment(&job.environment) {
        let text = named("environment", &job.environment, &env_args);
        let content = json!([located(&job.environment), with_places(env_args).0]);
        parts.push((text, content));
    }
    let text = named("policy", policy, &config);
    if let (config, true) = with_places(config) {
        parts.push((text, json!([policy, config])));
    }
    if let Some(dir) = &job.video.base_dir {
        let dir = located(&dir.to_string_lossy());
        parts.push((format!("videos written to `{dir}`"), dir.into()));
    }
    let (texts, contents): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    (!texts.is_empty()).then(|| Use::new(texts.join(", "), &Value::Array(contents)))
}

/// Describes a program with its settings. The whole text is shown, since any part may be important,
/// or its beginning if it is longer than anybody reads.
fn named(what: &str, name: &str, settings: &Value) -> String {
    if settings.as_object().is_none_or(Map::is_empty) {
        return format!("the {what} `{name}`");
    }
    let text = settings.to_string();
    let end = text.floor_char_boundary(SHOWN_BYTES);
    let more = match end < text.len() {
        true => format!(" … ({} bytes in all)", text.len()),
        false => String::new(),
    };
    format!("the {what} `{name}` with {}{more}", &text[..end])
}

/// Returns the value with relative paths made absolute, since the same relative path names another
/// file in another folder, and whether it contains any text.
fn with_places(mut value: Value) -> (Value, bool) {
    let mut has_text = false;
    tree::each_text_mut(&mut value, &mut |text| {
        has_text = true;
        *text = located(text);
    });
    (value, has_text)
}

/// Returns a path, or `file.py:factory`, with the absolute path of the file; any other text as it is.
fn located(text: &str) -> String {
    let (path, factory) = match text.rfind(".py:") {
        Some(dot) => text.split_at(dot + ".py".len()),
        None => (text, ""),
    };
    let file = Path::new(path);
    if !(is_path(path) || path.ends_with(".py")) || file.is_absolute() || !file.exists() {
        return text.to_owned();
    }
    match std::path::absolute(file) {
        Ok(path) => format!("{}{factory}", path.display()),
        Err(_) => text.to_owned(),
    }
}

fn is_path(text: &str) -> bool {
    text.contains('/') && !text.contains("://")
}

/// Returns those of `uses` with which this user has not started a run; all of them if nothing is
/// remembered.
fn unknown<'a>(uses: &'a [Use], variable: &dyn Fn(&str) -> Option<String>) -> Vec<&'a Use> {
    let known = list(variable).map(|path| read(&path)).unwrap_or_default();
    let uses = uses.iter();
    uses.filter(|item| !known.contains(&item.digest)).collect()
}

/// Describes what the jobs and the model server use and this user has not started a run with: the
/// first ones, and how many more there are; empty if there is nothing.
pub fn untrusted(
    jobs: &[Job],
    server: Option<&ModelServer>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let uses = uses(jobs, server);
    let unknown = unknown(&uses, variable);
    let more = unknown.len().saturating_sub(NAMED);
    let first = unknown.iter().take(NAMED).map(|item| item.text.clone());
    first
        .chain((more > 0).then(|| format!("and {more} more")))
        .collect()
}

/// Remembers that this user has started a run with `uses`.
///
/// # Errors
/// Returns the errors of the file system; the uses are then still unknown to the next run.
pub fn remember(uses: &[Use], variable: &dyn Fn(&str) -> Option<String>) -> io::Result<()> {
    let unknown = unknown(uses, variable);
    let Some(path) = list(variable).filter(|_| !unknown.is_empty()) else {
        return Ok(());
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let is_full = fs::metadata(&path).is_ok_and(|metadata| metadata.len() > MAX_BYTES);
    let lines = unknown.iter().map(|item| format!("{}\n", item.digest));
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .append(!is_full)
        .truncate(is_full)
        .open(path)?;
    // Written with a single call, because other launches write to the file, too.
    file.write_all(lines.collect::<String>().as_bytes())
}

/// Returns the path of this user's list; `None` without a home directory.
fn list(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let given = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = given("XDG_STATE_HOME").or_else(|| Some(given("HOME")?.join(".local/state")))?;
    Some(state.join("rrun/begun"))
}

fn read(path: &Path) -> BTreeSet<String> {
    let bytes = files::read(path, MAX_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn job(environment: Value, policy: &str, config: Value) -> Job {
        samples::job(json!({"arena_env_args": environment, "policy_type": policy,
                            "policy_config_dict": config}))
    }

    fn scripted() -> Job {
        job(json!({"environment": "reach"}), "scripted", json!({"x": 1}))
    }

    fn gym(python: &str, variables: Value) -> Job {
        job(
            json!({"environment": "gym:X-v0", "python": python, "env": variables}),
            "scripted",
            json!({}),
        )
    }

    fn said(jobs: &[Job]) -> Vec<String> {
        uses(jobs, None).into_iter().map(|item| item.text).collect()
    }

    #[test]
    fn what_comes_with_rrun_is_nothing_to_ask_about() {
        assert_eq!(said(&[scripted()]), Vec::<String>::new());
    }

    #[test]
    fn what_runs_and_where_data_goes_is_named() {
        let remote = json!({"model_url": "http://evil/v1", "api_key_env": "AWS_SECRET_ACCESS_KEY"});
        let module = json!({"model_path": "/tmp/x.pt"});
        let mut filmed = scripted();
        filmed.video.base_dir = Some("/srv/www".into());
        let jobs = [
            gym("/tmp/evil", json!({"LD_PRELOAD": "/tmp/evil.so"})),
            job(json!({"environment": "reach"}), "openai_agent", remote),
            job(json!({"environment": "reach"}), "torchscript", module),
            job(
                json!({"environment": "reach"}),
                "python",
                json!({"policy": "/tmp/evil.py:make", "python": "/tmp/venv", "env": {"A": "b"}}),
            ),
            filmed,
        ];
        assert_eq!(
            said(&jobs),
            [
                r#"the environment `gym:X-v0` with {"python":"/tmp/evil","env":{"LD_PRELOAD":"/tmp/evil.so"}}"#,
                r#"the policy `openai_agent` with {"model_url":"http://evil/v1","api_key_env":"AWS_SECRET_ACCESS_KEY"}"#,
                r#"the policy `torchscript` with {"model_path":"/tmp/x.pt"}"#,
                r#"the policy `python` with {"policy":"/tmp/evil.py:make","python":"/tmp/venv","env":{"A":"b"}}"#,
                "videos written to `/srv/www`",
            ]
        );
    }

    #[test]
    fn what_was_begun_with_is_known_and_whatever_differs_is_not() {
        let home = tempfile::tempdir().unwrap();
        let variable =
            |name: &str| (name == "HOME").then(|| home.path().to_string_lossy().into_owned());
        let own = uses(&[gym("python3", json!({"MUJOCO_GL": "egl"}))], None);
        assert_eq!(unknown(&own, &variable).len(), 1);
        remember(&own, &variable).unwrap();
        remember(&own, &variable).unwrap();
        assert!(unknown(&own, &variable).is_empty());
        assert_eq!(read(&home.path().join(".local/state/rrun/begun")).len(), 1);
        for other in [
            gym("/tmp/python3", json!({"MUJOCO_GL": "egl"})),
            gym("python3", json!({"LD_PRELOAD": "/tmp/x.so"})),
        ] {
            assert_eq!(unknown(&uses(&[other], None), &variable).len(), 1);
        }
    }

    #[test]
    fn without_a_home_nothing_is_known() {
        let own = uses(&[gym("python3", json!({}))], None);
        remember(&own, &|_| None).unwrap();
        assert_eq!(unknown(&own, &|_| None).len(), 1);
    }
}
