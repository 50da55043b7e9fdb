"""`rrun` on several cards: who sits where, how results come together, what happens if a card dies.

The programs are those in `target/release`, and RRUN_BIN names another folder of them.
"""

import json
import os
import pathlib
import re
import subprocess
from collections import Counter
from dataclasses import dataclass

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
WITH_CARD = HERE.parent / "with_card.sh"
RRUN = pathlib.Path(os.environ.get("RRUN_BIN", ROOT / "target" / "release")) / "rrun"
DEMO = ROOT / "jobs" / "suites" / "demo.json"

# Seconds for one command on a machine that is busy; it takes some five.
PATIENCE_S = 240
# What a launcher or a scheduler around the tests has set is not theirs.
FOREIGN = ("PET_", "TORCHELASTIC_", "SLURM_", "CUDA_", "RRUN_", "IMITATION_")
LOST = "is lost to this process: "
ECC = "uncorrectable ECC error encountered"

pytestmark = pytest.mark.skipif(not RRUN.exists(), reason="rrun is not built")


def uuid(card: int) -> str:
    """As the imitation names its cards."""
    return f"GPU-{card + 1}2345678-9abc-4def-8012-3456789abc{card:02x}"


def job(name: str, episodes: int = 2, num_envs: int = 2, **config) -> dict:
    policy = {"model_path": "jobs/suites/demo_policy", "action_chunk_length": 6, **config}
    env = {"environment": "reach", "num_envs": num_envs, "enable_cameras": True}
    return {"name": name, "arena_env_args": env, "policy_type": "gr00t", "seed": 1,
            "policy_config_dict": policy, "num_episodes": episodes}


@dataclass
class Ended:
    code: int
    out: str
    err: str
    folder: pathlib.Path

    @property
    def report(self) -> dict:
        return json.loads((self.folder / "report.json").read_text())

    @property
    def episodes(self) -> dict:
        """Success and length of each; fails if one is there twice or has an error."""
        lines = (self.folder / "episodes.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        assert not [it for it in found if it.get("error")], found
        keys = Counter((it["job"], it["episode"]) for it in found)
        assert set(keys.values()) <= {1}, keys
        return {(it["job"], it["episode"]): (it["success"], it["length"]) for it in found}

    @property
    def devices(self) -> list[str]:
        return [rank["device"] for rank in self.report["per_rank"]]

    @property
    def uuids(self) -> list[str]:
        """Of the cards that policies were on, in the order of the ranks."""
        journals = sorted(self.folder.glob("journal/journal_rank*.jsonl"))
        first = [json.loads(path.read_text().splitlines()[0]) for path in journals]
        return [find(line, "uuid") for line in first]


def find(value, key: str):
    """The first value of that key, at any depth."""
    if not isinstance(value, dict):
        return None
    inner = (find(it, key) for it in value.values())
    return value.get(key) or next((it for it in inner if it), None)


class Machine:
    def __init__(self, folder: pathlib.Path):
        self.folder, self.runs = folder, 0

    def rrun(self, *words, cards: int = 0, visible: str | None = None, **variables) -> Ended:
        """Runs rrun; `variables` are those of `with_card.sh` in small letters."""
        self.runs += 1
        env = {name: it for name, it in os.environ.items()
               if not name.startswith(FOREIGN) or name == "IMITATION_BUILD"}
        settings = {f"IMITATION_{name.upper()}": str(it) for name, it in variables.items()}
        # A rank alone would take all cores for operators that are too small for that.
        env |= {"OMP_NUM_THREADS": "1", "IMITATION_SHARED": str(self.folder / "shared"),
                "IMITATION_CARDS": str(cards), **settings}
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        before = [WITH_CARD] if cards else []
        done = subprocess.run([*before, RRUN, *map(str, words)], cwd=ROOT, env=env, text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
        return Ended(done.returncode, done.stdout, done.stderr, self.output)

    @property
    def output(self) -> pathlib.Path:
        return self.folder / f"run{self.runs}"

    def try_eval(self, jobs: list[dict], *words, ranks: int | None = 2, before=(), **variables):
        path = self.folder / f"jobs{self.runs + 1}.json"
        path.write_text(json.dumps({"jobs": jobs}))
        output = self.folder / f"run{self.runs + 1}"
        launch = [*before, *(["--nproc-per-node", ranks] if ranks else [])]
        rest = ["--jobs", path, "--no-video", "--output", output, *words]
        return self.rrun(*launch, "eval", *rest, **variables)

    def eval(self, jobs: list[dict], *words, **options) -> Ended:
        ended = self.try_eval(jobs, *words, **options)
        assert ended.code == 0, ended.err
        return ended


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def jobs(count: int, **options) -> list[dict]:
    return [job(f"job{index}", **options) for index in range(count)]


# How results come together.


def test_ranks_take_the_visible_cards_in_their_order_and_gather_by_nccl(machine):
    order = [3, 1, 0, 2]
    visible = ",".join(uuid(card)[:5] for card in order)
    ended = machine.eval(jobs(4), ranks=4, visible=visible, cards=4)
    assert ended.devices == [f"cuda:{rank}" for rank in range(4)]
    assert ended.uuids == [uuid(card) for card in order]
    assert (ended.report["run"]["gathered_by"], len(ended.episodes)) == ("nccl", 8)


def test_ranks_that_share_a_card_gather_through_the_store_and_say_so(machine):
    ended = machine.eval(jobs(4), "--workers-per-gpu", 2, ranks=4, cards=2)
    assert ended.devices == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert (ended.report["run"]["gathered_by"], len(ended.episodes)) == ("store", 8)
    assert re.search(rf"NCCL was not used: rank 1 shares \S*{uuid(0)}", ended.err), ended.err


# A card that dies.


def losses(said: str, rank: int, card: int, error: str) -> int:
    """How often a rank says that it lost its card; before the error may stand what it was doing."""
    gpu = re.escape(f"cuda:{card} (NVIDIA H100 80GB HBM3, {uuid(card)})")
    line = rf"rrun-rank: rank {rank} ends: {gpu} {LOST}(?:.*: )?CUDA error: {error}\n"
    return len(re.findall(line, said))


@pytest.mark.parametrize("fault, error", [
    ("1@1500", ECC),
    ("1@1500:illegal", "an illegal memory access was encountered"),
])
def test_a_rank_whose_card_fails_starts_again_alone(machine, fault, error):
    ended = machine.eval([job("a"), job("b", episodes=8)], cards=2, fault=fault)
    assert len(ended.episodes) == 10
    assert losses(ended.err, 1, 1, error) == 1, ended.err
    assert "rank 1 exited with code 1; restart 1 of 6 in 1 s, the other ranks continue" in ended.err
    assert "panicked" not in ended.err and "frame #" not in ended.err
    ranks = ended.report["per_rank"]
    assert [(rank["deaths"], len(rank["lives"])) for rank in ranks] == [(0, 1), (1, 2)]
    failure = ranks[1]["lives"][0]["failure"]
    assert LOST in failure and failure.endswith(f"CUDA error: {error}")


def test_a_card_that_stays_broken_costs_its_ranks_episodes_alone(machine):
    ended = machine.try_eval([job("a"), job("b")], before=["--max-restarts", 1], cards=2,
                             fault="1@1:always")
    assert ended.code == 1
    assert set(ended.episodes) == {("a", 0), ("a", 1)}
    assert ended.report["missing_count"] == 2 and ended.report["failures_count"] == 0
    assert losses(ended.err, 1, 1, ECC) == 2, ended.err
    assert "rank 1 exited with code 1; no restart is left, the other ranks continue" in ended.err


def test_a_server_whose_card_fails_while_it_loads_says_so(machine):
    ended = machine.rrun("serve", "--policy", ROOT / "jobs" / "suites" / "demo_policy", "--port", 0,
                         cards=1, fault="0@1")
    assert ended.code != 0 and LOST in ended.err and ECC in ended.err, ended.err
    assert "panicked" not in ended.err


# Who sits where.


def test_ranks_that_see_one_card_each_gather_by_nccl(machine):
    ended = machine.eval(jobs(2), before=["--virtual-local-rank"], visible="2,1", cards=4)
    assert ended.devices == ["cuda:0", "cuda:0"]
    assert ended.uuids == [uuid(2), uuid(1)]
    assert ended.report["run"]["gathered_by"] == "nccl"


def test_policies_go_where_the_placement_says(machine):
    ended = machine.eval(jobs(2), "--placement", "env: 0-1, rollout: 2-3", ranks=None, cards=4)
    assert ended.devices == ["cuda:2", "cuda:3"]
    assert "rrun: GPU 2: RolloutWorker 0 (policy inference)" in ended.err, ended.err


# Memory.


def test_weights_for_which_a_card_has_no_room_are_refused_before_the_start(machine):
    ended = machine.try_eval(jobs(2), cards=2, used_mib="1:81559")
    refusal = r"rrun: error: GPU 1 has 0 free, but at least \d+ MiB are required \(weights \d+ MiB"
    assert ended.code == 1 and re.match(refusal, ended.err), ended.err


@pytest.mark.slow
def test_a_card_that_is_short_of_memory_is_named_with_its_bytes(machine):
    ended = machine.try_eval(jobs(2), cards=2, used_mib="1:81030")
    assert (ended.code, set(ended.episodes)) == (1, {("job0", 0), ("job0", 1)}), ended.err
    assert "GPU 1 has a total capacity of 79.65 GiB of which 11.00 MiB is free" in ended.err
    assert "fewer num_envs leave more for the policy" in ended.err and "panicked" not in ended.err


def test_fit_counts_what_the_visible_cards_have_free(machine):
    path = machine.folder / "jobs.json"
    path.write_text(json.dumps({"jobs": jobs(2)}))
    used = "0:10240,1:20480,2:30720,3:40960"
    ended = machine.rrun("fit", "--jobs", path, "--nproc-per-node", 2, visible="3,1", cards=4,
                         used_mib=used)
    assert ended.code == 0, ended.err
    free = [f"{(81559 - 10240 * (card + 1)) / 1024:.1f} GiB" for card in (3, 1)]
    assert [it for it in free if it not in ended.out + ended.err] == [], ended.out


def test_fit_judges_the_card_that_the_policy_is_asked_to_take(machine):
    path = machine.folder / "jobs.json"
    path.write_text(json.dumps({"jobs": jobs(1)}))
    ended = machine.rrun("fit", "--jobs", path, "--policy-device", "cuda:1", cards=2,
                         used_mib="0:0,1:81559")
    assert ended.code == 1 and re.search(r"^\| 1 .*\| no ", ended.out, re.M), ended.out


# The machine.


def test_the_doctor_tries_every_visible_card(machine):
    ended = machine.rrun("doctor", "--json", "--output", machine.folder, "--timeout", PATIENCE_S // 2,
                         visible="2,0,1", cards=4, used_mib="3:70000")
    checks = {it["name"]: it for it in json.loads(ended.out)["checks"]}
    assert checks["NVIDIA driver"]["found"].endswith("4 GPUs; CUDA_VISIBLE_DEVICES=2,0,1 shows 3")
    assert [checks[f"GPU {card}"]["outcome"] for card in range(4)] == ["ok"] * 3 + ["warning"]
    assert checks["CUDA"]["found"].endswith("a product on 3 GPUs"), checks["CUDA"]
    assert checks["NCCL"]["found"].startswith("3 processes met"), checks["NCCL"]
    assert "EGL" not in checks or checks["EGL"]["outcome"] == "failed"


# Results.


def first_chunks(ended: Ended, name: str) -> dict:
    """The actions of each episode's first inference, by its seed."""
    h5py = pytest.importorskip("h5py")
    (path,) = (ended.folder / name).glob("dataset_*.hdf5")
    with h5py.File(path) as file:
        demos = file["data"].values()
        return {int(demo.attrs["seed"]): demo["actions"][:6] for demo in demos}


def test_a_policy_on_card_1_begins_as_on_the_cpu_in_batches_of_any_size(machine):
    episodes = [job("a", episodes=4, dtype="float32")]
    # Card 0 answers with an error whoever touches it.
    on_card = {"ranks": 1, "cards": 2, "fault": "0@1:always"}
    together = machine.eval(episodes, "--policy-device-id", 1, **on_card)
    one_by_one = machine.eval(episodes, "--policy-device-id", 1, "--max-batch", 1, **on_card)
    on_cpu = machine.eval(episodes, ranks=1)
    assert (together.devices, on_cpu.devices) == (["cuda:1"], ["cpu"])
    assert together.uuids == [uuid(1)]
    assert one_by_one.episodes == together.episodes
    found, wanted = first_chunks(together, "a"), first_chunks(on_cpu, "a")
    assert found.keys() == wanted.keys()
    assert max(abs(found[seed] - wanted[seed]).max() for seed in wanted) < 1e-5


# The demo, whole.


def demo(machine: Machine, path: pathlib.Path, **options) -> Ended:
    output = machine.folder / f"run{machine.runs + 1}"
    words = ["--nproc-per-node", 4, "eval", "--jobs", path, "--output", output]
    ended = machine.rrun(*words, **options)
    assert (ended.code, len(ended.episodes)) == (0, 144), ended.err
    return ended


# Rounding decides some episodes: the first actions agree to 3e-7 in float32, and after some thirty
# steps of pushing they differ by 5e-3. Policies without a network agree in every episode.
@pytest.mark.slow
@pytest.mark.parametrize("dtype, differ, flipped", [("float32", 12, 3), ("bfloat16", 24, 4)])
def test_the_demo_on_four_cards_comes_out_as_on_the_cpu(machine, dtype, differ, flipped):
    content = json.loads(DEMO.read_text())
    for it in content["jobs"]:
        if it["policy_type"] == "gr00t":
            it["policy_config_dict"]["dtype"] = dtype
    path = machine.folder / "demo.json"
    path.write_text(json.dumps(content))
    on_cards, on_cpu = demo(machine, path, cards=4), demo(machine, DEMO)
    assert on_cards.devices == [f"cuda:{rank}" for rank in range(4)]
    assert on_cards.report["run"]["gathered_by"] == "nccl"
    found, wanted = on_cards.episodes, on_cpu.episodes
    others = {key for key in wanted if found[key] != wanted[key]}
    assert {name for name, _ in others} <= {"reach", "push", "pick_and_place"}
    assert len(others) <= differ, others
    assert len([key for key in others if found[key][0] != wanted[key][0]]) <= flipped


@pytest.mark.slow
def test_the_demo_loses_no_episode_with_a_card(machine):
    ended = demo(machine, DEMO, cards=4, fault="2@2000")
    assert losses(ended.err, 2, 2, ECC) == 1, ended.err
    assert [rank["deaths"] for rank in ended.report["per_rank"]] == [0, 0, 1, 0]
