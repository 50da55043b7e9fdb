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

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use anyhow::{anyhow, bail, ensure};

use crate::cli::built_in::{TOOLS, meant_by};
use crate::cli::{Cli, Environment};
use crate::installed::{libraries, rank_binary};
use crate::node::Node;
use crate::plan::python::{find, interpreter};

/// Runs a script by runpy and records its exception, as torchrun's `run_script_path` does.
const RUN_PATH: &str = include_str!("run_path.py");

/// A program to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name in a failure report.
    pub title: String,
    /// Leading words, in which nothing is substituted.
    fixed: Vec<OsString>,
    /// Further words, in which `${local_rank}` is substituted.
    templates: Vec<OsString>,
}

impl Program {
    /// Returns the program that `cli` asks for.
    ///
    /// # Errors
    /// Returns an error for flags that exclude each other, and if the program or interpreter is not
    /// found.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<Program> {
        if cli.is_built_in() {
            return built_in(cli, env, node);
        }
        if let Some(word) = cli.built_in() {
            refuse_word(word)?;
        }
        let title = cli.program.to_string_lossy().into_owned();
        let python = || interpreter(env, node);
        let (title, fixed) = match (cli.run_path, cli.no_python, cli.module) {
            (true, ..) => {
                let fixed = vec![python()?, "-c".into(), RUN_PATH.into()];
                ("run_script_path".to_owned(), fixed)
            }
            (false, true, true) => bail!(
                "Don't use both the '--no-python' flag and the '--module' flag at the same time."
            ),
            (false, true, false) => {
                let found = find(&cli.program, env);
                ensure!(found.is_some(), "No such file or directory: '{title}'");
                return Ok(Program {
                    title,
                    fixed: vec![cli.program.clone()],
                    templates: cli.args.clone(),
                });
            }
            (false, false, true) => (title, vec![python()?, "-u".into(), "-m".into()]),
            (false, false, false) => (title, vec![python()?, "-u".into()]),
        };
        let words = [&cli.program].into_iter().chain(&cli.args);
        Ok(Program {
            title,
            fixed,
            templates: words.cloned().collect(),
        })
    }

    /// Returns the program and arguments of one rank.
    pub fn argv(&self, local_rank: usize) -> Vec<OsString> {
        let rank = local_rank.to_string();
        let filled = self.templates.iter();
        let filled = filled.map(|word| substitute(word, "local_rank", &rank));
        self.fixed.iter().cloned().chain(filled).collect()
    }
}

/// Refuses a plain word that is certainly no program: a tool behind options, a jobs file, which
/// Python would run without an error, and a misspelt command.
fn refuse_word(word: &str) -> anyhow::Result<()> {
    let extension = Path::new(word).extension().and_then(OsStr::to_str);
    ensure!(
        !TOOLS.contains(&word),
        "`{word}` is a tool and takes no launch options: write it first, for example `rrun {word} \
         --help`; a file is ./{word}"
    );
    ensure!(
        !matches!(extension, Some("json" | "yaml" | "yml")),
        "`{word}` is no script; `rrun eval --jobs {word}` runs the jobs of a file"
    );
    match meant_by(word.as_ref()) {
        Some(meant) => bail!("there is no file `{word}`; did you mean `rrun {meant}`?"),
        None => Ok(()),
    }
}

fn built_in(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<Program> {
    let binary = rank_binary(&node.executable).map_err(|missing| {
        anyhow!(
            "`{}` is missing; it runs `rrun eval` and `rrun serve`, and must be in the same folder \
             as `rrun`, or in the Python package `rrun` of the same venv",
            missing.display()
        )
    })?;
    let cpuinfo = || std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    libraries::check(&binary, env.get("LD_LIBRARY_PATH"), cpuinfo)?;
    let words = [binary.as_os_str(), &cli.program].map(OsStr::to_owned);
    Ok(Program {
        title: cli.program.to_string_lossy().into_owned(),
        fixed: words.into_iter().chain(cli.args.clone()).collect(),
        templates: Vec::new(),
    })
}

/// Returns `text` with `$name` and `${name}` replaced by `value`, and `$$` by `$`, as Python's
/// `string.Template.safe_substitute` does. Any other dollar is kept.
fn substitute(text: &OsStr, name: &str, value: &str) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.extend_from_slice(before);
        let (replacement, used) = match placeholder(after) {
            Some((found, used)) if found == name.as_bytes() => (value, used),
            _ if after.starts_with(b"$") => ("$", 1),
            _ => ("$", 0),
        };
        out.extend_from_slice(replacement.as_bytes());
        rest = &after[used..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

/// Returns the name after a dollar, and its length in bytes with its braces.
fn placeholder(after: &[u8]) -> Option<(&[u8], usize)> {
    let Some(inner) = after.strip_prefix(b"{") else {
        let name = identifier(after);
        return Some((name, name.len()));
    };
    let name = identifier(inner);
    let is_closed = inner.get(name.len()) == Some(&b'}');
    is_closed.then_some((name, name.len() + 2))
}

/// Returns the ASCII identifier at the start of `bytes`, which may be empty.
fn identifier(bytes: &[u8]) -> &[u8] {
    if bytes.first().is_none_or(u8::is_ascii_digit) {
        return &[];
    }
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    &bytes[..bytes.iter().take_while(|byte| is_part(byte)).count()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_without_dollars_stays_and_no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let text = OsString::from_vec(bytes.clone());
            let filled = substitute(&text, "local_rank", "7");
            prop_assert!(bytes.contains(&b'$') || filled == text);
        }
    }
}
