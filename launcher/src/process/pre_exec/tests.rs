use super::*;
use crate::numa::CpuList;
use crate::plan::RankPlan;
use crate::process::command::tests::{output, plan, start};

fn sh(script: &str) -> (i32, String) {
    output(&plan(&["/bin/sh", "-c", script]))
}

#[test]
fn a_rank_leads_its_own_session_and_group() {
    let (pid, stat) = sh("cat /proc/$$/stat");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("stat").1.split(' ').collect();
    assert_eq!(
        (fields[2], fields[3]),
        (pid.to_string().as_str(), pid.to_string().as_str())
    );
}

#[test]
fn a_rank_blocks_no_signal_and_ignores_neither_pipe_nor_file_size() {
    let (_, status) = sh("grep -E '^Sig(Blk|Ign)' /proc/self/status");
    let mask = |name: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .expect("a mask");
        u64::from_str_radix(line.split_whitespace().nth(1).expect("hex"), 16).expect("hex")
    };
    assert_eq!(mask("SigBlk:"), 0);
    assert_eq!(
        mask("SigIgn:") & (1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1)),
        0
    );
}

#[test]
fn a_bound_rank_may_use_its_cpus_only() {
    let first = *crate::numa::Machine::allowed().0.first().expect("a CPU");
    let cpus = first.to_string().parse::<CpuList>().ok();
    let rank = plan(&["grep", "Cpus_allowed_list", "/proc/self/status"]);
    let (_, out) = output(&RankPlan { cpus, ..rank });
    assert_eq!(out.trim(), format!("Cpus_allowed_list:\t{first}"));
}

#[test]
fn a_descriptor_of_ours_does_not_reach_a_rank() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let leaked = nix::unistd::dup(&file).expect("a copy without close-on-exec");
    let (_, listing) = sh("ls -l /proc/self/fd/");
    let name = file.path().display().to_string();
    assert!(
        listing.contains("0 -> ") && !listing.contains(&name),
        "{listing}"
    );
    drop(leaked);
}

#[test]
fn a_rank_dies_with_the_thread_that_started_it() {
    let start = || start(&plan(&["sleep", "100"])).expect("sleep starts");
    let rank = std::thread::spawn(start).join().expect("no panic");
    assert_eq!(rank.wait(), Exit::Signal(libc::SIGKILL));
}

#[test]
fn of_a_stranger_nothing_is_known() {
    assert!(ended(Pid::from_raw(1)).is_err());
}

#[test]
fn a_name_is_looked_for_in_each_folder_of_the_rank_s_path() {
    for (program, env, files) in [
        (
            c"p",
            &[c"HOME=/a", c"PATH=/x::/y/"][..],
            &["/x/p", "p", "/y//p"][..],
        ),
        // A name with a slash is taken as it is.
        (c"./p", &[c"PATH=/x"], &["./p"]),
        // Without a path, the usual folders are searched.
        (c"p", &[c"XPATH=/x"], &["/bin/p", "/usr/bin/p"]),
        (c"", &[c"PATH=/x"], &[]),
    ] {
        let found = candidates(program, env.iter().copied()).into_iter();
        let found: Vec<_> = found
            .map(|file| file.into_string().expect("text"))
            .collect();
        assert_eq!(found, files, "{program:?}");
    }
}
