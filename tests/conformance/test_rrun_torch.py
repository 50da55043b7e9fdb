"""Programs that find out from their environment that torchrun has started them, under the launcher and under torchrun."""
import os
import re

import pytest
from conftest import DUMP, HERE, OMP, PY, SA, by_rank
from test_c10d import node
from test_static import two

cid, torchw = pytest.mark.cid, pytest.mark.torchw
FIXTURES = os.path.join(HERE, os.pardir, "fixtures")
DDP, LIBRARIES = (os.path.join(FIXTURES, name) for name in ("launch_ddp.py", "launch_libraries.py"))
TORCHRUN = (PY, "-m", "torch.distributed.run")
# Different by nature: chosen at random, or the sandbox's.
OWN = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "CONF_OUT", "CONF_TAG", "TMPDIR")
# What the launcher's own `import torch` exports, of which a worker needs nothing.
OF_TORCH = ("TORCHINDUCTOR", "CUDA", "KMP", "NCCL", "PYTORCH_NVML")


def seen(recs):
    """RANK -> the variables that must be the same under any launcher."""
    names = [k for k in recs[0]["env"] if k not in OWN and not k.startswith(OF_TORCH)]
    return {r: {k: rec["env"].get(k) for k in names} for r, rec in by_rank(recs).items()}


@cid("RRUN-20")
@torchw
def test_rrun_workers_see_what_torchrun_s_see(box, port):
    args = ("--nproc-per-node", 2, "--master-port", port, "--rdzv-id", "same", "--role", "r", DUMP)
    box.run(*args, env=OMP).ok()
    mine = seen(box.recs())
    for name in os.listdir(box.out):
        os.remove(os.path.join(box.out, name))
    box.run(*args, env=OMP, launcher=TORCHRUN).ok()
    assert mine == seen(box.recs())


@cid("RRUN-21")
@torchw
@pytest.mark.parametrize("meet", ["alone", "static", "c10d"])
def test_rrun_libraries_find_their_place(box, port, meet):
    if meet == "alone":
        nodes = [box.start(*SA, "--nproc-per-node", 2, LIBRARIES, env=OMP)]
    elif meet == "static":
        nodes = two(box, port, (LIBRARIES,), (LIBRARIES,))
    else:
        nodes = [node(box, port, LIBRARIES) for _ in range(2)]
    said = "".join(p.ok(180).out for p in nodes)
    assert sorted(re.findall(r"^LIBRARIES rank (\d) of 2 agree", said, re.M)) == ["0", "1"]


@cid("RRUN-22")
@torchw
@pytest.mark.slow
def test_rrun_training_recovers_from_a_killed_worker(box, port):
    # torchrun shares one store between attempts, where a new rank may find a dead one's address (pytorch/pytorch#135712)
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **OMP}
    whole, killed = box.path("whole"), box.path("killed")
    os.mkdir(whole), os.mkdir(killed)
    box.run(*SA, "--nproc-per-node", 4, DDP, whole, env=env, timeout=180).ok()
    nodes = [node(box, port, DDP, killed, "3", nproc=2, extra=("--max-restarts", 2), env=env) for _ in range(2)]
    (victim,) = box.wait_files(os.path.join(killed, "victim.0"), 1)
    with open(victim) as f:
        os.kill(int(f.read()), 9)
    ends = [parameters(said) for said in (box.procs[0].out, "".join(p.ok(180).out for p in nodes))]
    assert len(ends[0]) == len(ends[1]) and max(abs(a - b) for a, b in zip(*ends)) < 1e-9


def parameters(said):
    (numbers,) = re.findall(r"^ATTEMPT \d+ PARAMETERS (.*)$", said, re.M)
    return [float(number) for number in numbers.split()]
