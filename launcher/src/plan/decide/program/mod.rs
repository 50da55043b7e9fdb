//! The program that each rank executes.
//!
//! ```text
//! script          <python> -u script args…
//! -m              <python> -u -m module args…
//! --no-python     program args…
//! --run-path      <python> -c <run_path.py> script args…     overrides the two above
//! eval, serve     rrun-rank eval args…                       a plain word without the flags above
//! merge, report…  nothing: a tool, refused behind options
//! ```
//! `${local_rank}` is substituted in the user's words if they are arguments of a foreign program.

pub mod python;
pub mod serve;
pub mod template;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};

use crate::cli::built_in::{TOOLS, meant_by};
use crate::cli::{Cli, Environment};
use crate::installed::{libraries, rank_binary};
use crate::node::Node;
use crate::plan::decide::program::python::{find, interpreter};
use crate::plan::decide::program::template::substitute;

/// Runs a script by runpy and records its exception, as torchrun's `run_script_path` does.
const RUN_PATH: &str = include_str!("run_path.py");

/// A program to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A built-in program.
    BuiltIn {
        /// Its name, `eval` or `serve`.
        name: &'static str,
        /// Path of `rrun-rank`.
        binary: PathBuf,
        /// Its arguments, as the user gave them.
        args: Vec<OsString>,
    },
    /// A program of the user.
    Foreign {
        /// Its name in a failure report.
        title: String,
        /// Leading words, in which nothing is substituted.
        fixed: Vec<OsString>,
        /// Further words, in which `${local_rank}` is substituted.
        templates: Vec<OsString>,
    },
}

impl Program {
    /// Returns the program that `cli` asks for.
    ///
    /// # Errors
    /// Returns an error for flags that exclude each other, and if the program or interpreter is not
    /// found.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<Program> {
        match cli.built_in() {
            Some("eval") => return built_in("eval", cli, env, node),
            Some("serve") => return built_in("serve", cli, env, node),
            Some(word) if TOOLS.contains(&word) => bail!(
                "`{word}` is a tool and takes no launch options: write it first, for example \
                 `rrun {word} --help`; a file is ./{word}"
            ),
            Some(word) if is_jobs_file(word) => {
                bail!("`{word}` is no script; `rrun eval --jobs {word}` runs the jobs of a file")
            }
            Some(word) => {
                if let Some(meant) = meant_by(&cli.program) {
                    bail!("there is no file `{word}`; did you mean `rrun {meant}`?");
                }
            }
            None => {}
        }
        let words = [&cli.program].into_iter().chain(&cli.args).cloned();
        let title = cli.program.to_string_lossy().into_owned();
        if cli.run_path {
            let fixed = vec![interpreter(env, node)?, "-c".into(), RUN_PATH.into()];
            return Ok(Program::Foreign {
                title: "run_script_path".to_owned(),
                fixed,
                templates: words.collect(),
            });
        }
        ensure!(
            !(cli.no_python && cli.module),
            "Don't use both the '--no-python' flag and the '--module' flag at the same time."
        );
        if cli.no_python {
            ensure!(
                find(&cli.program, env).is_some(),
                "No such file or directory: '{title}'"
            );
            return Ok(Program::Foreign {
                title,
                fixed: vec![cli.program.clone()],
                templates: cli.args.clone(),
            });
        }
        let flags = if cli.module {
            ["-u", "-m"].as_slice()
        } else {
            &["-u"]
        };
        let fixed = [interpreter(env, node)?]
            .into_iter()
            .chain(flags.iter().map(OsString::from))
            .collect();
        Ok(Program::Foreign {
            title,
            fixed,
            templates: words.collect(),
        })
    }

    /// Returns the name of the program in a failure report.
    pub fn title(&self) -> &str {
        match self {
            Program::BuiltIn { name, .. } => name,
            Program::Foreign { title, .. } => title,
        }
    }

    /// Returns the program and arguments of one rank.
    pub fn argv(&self, local_rank: usize) -> Vec<OsString> {
        match self {
            Program::BuiltIn { name, binary, args } => [binary.as_os_str(), OsStr::new(name)]
                .into_iter()
                .map(OsString::from)
                .chain(args.clone())
                .collect(),
            Program::Foreign {
                fixed, templates, ..
            } => {
                let fill =
                    |word: &OsString| substitute(word, "local_rank", &local_rank.to_string());
                fixed
                    .iter()
                    .cloned()
                    .chain(templates.iter().map(fill))
                    .collect()
            }
        }
    }
}

/// Returns whether a program is a jobs file, which Python would run without an error.
fn is_jobs_file(word: &str) -> bool {
    let extension = Path::new(word).extension();
    extension.is_some_and(|extension| ["json", "yaml", "yml"].iter().any(|of| extension == *of))
}

fn built_in(
    name: &'static str,
    cli: &Cli,
    env: &Environment,
    node: &Node,
) -> anyhow::Result<Program> {
    let binary = rank_binary(&node.executable).map_err(|missing| {
        anyhow!(
            "`{}` is missing; it runs `rrun eval` and `rrun serve`, and must be in the same folder \
             as `rrun`, or in the Python package `rrun` of the same venv",
            missing.display()
        )
    })?;
    let cpuinfo = || std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    libraries::check(&binary, env.get("LD_LIBRARY_PATH"), cpuinfo)?;
    Ok(Program::BuiltIn {
        name,
        binary,
        args: cli.args.clone(),
    })
}
