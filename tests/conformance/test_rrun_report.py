"""What rrun says beyond torchrun: before its report, in events, before a launch and of the ranks' use of the machine."""
import json
import os
import re

import pytest
from conftest import DUMP, OMP, SA
from test_fail import report

cid = pytest.mark.cid


def script(box, text):
    path = box.path("s.py")
    with open(path, "w") as f:
        f.write(text)
    return path


@cid("RRUN-10")
@pytest.mark.rrun
def test_rrun_repeats_the_end_of_a_redirected_stderr(box):
    s = script(box, "import sys\nfor i in range(100): print('step', i, file=sys.stderr)\nraise RuntimeError('no more')\n")
    p = box.run(*SA, "-r", "3", "--log-dir", box.path("lg"), s)
    said, _, _ = p.err.partition("FAILED")
    assert p.rc == 1 and "RuntimeError: no more" in said and "step 99" in said and "step 10\n" not in said
    (path,) = re.findall(r"end of `(.*)`", said)
    assert path.startswith(box.path("lg")) and path.endswith("/attempt_0/0/stderr.log") and os.path.isfile(path)


@cid("RRUN-11")
@pytest.mark.rrun
def test_rrun_names_the_first_failure_before_the_box(box):
    s = script(box, "import os, time\nif os.environ['RANK'] == '1': time.sleep(1); os._exit(5)\ntime.sleep(100)\n")
    p = box.run(*SA, "--nproc-per-node", 3, s, env=OMP)
    (line,) = [line for line in p.err.split("\n====")[0].splitlines() if line.startswith("rrun: root cause: ")]
    assert "rank 1 (local_rank 1, pid " in line and " exited with code 5; it used " in line
    _, _, others = report(p.err)
    assert all("sent by rrun to end the group" in o["traceback"] for o in others) and len(others) == 2


@cid("RRUN-12")
@pytest.mark.rrun
def test_rrun_events_are_json_lines(box):
    log = box.path("events.jsonl")
    p = box.run(*SA, "--nproc-per-node", 2, "--event-log-handler", f"json:{log}", DUMP, "only:1", "exit:3", env=OMP)
    with open(log) as f:
        events = [json.loads(line) for line in f]
    assert p.rc == 1 and {e["source"] for e in events} == {"AGENT", "WORKER"}
    (failed,) = [e for e in events if e["source"] == "WORKER" and e["metadata"].get("exit_code") == 3]
    assert failed["metadata"]["global_rank"] == 1 and failed["metadata"]["usage"]["max_rss"] > 1 << 20
    assert events[-1]["name"] == "torchelastic.worker.status.FAILED" and events[-1]["source"] == "AGENT"


@cid("RRUN-13")
@pytest.mark.rrun
def test_rrun_dry_run_starts_nothing(box):
    p = box.run(*SA, "--nproc-per-node", 2, "--dry-run=json", DUMP, env=OMP).ok()
    assert len(json.loads(p.out)["ranks"]) == 2 and not box.recs() and not os.listdir(box.tmp)


@cid("RRUN-14")
@pytest.mark.rrun
def test_rrun_tells_what_ranks_used(box):
    p = box.run(*SA, "--nproc-per-node", 2, "--rusage", DUMP, env=OMP).ok()
    used = re.findall(r"rank (\d) exited with code 0: .* s of CPU, .* MiB of memory", p.err)
    assert sorted(used) == ["0", "1"]
