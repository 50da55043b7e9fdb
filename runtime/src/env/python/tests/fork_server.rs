//! Tests of the fork server: what is shared, what is not, and when processes are started directly.

use std::fs;

use rig::wait::until;

use super::*;

/// An environment in a file of its own, which logs each time it is imported.
struct Imported {
    folder: tempfile::TempDir,
}

impl Imported {
    /// Writes the environment; `code` is run when it is imported.
    fn new(code: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixtures = root().join("tests/fixtures/envs");
        let text = format!(
            "import os, pathlib, random, sys, time\n\
             import numpy as np\n\
             sys.path.insert(0, {fixtures:?})\n\
             from toy import Toy\n\
             HERE = pathlib.Path(__file__).parent\n\
             (HERE / 'imports').open('a').write(f'{{os.getpid()}}\\n')\n\
             {code}\n\
             class Told(Toy):\n\
             \x20   def __init__(self, **kwargs):\n\
             \x20       super().__init__(**kwargs)\n\
             \x20       self.told = f'{{os.getpid()}} {{random.random()}} {{np.random.rand()}}'\n"
        );
        fs::write(folder.path().join("imported.py"), text).unwrap();
        Self { folder }
    }

    fn args(&self, more: Value) -> Value {
        let file = self.folder.path().join("imported.py");
        let mut args = json!({
            "environment": format!("{}:Told", file.display()),
            "mapping": {"language": {"attr": "told"}},
        });
        let more = more.as_object().unwrap().clone();
        args.as_object_mut().unwrap().extend(more);
        args
    }

    fn start(&self, more: Value, num_envs: usize) -> Toy {
        start(self.args(more), num_envs)
    }

    /// Returns how many processes have run the file.
    fn imports(&self) -> usize {
        let text = fs::read_to_string(self.folder.path().join("imports"));
        text.map_or(0, |text| text.lines().count())
    }
}

/// Returns PID and random numbers of a copy, which it reset.
fn told(env: &mut Toy, index: usize) -> Vec<String> {
    let text = reset(env, index, 1).unwrap().language.to_string();
    text.split(' ').map(str::to_owned).collect()
}

fn pid(env: &mut Toy, index: usize) -> u32 {
    told(env, index)[0].parse().unwrap()
}

/// Returns a field of proc_pid_stat(5) behind the name.
fn stat(pid: u32, field: usize) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    let field = fields.split_whitespace().nth(field).unwrap();
    field.parse().unwrap()
}

fn parent(pid: u32) -> u32 {
    stat(pid, 1)
}

/// Waits until these processes have ended; whoever has to may not have reaped them yet.
fn wait_for_the_end(pids: &[u32]) {
    let lives = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    };
    until("the end of the processes", || !pids.iter().any(lives));
}

/// Returns how often an environment of two processes is imported, whose import does this.
fn imports_of(code: &str, more: Value) -> usize {
    let imported = Imported::new(code);
    let mut env = imported.start(more, 2);
    assert_ne!(pid(&mut env, 0), pid(&mut env, 1));
    imported.imports()
}

#[test]
fn processes_share_one_import_and_neither_randomness_nor_group_nor_end() {
    let imported = Imported::new("");
    let mut env = imported.start(json!({}), 3);
    let all = [0, 1, 2].map(|index| told(&mut env, index));
    let pids = all.each_ref().map(|told| told[0].parse().unwrap());
    let server = parent(pids[0]);
    assert_eq!(pids.map(parent), [server; 3]);
    assert_eq!(imported.imports(), 1);
    assert_eq!(parent(server), std::process::id());
    assert_ne!(all[0][1], all[1][1], "random");
    assert_ne!(all[0][2], all[1][2], "numpy.random");
    let line = fs::read(format!("/proc/{}/cmdline", pids[1])).unwrap();
    let line = String::from_utf8_lossy(&line).into_owned();
    let label = "rrun-env job=toy rank=0 envs=1-1";
    assert!(
        line.trim_end_matches([' ', '\0']).ends_with(label),
        "{line:?}"
    );
    assert_eq!(stat(pids[1], 2), pids[1], "its group");
    drop(env);
    wait_for_the_end(&[server, pids[0], pids[1], pids[2]]);
}

#[test]
fn a_process_that_is_alone_and_those_that_a_job_wants_to_spawn_are_children_of_the_rank() {
    let imported = Imported::new("");
    let mut env = imported.start(json!({}), 1);
    assert_eq!(parent(pid(&mut env, 0)), std::process::id());
    let mut env = imported.start(json!({"start_method": "spawn"}), 2);
    assert_eq!(parent(pid(&mut env, 0)), std::process::id());
    assert_eq!(parent(pid(&mut env, 1)), std::process::id());
    assert_eq!(imported.imports(), 3);
}

#[test]
fn processes_of_one_place_share_a_server() {
    let imported = Imported::new("");
    let place = EnvPlacement {
        gpus: gpus(&[0, 0, 1, 1, 2].map(Some)),
        ..EnvPlacement::new(0)
    };
    let mut env = start_with(imported.args(json!({})), config(place)).unwrap();
    let parents = [0, 1, 2, 3, 4].map(|index| parent(pid(&mut env, index)));
    assert_eq!(imported.imports(), 3);
    assert_eq!(parents[0], parents[1]);
    assert_eq!(parents[2], parents[3]);
    assert_ne!(parents[0], parents[2]);
    assert_eq!(parents[4], std::process::id());
}

#[test]
fn an_import_that_forks_badly_or_touches_randomness_is_done_by_each_process() {
    for (code, leaves) in [
        (
            "import threading; threading.Thread(target=time.sleep, args=[3600], daemon=True).start()",
            "a thread",
        ),
        ("log = open(HERE / 'log', 'a')", "a file"),
        (
            "import mmap; shared = mmap.mmap(-1, 4096)",
            "memory that both would write",
        ),
        (
            "import subprocess; child = subprocess.Popen(['sleep', '3600'])",
            "a child of the server",
        ),
        ("np.random.seed(7)", "a seed of numpy"),
        ("random.seed(7)", "a seed"),
        ("rng = np.random.default_rng()", "a generator"),
    ] {
        assert_eq!(imports_of(code, json!({})), 3, "{leaves}");
    }
}

#[test]
fn threads_that_end_before_a_fork_forbid_none() {
    // OpenBLAS starts threads as soon as numpy is imported.
    let threads = json!({"env": {"OPENBLAS_NUM_THREADS": "2"}});
    let count = "import os; (HERE / 'threads').write_text(str(len(os.listdir('/proc/self/task'))))";
    assert_eq!(imports_of(count, threads), 1);
}

#[test]
fn an_interpreter_that_receives_no_descriptors_starts_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let text = "import socket\nif hasattr(socket, 'recv_fds'):\n    del socket.recv_fds\n";
    fs::write(folder.path().join("sitecustomize.py"), text).unwrap();
    let path = json!({"env": {"PYTHONPATH": folder.path()}});
    assert_eq!(imports_of("", path), 2);
}

#[test]
fn a_forked_process_shows_the_same_as_a_spawned_one_and_holds_no_more() {
    let seen = |method: &str| {
        let imported = Imported::new("");
        let mut env = imported.start(json!({"start_method": method}), 3);
        let pid = pid(&mut env, 2);
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let shared = maps.lines().filter(|line| line.contains(" rw-s ")).count();
        assert_eq!(shared, 1, "its own memory alone");
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut places: Vec<_> = descriptors
            .map(|entry| fs::read_link(entry.unwrap().path()).unwrap())
            .map(|place| place.display().to_string())
            .map(|place| place.split(":[").next().unwrap().to_owned())
            .collect();
        places.sort_unstable();
        let begun = reset(&mut env, 1, 9).unwrap().state;
        let moved = step(&mut env, 1, [0.3, -0.2]).unwrap().observation.state;
        (places, begun, moved)
    };
    assert_eq!(seen("forkserver"), seen("spawn"));
}

#[test]
fn a_server_that_dies_takes_its_processes_along_and_the_next_are_started_directly() {
    let imported = Imported::new("");
    let mut env = imported.start(json!({}), 2);
    let both = [0, 1].map(|index| pid(&mut env, index));
    let server = parent(both[0]);
    let server = rustix::process::Pid::from_raw(server.cast_signed()).unwrap();
    rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
    wait_for_the_end(&both);
    // A process may have ended without this side knowing; what it is sent then is lost with it.
    for index in [0, 1] {
        let (_, reason, _) = lost(step(&mut env, index, [0.0; 2]));
        let why = "the simulator was killed by the end of its fork server; ";
        assert!(reason.starts_with(why), "{reason}");
    }
    assert_eq!(parent(pid(&mut env, 0)), std::process::id());
    assert_eq!(parent(pid(&mut env, 1)), std::process::id());
    assert_eq!(imported.imports(), 3);
}

/// Begins the second of two copies again, which forks a third process; `fork` is what that does
/// instead of `os.fork`, which it finds as `real`. Returns why the copy is lost.
fn third_fork(fork: &str) -> (String, Toy, Imported) {
    let imported = Imported::new(&format!(
        "import resource\n\
         calls, real = [], os.fork\n\
         def third():\n\
         \x20   {fork}\n\
         def fork():\n\
         \x20   calls.append(1)\n\
         \x20   return third() if len(calls) == 3 else real()\n\
         os.fork = fork"
    ));
    let mut env = imported.start(json!({"recycle_after": 1}), 2);
    let kept = pid(&mut env, 0);
    pid(&mut env, 1);
    let (index, reason, _) = lost(reset(&mut env, 1, 1));
    assert_eq!((index, imported.imports()), (1, 1));
    assert!(Path::new(&format!("/proc/{kept}")).exists());
    (reason, env, imported)
}

#[test]
fn a_fork_that_the_system_refuses_loses_one_copy_and_each_process_is_forked_by_the_same_server() {
    let (reason, mut env, _imported) = third_fork("raise BlockingIOError(11, 'x')");
    let wanted = "cannot be forked: Resource temporarily unavailable";
    assert!(reason.contains(wanted), "{reason}");
    // Each episode has a process of its own here, forked by the same server.
    let [first, second] = [(); 2].map(|()| pid(&mut env, 1));
    assert_ne!(first, second);
    let server = parent(second);
    assert_eq!(server, parent(pid(&mut env, 0)));
    assert_eq!(parent(server), std::process::id());
}

#[test]
fn a_fork_server_without_descriptors_says_so_and_its_processes_live_on() {
    // There is none for the process that was forked, and later only two of the four that come with
    // a request, unless a process that has ended has given back some by then.
    let (reason, mut env, _imported) = third_fork(
        "pid = real()\n\
         \x20   free = os.dup(0)\n\
         \x20   os.close(free)\n\
         \x20   if pid: resource.setrlimit(resource.RLIMIT_NOFILE, (free - 2, 4096))\n\
         \x20   return pid",
    );
    let wanted = "cannot be forked: Too many open files";
    assert!(reason.contains(wanted), "{reason}");
    if let Err(err) = reset(&mut env, 1, 1) {
        assert!(err.to_string().contains(wanted), "{err}");
    }
}

#[test]
fn an_import_that_fails_is_told_as_by_a_process_of_its_own() {
    let reason = |method: &str, code: &str| {
        let imported = Imported::new(code);
        let args = imported.args(json!({"start_method": method}));
        let started = start_with(args, config(EnvPlacement::new(2)));
        let folder = imported.folder.path().display().to_string();
        shown(&started.err().unwrap().to_string()).replace(&folder, "FOLDER")
    };
    let raised = "raise ImportError('no such library')";
    assert_eq!(reason("forkserver", raised), reason("spawn", raised));
    assert!(reason("spawn", raised).contains("raised ImportError: no such library"));
    let killed = "print('about to die', flush=True); os.kill(os.getpid(), 11)";
    assert_eq!(reason("forkserver", killed), reason("spawn", killed));
    assert!(reason("spawn", killed).contains("SIGSEGV"));
}

#[test]
fn an_import_that_hangs_is_given_up_with_its_last_lines() {
    let imported = Imported::new("print('looking for a licence', flush=True); time.sleep(3600)");
    let place = EnvPlacement {
        stall_timeout: Duration::from_secs(10),
        ..EnvPlacement::new(2)
    };
    let started = start_with(imported.args(json!({})), config(place));
    let reason = shown(&started.err().unwrap().to_string());
    let begin = "the simulator gave no answer for 10 s; it was at `make ";
    let end = ", process N\n    looking for a licence";
    assert!(
        reason.starts_with(begin) && reason.ends_with(end),
        "{reason}"
    );
    let imports = fs::read_to_string(imported.folder.path().join("imports")).unwrap();
    let pids: Vec<_> = imports.lines().map(|pid| pid.parse().unwrap()).collect();
    wait_for_the_end(&pids);
}
