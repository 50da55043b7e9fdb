"""The same command lines through torchrun and rrun: what the ranks are given, what they leave, how the launch ends.

A case says nothing about what is right: torchrun does. What differs on purpose is in its `differ`, with the reason.
"""

import json
import os
import re
import shutil
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conftest import LAUNCHER, VENV, W, Box, free_port

TORCHRUN = [os.path.join(VENV, "bin", "torchrun")]
TELL = os.path.join(W, "tell.py")
STATIC_PORT = 29500
DEFAULT_PORT_DEADLINE_S = 120

# Where the rendezvous is c10d, torchrun tells ranks the host's name and a random port; rrun tells them the loopback address,
# because the name may not resolve, and a free port.
MEETS_ANYWHERE = {"MASTER_ADDR", "MASTER_PORT"}

# With --run-path torchrun's rank is a process of Python's multiprocessing, in the launcher's session; ours is a program as any
# other, so that its group can be ended.
FORKED = {"session", "words"}

# What the launcher's own `import torch` exports, of which a rank needs nothing.
OF_TORCH = ("TORCHINDUCTOR", "CUDA_MODULE", "KMP", "NCCL", "PYTORCH_NVML")


@dataclass
class Case:
    """One command line; `{port}` in it is a free port."""

    name: str
    line: list[str]
    env: dict[str, str] = field(default_factory=dict)
    quick: bool = False
    stdin: str | None = None
    # Whether ranks run `tell.py`.
    tells: bool = True
    # Variables and facts of ranks that are not the same, for the reason that stands beside the name.
    differ: set[str] = field(default_factory=set)

    @property
    def uses_default_port(self):
        """Whether both would meet at torchrun's port: then one runs after the other."""
        words = " ".join(self.line)
        return not re.search(r"--standalone|--master|--rdzv-endpoint|--rdzv-backend|PET_", words + " ".join(self.env))


def words(line):
    return line.split(" ")


def at(line, name, **options):
    """A static launch at a port of its own."""
    return Case(name, ["--master-port", "{port}", *words(line)], **options)


def refused(line, name, **options):
    return Case(name, words(line), tells=False, **options)


TWO = "--nproc-per-node 2 tell.py"
ARGUMENTS = ["tell.py", "", "a b", "é", "'q'", "-x", "--nproc-per-node", "9", "--", "z"]
MACROS = ["tell.py", "${local_rank}", "$local_rank", "$$", "$$HOME", "${LOCAL_RANK}", "$unknown", "a$", "${local_rank}x"]

CASES = [
    # What the program is given.
    Case("defaults", ["tell.py", "a", "b"], quick=True),
    at("tell.py -- --lr 3", "dashes_after_the_script", quick=True),
    at("-- tell.py -- x", "dashes_on_both_sides"),
    at("tell.py x -- y", "dashes_among_arguments"),
    at("tell.py -- -- x", "dashes_twice"),
    at("-m tell -- x", "dashes_after_a_module"),
    Case("any_argument", ["--master-port", "{port}", *ARGUMENTS]),
    Case("macros", ["--master-port", "{port}", "--nproc-per-node", "2", *MACROS], quick=True),
    at("-m tell a -m b", "a_module"),
    at("--run-path tell.py a b", "run_path", differ=FORKED),
    at("--no-python python tell.py a", "no_python"),
    Case("no_python_shell", ["--master-port", "{port}", "--no-python", "sh", "-c", "echo $$RANK $$0 $$1", "a", "b"],
         tells=False),
    at("./tell.py a", "a_path"),
    at("tell.py", "stdin", env={"TELL_STDIN": "1"}, stdin="a line\n"),
    # What ranks are told.
    at("--nproc-per-node 3 tell.py", "three_ranks", quick=True),
    at("--nproc_per_node=2 --max_restarts=2 --role trainer tell.py", "underscores"),
    at("--nproc-per 2 --max-r 1 tell.py", "abbreviations"),
    at(TWO, "threads_that_are_given", env={"OMP_NUM_THREADS": "5"}),
    at(TWO, "threads_that_are_empty", env={"OMP_NUM_THREADS": ""}),
    at("--rdzv-id job-7 --rdzv-conf timeout=60 tell.py", "an_id"),
    at("--master-addr localhost tell.py", "an_address"),
    Case("an_endpoint", words("--rdzv-endpoint localhost:{port} --rdzv-id e tell.py")),
    Case("local_addr", words("--local-addr 127.0.0.2 --master-port {port} tell.py")),
    at("--signals-to-handle SIGTERM,SIGUSR1 tell.py", "signals"),
    at("--monitor-interval 0.2 --start-method fork tell.py", "settings_without_effect"),
    at("tell.py", "a_store_of_rank_0_is_for_elastic_launches", env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    at("tell.py", "nested", env={"RANK": "7", "WORLD_SIZE": "9", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "outer"}),
    at("--virtual-local-rank " + TWO, "virtual_local_ranks", env={"CUDA_VISIBLE_DEVICES": "3, 5"}),
    at("--virtual-local-rank " + TWO, "virtual_local_ranks_without_a_list"),
    Case("standalone", words("--standalone " + TWO), quick=True, differ=MEETS_ANYWHERE | {"TORCHELASTIC_RUN_ID"}),
    Case("elastic", words("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id c tell.py"),
         differ=MEETS_ANYWHERE),
    # Variables of the launcher.
    at("tell.py", "pet", env={"PET_NPROC_PER_NODE": "2", "PET_ROLE": "pet", "PET_MAX_RESTARTS": "4"}),
    at("--nproc-per-node 1 --role cli tell.py", "pet_is_beaten", env={"PET_NPROC_PER_NODE": "2", "PET_ROLE": "pet"}),
    at("tell.py", "pet_flags", env={"PET_NO_PYTHON": "0", "PET_RUN_PATH": "1"}, differ=FORKED),
    at("tell.py", "pet_flag_that_is_no_number", env={"PET_STANDALONE": "yes"}, tells=False),
    at("tell.py", "pet_of_a_wrong_type", env={"PET_MAX_RESTARTS": "abc"}, tells=False),
    # How it ends.
    at("tell.py", "exit_code", env={"TELL_EXIT": "0.0=3"}, quick=True),
    at(TWO, "a_rank_that_is_killed", env={"TELL_EXIT": "1.0=-9"}),
    at("--max-restarts 2 " + TWO, "a_restart_that_helps", env={"TELL_EXIT": "0.0=1,1.1=4"}),
    at("--max-restarts 1 tell.py", "a_restart_that_does_not_help", env={"TELL_EXIT": "0.0=1,0.1=2"}),
    at("--max-restarts 1 tell.py", "a_library_that_is_missing", env={"TELL_EXIT": "0.0=127,0.1=127"}),
    at("nothing.py", "a_script_that_is_nowhere", tells=False),
    at("--no-python /nonexistent", "a_program_that_is_nowhere", tells=False),
    at("tell.py", "an_error_file_for_the_launcher",
       env={"TORCHELASTIC_ERROR_FILE": "outer.json", "TELL_ERROR_FILE": "1", "TELL_EXIT": "0.0=9"}),
    # Logs.
    at("--log-dir logs -r 3 " + TWO, "redirected", quick=True),
    at("--log-dir logs -t 3 " + TWO, "teed"),
    at("--log-dir logs -r 0:1,1:2 " + TWO, "redirected_by_rank"),
    at("--log-dir logs -r 2 -t 0:1 " + TWO, "teed_and_redirected"),
    at("--log-dir logs --logs-specs default -r3 tell.py", "the_default_logs"),
    at("--log-dir logs -t 3 --local-ranks-filter 1 " + TWO, "teed_of_one_rank"),
    at("--local-ranks-filter 0 " + TWO, "shown_of_one_rank"),
    at("--log-dir logs -t 3 --duplicate-stdout-filters out --duplicate-stderr-filters nothing " + TWO, "duplicated"),
    at("--log-dir /dev/null -t 3 " + TWO, "no_logs"),
    at("--log-dir logs -t 1 tell.py", "prefix", env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name}/${rank}] "}),
    at("--log-dir logs -r 3 --max-restarts 1 tell.py", "logs_of_attempts", env={"TELL_EXIT": "0.0=1"}),
    # What is refused, and how.
    refused("--bogus tell.py", "unknown_option", quick=True),
    refused("--rdzv 2 tell.py", "ambiguous_option"),
    refused("--max-restarts a tell.py", "no_number"),
    refused("--start-method foo tell.py", "no_choice"),
    refused("--standalone", "no_program"),
    refused("--nproc-per-node 0 tell.py", "no_ranks"),
    refused("--nproc-per-node abc tell.py", "no_kind_of_device"),
    refused("--nnodes 2:1 tell.py", "no_range_of_nodes"),
    refused("--nnodes 1:2:3 tell.py", "no_nodes"),
    refused("--max-restarts -1 tell.py", "negative_restarts"),
    refused("-r 10:1 tell.py", "a_rank_of_two_digits"),
    refused("-t 4 tell.py", "no_streams"),
    refused("--local-ranks-filter a tell.py", "no_list_of_ranks"),
    refused("--logs-specs nosuch tell.py", "no_entry_point"),
    refused("--rdzv-backend foo tell.py", "no_backend"),
    refused("--rdzv-endpoint localhost tell.py", "no_port"),
    refused("--master-port 70000 tell.py", "no_such_port"),
    refused("--no-python -m tell", "two_kinds_of_program"),
    refused("--rdzv-conf a tell.py", "settings_without_value"),
]


def params():
    for number, case in enumerate(CASES):
        marks = [pytest.mark.cid(f"DIF-{number + 1:02}"), pytest.mark.rrun]
        yield pytest.param(case, id=case.name, marks=marks + [pytest.mark.quick] * case.quick)


@dataclass
class Outcome:
    """What a launch left, in a form in which the two can be compared."""

    code: int
    ranks: dict
    stdout: list[str]
    files: dict


@pytest.mark.parametrize("case", list(params()))
def test_rrun_does_as_torchrun(case, tmp_path):
    boxes = [make_box(tmp_path / name) for name in ("torchrun", "rrun")]
    launchers = [TORCHRUN, LAUNCHER]
    try:
        if case.uses_default_port:
            theirs, ours = [outcome(case, box, alone(case, box, launcher)) for box, launcher in zip(boxes, launchers)]
        else:
            running = [start(case, box, launcher) for box, launcher in zip(boxes, launchers)]
            theirs, ours = [outcome(case, box, process) for box, process in zip(boxes, running)]
    finally:
        for box in boxes:
            box.cleanup()
    said = "\n".join(f"--{process.argv}\n{process.err[-2000:]}" for box in boxes for process in box.procs)
    assert ours.code == theirs.code, said
    assert bool(theirs.ranks) == case.tells, said
    assert ours.ranks.keys() == theirs.ranks.keys(), said
    for who, told in theirs.ranks.items():
        env = ours.ranks[who].pop("env"), told.pop("env")
        assert env[0] == env[1], who
        assert ours.ranks[who] == told, who
    assert ours.stdout == theirs.stdout, said
    assert ours.files == theirs.files, said


HARD_CODED = """
import os, sys
import torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=rank, world_size=world)
sizes = [None] * world
dist.all_gather_object(sizes, rank)
open(os.path.join(os.environ["CONF_OUT"], f"met.{rank}"), "w").write(str(sizes))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.cid("DIF-00")
@pytest.mark.rrun
@pytest.mark.torchw
def test_rrun_ranks_meet_at_a_port_that_their_script_knows(tmp_path):
    for name, launcher in (("torchrun", TORCHRUN), ("rrun", LAUNCHER)):
        box = make_box(tmp_path / name)
        Path(box.path("hard.py")).write_text(HARD_CODED)
        case = Case("hard", words("--nproc-per-node 2 hard.py"))
        try:
            process = alone(case, box, launcher)
            assert process.wait() == 0, process.err
        finally:
            box.cleanup()
        assert [Path(box.path("rec", f"met.{rank}")).read_text() for rank in (0, 1)] == ["[0, 1]"] * 2


def make_box(folder):
    folder.mkdir()
    shutil.copy(TELL, folder)
    return Box(folder)


def start(case, box, launcher):
    box.port = free_port()
    line = [word.replace("{port}", str(box.port)) for word in case.line]
    env = {"PYTHONPATH": box.dir, "LC_ALL": "C.UTF-8", **case.env}
    stdin = None
    if case.stdin is not None:
        Path(box.path("stdin")).write_text(case.stdin)
        stdin = open(box.path("stdin"))
    return box.start(*line, env=env, launcher=launcher, stdin=stdin)


def alone(case, box, launcher):
    """A launch that wants torchrun's port: again, if another launch of this machine had it."""
    deadline = time.time() + DEFAULT_PORT_DEADLINE_S
    while True:
        wait_for_default_port(deadline)
        process = start(case, box, launcher)
        process.wait()
        lost_it = "EADDRINUSE" in process.err or f"port {STATIC_PORT} is in use" in process.err
        if not lost_it or time.time() > deadline:
            return process
        shutil.rmtree(box.out)
        os.mkdir(box.out)


def wait_for_default_port(deadline):
    while time.time() < deadline:
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("::", STATIC_PORT))
            return
        except OSError:
            time.sleep(0.1)


def outcome(case, box, process):
    code = process.wait()
    ranks = {}
    for path in Path(box.out).glob("*.json"):
        told = json.loads(path.read_text())
        told["env"] = environment(case, box, told["env"])
        told["argv"], told["cwd"] = [text(box, word) for word in told["argv"]], text(box, told["cwd"])
        told["words"] = [text(box, word) for word in told["words"]]
        told.update((name, "(differs)") for name in case.differ & told.keys())
        ranks[path.name] = told
    files = {"logs": tree(box, Path(box.path("logs")))}
    outer = Path(box.path("outer.json"))
    files["outer"] = json.loads(outer.read_text()) if outer.exists() else None
    return Outcome(code, ranks, sorted(text(box, process.out).splitlines()), files)


def environment(case, box, env):
    """Without what is each launch's own, and with its folders and ports by name."""
    own = ("CONF_", "TMPDIR", *OF_TORCH)
    env = {name: text(box, value) for name, value in env.items() if name != "_" and not name.startswith(own)}
    for name in case.differ & env.keys():
        env[name] = "(differs)"
    if env.get("TORCHELASTIC_ERROR_FILE"):
        env["TORCHELASTIC_ERROR_FILE"] = re.sub(r".*(/attempt_)", r"RUN\1", env["TORCHELASTIC_ERROR_FILE"])
    return env


def text(box, value):
    return value.replace(box.dir, "BOX").replace(str(box.port), "PORT")


def tree(box, folder):
    """Log files by their names without the random part, with their lines in any order."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = re.sub(r"_[a-z0-9_]{8}(/|$)", r"_RANDOM\1", str(path.relative_to(folder)))
        found[name] = sorted(text(box, path.read_text()).splitlines()) if path.is_file() else "folder"
    return found
