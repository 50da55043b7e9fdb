#!/usr/bin/env python3
"""The planner's peaks (jobs/fit/src/gr00t/measured.json), measured anew on an imitated card.

`measure gpu` infers with a random checkpoint, one process for each row of the table, and libtorch's
allocator says what it has reserved of the card. Kernels compute nothing, and nothing here is a
result of a GPU: what CUDA takes itself for kernels and graphs is not in these numbers.
`demo` is the network of `rrun demo`.

    tests/imitation/build.py
    .venv/bin/pytest tests/imitation/test_memory.py             # a small network; a minute
    RRUN_SLOW=1 .venv/bin/pytest tests/imitation/test_memory.py  # the released size: 20 minutes
    tests/imitation/test_memory.py --write                      # all sizes, into measured.json

The released size needs 7 GB of disk and of memory.
"""

import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "benches"))
from programs import program
MEASURED = ROOT / "jobs/fit/src/gr00t/measured.json"

CAMERAS = [1, 2, 3]
ROWS = [1, 4, 8, 16, 32]
# Cameras and rows with longer prompts.
LONG = [(1, 1), (1, 16), (1, 32), (2, 16), (2, 32), (3, 16), (3, 32)]
# Numbers of rows up to which one process infers with every padded size of a batch, with two cameras.
ALL_SIZES, PADDED = [2, 4, 8, 16, 32], [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
# Tokens of text in a prompt of `measure gpu` beside those around pictures, and of the longer ones.
TEXT, LONG_TEXT = 27, 60
# Bytes up to which libtorch's allocator calls a tensor small.
SMALL = 1 << 20
# Bytes of disk and of memory for the released size.
ROOM = 8 << 30
# What may differ from the table: one segment of the allocator, where an address decides.
TOLERANCE = 20 << 20

# What the planner reads of the two `config.json`.
FIELDS = {
    "config": ["select_layer", "input_embedding_dim", "hidden_size", "action_horizon", "max_action_dim",
               "vl_self_attention_cfg", "diffusion_model_cfg"],
    "text_config": ["hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"],
    "vision_config": ["hidden_size", "intermediate_size", "num_heads", "depth", "patch_size",
                      "spatial_merge_size", "deepstack_visual_indexes"],
}


def picked(fields: dict, name: str) -> dict:
    return {key: fields[key] for key in FIELDS[name]}


def checkpoint(size: str, folder: pathlib.Path) -> pathlib.Path:
    if size == "demo":
        return shutil.copytree(ROOT / "jobs/suites/demo_policy", folder, dirs_exist_ok=True)
    words = [program("random_checkpoint"), "--size", size, "--out", folder]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return folder


def with_longer_prompts(folder: pathlib.Path) -> None:
    """The template ends a message with more than one token."""
    path = folder / "vlm/chat_template.json"
    template = json.loads(path.read_text())
    end, more = "<|im_end|>", LONG_TEXT - TEXT
    template["chat_template"] = template["chat_template"].replace(end, end * (1 + more))
    path.write_text(json.dumps(template))


def tensor_bytes(folder: pathlib.Path) -> list[int]:
    """Of all tensors in bfloat16, by the headers."""
    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__", None)
        found += [math.prod(it["shape"]) * (8 if it["dtype"] == "I64" else 2) for it in header.values()]
    return found


def described(folder: pathlib.Path) -> dict:
    """The network as the planner knows it."""
    config = json.loads((folder / "config.json").read_text())
    vlm = json.loads((folder / "vlm/config.json").read_text())
    processor = json.loads((folder / "processor_config.json").read_text())["processor_kwargs"]
    sizes = tensor_bytes(folder)
    return {
        "config": picked(config, "config"),
        "vlm": {name: picked(vlm[name], name) for name in ("text_config", "vision_config")},
        "weights": {"large": sum(it for it in sizes if it > SMALL), "small": sum(it for it in sizes if it <= SMALL)},
        "edge": processor["image_target_size"][0],
    }


def peak(folder: pathlib.Path, cameras: int, rows: int, graphs: bool, text: int = TEXT,
         every_size: bool = False) -> dict:
    """Of one process: loading and some inferences."""
    batches = [it for it in PADDED if it <= rows] if every_size else [rows]
    words = [HERE / "with_card.sh", program("measure"), "gpu", folder, "--device", "cuda", "--loads", "0",
             "--cameras", str(cameras), "--batches", ",".join(map(str, batches)), "--seconds", "0.02"]
    if not graphs:
        words.append("--no-cuda-graphs")
    env = {**os.environ, "IMITATION_VALUES": "0"}
    out = subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
    memory = json.loads(out.splitlines()[-1])["memory"]
    most = {name: max(memory[when][f"{name}_peak_bytes"] for when in ("before", "run"))
            for name in ("allocated", "reserved")}
    key = {"cameras": cameras, "rows": rows, "graphs": graphs, "text": text}
    found = {**key, **most, "graph": memory["graphs_bytes"]}
    return {**found, "all": True} if every_size else found


def table() -> dict:
    return json.loads(MEASURED.read_text())


def is_built() -> bool:
    return shutil.which("cargo") is not None and (HERE / "with_card.sh").exists()


def has_room() -> bool:
    free = int(next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable")).split()[1]) << 10
    return min(free, shutil.disk_usage(tempfile.gettempdir()).free) > ROOM


def check(size: str, folder: pathlib.Path, peaks: list[dict]) -> None:
    checkpoint(size, folder)
    assert described(folder) == {name: table()[size][name] for name in ("config", "vlm", "weights", "edge")}
    is_long = False
    for wanted in sorted(peaks, key=lambda it: it["text"]):
        if wanted["text"] == LONG_TEXT and not is_long:
            with_longer_prompts(folder)
            is_long = True
        key = [wanted[name] for name in ("cameras", "rows", "graphs", "text")]
        found = peak(folder, *key, every_size=wanted.get("all", False))
        for name in ("allocated", "reserved", "graph"):
            assert abs(found[name] - wanted[name]) <= TOLERANCE, (name, wanted, found)


needs_build = pytest.mark.skipif(not is_built(), reason="there is no cargo, or no imitation")


@needs_build
def test_a_small_network_takes_what_the_table_says(tmp_path):
    check("tiny", tmp_path, [it for it in table()["tiny"]["peaks"] if it["rows"] in (1, 32)])


@needs_build
def test_the_network_of_the_demo_takes_what_the_table_says(tmp_path):
    check("demo", tmp_path, [it for it in table()["demo"]["peaks"] if it.get("all") and it["rows"] < 32])


@needs_build
@pytest.mark.skipif("RRUN_SLOW" not in os.environ, reason="RRUN_SLOW=1 runs it: 20 minutes")
@pytest.mark.skipif(not has_room(), reason="8 GiB of disk and of memory are needed")
def test_the_released_size_takes_what_the_table_says(tmp_path):
    check("full", tmp_path, table()["full"]["peaks"])


def write() -> None:
    found = {}
    for size in ("full", "160m", "tiny", "demo"):
        with tempfile.TemporaryDirectory() as folder:
            folder = checkpoint(size, pathlib.Path(folder))
            rows = [peak(folder, cameras, rows, graphs)
                    for graphs in (False, True) for cameras in CAMERAS for rows in ROWS]
            if size == "full":
                with_longer_prompts(folder)
                rows += [peak(folder, *row, graphs, LONG_TEXT) for graphs in (False, True) for row in LONG]
            if size == "demo":
                rows += [peak(folder, 2, rows, True, every_size=True) for rows in ALL_SIZES]
            found[size] = {**described(folder), "peaks": rows}
    MEASURED.write_text(rendered(found))


def rendered(sizes: dict) -> str:
    """JSON with a line for each peak."""
    parts = []
    for size, fields in sizes.items():
        lines = [f'    "{name}": {json.dumps(fields[name])}' for name in ("config", "vlm", "weights", "edge")]
        peaks = ",\n".join("      " + json.dumps(it) for it in fields["peaks"])
        parts.append(f'  "{size}": {{\n' + ",\n".join(lines) + f',\n    "peaks": [\n{peaks}\n    ]\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    write()
