//! Tests of completions in the shells themselves, and of man pages in `man`. What is not installed
//! is left out, except bash.

use std::process::Command;

use rig::run::Given;

fn is_installed(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    found.is_ok_and(|output| output.status.success())
}

/// Returns what a shell prints that runs a script below the completions of `rrun`.
fn in_shell(shell: &str, script: &str) -> String {
    let rrun = Given::rrun().words(["--print-completion", shell]);
    let completions = rrun.succeeds().stderr_is("");
    let folder = tempfile::tempdir().unwrap();
    let (file, commands) = (folder.path().join("rrun"), folder.path().join("commands"));
    std::fs::write(&file, completions.stdout).unwrap();
    let script = script.replace("COMPLETIONS", &file.display().to_string());
    std::fs::write(&commands, script).unwrap();
    std::fs::create_dir(folder.path().join("outputs")).unwrap();

    let output = Command::new("timeout")
        .args(["60", shell])
        .args((shell == "zsh").then_some("-f"))
        .arg(&commands)
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("TERM", "dumb")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shell}: {output:?}");
    text
}

/// A bash function that completes the last of its words, and prints what may follow.
const IN_BASH: &str = r#"
source COMPLETIONS
complete_() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _rrun rrun "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo "${COMPREPLY[*]}"
}
"#;

#[test]
fn bash_completes_each_command_with_its_own_options() {
    let lines = [
        "complete_ rrun ev",
        "complete_ rrun eval --j",
        "complete_ rrun --nproc-per-node 2 eval --record-f",
        "complete_ rrun eval --record-format ''",
        "complete_ rrun verify --no",
        "complete_ rrun help ver",
        "complete_ rrun help o",
        "complete_ rrun list torchs",
        "complete_ rrun --nproc-p",
        "complete_ rrun serve --policy-d",
    ];
    let text = in_shell("bash", &format!("{IN_BASH}{}", lines.join("\n")));
    let words: Vec<&str> = text.split('\n').collect();
    let told = [
        "eval",
        "--jobs --job-attempts",
        "--record-format",
        "hdf5 lerobot",
        "--no-values",
        "verify",
        "options",
        "torchscript",
        "--nproc-per-node",
        "--policy-device-id --policy-device",
    ];
    assert_eq!(words[..words.len() - 1], told);
}

#[test]
fn fish_completes_each_command_with_its_own_options() {
    if !is_installed("fish") {
        return;
    }
    let completed = |line: &str| {
        let script = format!("source COMPLETIONS; complete -C '{line}'");
        let text = in_shell("fish", &script);
        let word = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
        text.lines().map(word).collect::<Vec<_>>()
    };
    assert_eq!(completed("rrun ev"), ["eval"]);
    assert_eq!(completed("rrun eval --j"), ["--jobs", "--job-attempts"]);
    assert_eq!(
        completed("rrun --nproc-per-node 2 verify --no-v"),
        ["--no-values"]
    );
    assert_eq!(completed("rrun verify out"), ["outputs/"]);
}

#[test]
fn zsh_completes_each_command_with_its_own_options() {
    if !is_installed("zsh") {
        return;
    }
    // A shell in a terminal of its own, because the completion of zsh needs its line editor. A key
    // prints the line after a completion, and each read waits for that.
    let start = r#"
zmodload zsh/zpty
zpty -b shell zsh -f -i
zpty -w shell 'autoload -U compinit; compinit -u -D; source COMPLETIONS; compdef _rrun rrun'
zpty -w shell 'show() { zle -I; print -r -- "LINE=$BUFFER=" }; zle -N show; bindkey "^X" show'
zpty -w shell 'print START''ED'
zpty -r shell text '*STARTED*'
complete_() {
    zpty -w -n shell "$1"$'\t\C-x'
    zpty -r shell text '*LINE=*=*'
    print -r -- "${${text##*LINE=}%%=*}"
    zpty -w -n shell $'\C-u'
}
"#;
    let lines = [
        "complete_ 'rrun eval --job-a'",
        "complete_ 'rrun --nproc-per-node 2 verify --no-v'",
        "complete_ 'rrun help comp'",
        "complete_ 'rrun list torchs'",
        "complete_ 'rrun --nproc-per'",
        "complete_ 'rrun dem'",
        "complete_ 'rrun comm'",
        "complete_ 'rrun verify out'",
    ];
    let script = format!("{start}{}\nzpty -d shell\n", lines.join("\n"));
    let text = in_shell("zsh", &script);
    let completed: Vec<&str> = text.lines().map(str::trim_end).collect();
    let told = [
        "rrun eval --job-attempts",
        "rrun --nproc-per-node 2 verify --no-values",
        "rrun help compare",
        "rrun list torchscript",
        "rrun --nproc-per-node",
        "rrun demo",
        "rrun commands", // the file of this test
        "rrun verify outputs/",
    ];
    assert_eq!(completed, told);
}

#[test]
fn a_man_page_is_one_that_man_reads_without_a_warning() {
    if !is_installed("man") {
        return;
    }
    let rrun = Given::rrun().words("--write-man share");
    rrun.succeeds();
    let mut man = Given::new("man")
        .words(["--warnings", "-l"])
        .env("MANWIDTH", 80);
    man = man.words([rrun.path("share/rrun-verify.1")]);
    man.succeeds().stderr_is("").stdout_has("--rerun-seed");
}
