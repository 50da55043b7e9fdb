"""Compares loading a GR00T checkpoint with `safetensors.torch.load_file` and `.to`, each in
processes of its own.

    cargo bench --bench random_checkpoint -- --size full --out /tmp/full
    .venv/bin/pip install safetensors
    .venv/bin/python benches/policy_load.py /tmp/full --dtype bf16 f32 --device cpu

To be run by hand, because `full` needs 6.3 GB of disk. "Warm" means that the files were read just
before; "cold" means that they were dropped from the page cache.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROUNDS = 3


def memory() -> dict[str, int]:
    """Returns the resident memory of this process in KiB, by the kernel's names."""
    fields = (line.split(":") for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return {name: int(value.split()[0]) for name, value in fields if name in ("VmHWM", "VmRSS", "RssAnon", "RssFile")}


def python(folder: pathlib.Path, dtype: str, device: str) -> dict:
    """Does and prints the same as `measure load`, with the reference's library."""
    import torch
    from safetensors.torch import load_file

    if device == "cuda":
        torch.cuda.synchronize()
    before, begin = memory(), time.perf_counter()
    kind = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= {name: tensor.to(device, kind) for name, tensor in load_file(file).items()}
    if device == "cuda":
        torch.cuda.synchronize()
    loaded, after = time.perf_counter(), memory()
    sum(tensor.view(-1)[::1024].sum(dtype=torch.float32).item() for tensor in tensors.values())
    touched = time.perf_counter()
    return {
        "tensors": len(tensors),
        "load_s": loaded - begin,
        "load_and_touch_s": touched - begin,
        "before_kib": before,
        "loaded_kib": after,
        "touched_kib": memory(),
    }


def measured(command: list[str], folder: pathlib.Path, cold: bool) -> dict:
    for file in folder.glob("*.safetensors"):
        with open(file, "rb", buffering=0) as handle:
            if cold:
                os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while not cold and handle.read(1 << 26):
                pass
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, runs: list[dict]) -> str:
    def seconds(field: str) -> float:
        return statistics.median(run[field] for run in runs)

    def megabytes(stage: str, field: str) -> float:
        return statistics.median(run[stage][field] - run["before_kib"][field] for run in runs) * 1024 / 1e6

    return (
        f"| {name} | {seconds('load_s') * 1e3:.0f} ms | {seconds('load_and_touch_s') * 1e3:.0f} ms "
        f"| {megabytes('loaded_kib', 'VmHWM'):.0f} MB | {megabytes('loaded_kib', 'RssAnon'):.0f} MB "
        f"| {megabytes('touched_kib', 'VmHWM'):.0f} MB | {megabytes('touched_kib', 'RssAnon'):.0f} MB |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--dtype", nargs="+", choices=["bf16", "f32"], default=["bf16"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(python(given.folder, given.dtype[0], given.device)))
        return
    files = list(given.folder.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    print(f"### policy_load: {size / 1e6:.0f} MB in {len(files)} files to {given.device}, medians of {given.rounds}\n")
    print("Memory is what loading adds, file pages included in the peaks; own is without them.\n")
    print("| | load | load and look at it | peak, loaded | own, loaded | peak, looked at | own, looked at |")
    print("|---|---|---|---|---|---|---|")
    for dtype in given.dtype:
        commands = {
            "rrun": [program("measure"), "load", str(given.folder), dtype, given.device],
            "Python": [sys.executable, __file__, str(given.folder), "--child", "--dtype", dtype, "--device", given.device],
        }
        for cold in (False, True):
            runs = {name: [] for name in commands}
            for turn in range(given.rounds):
                # The order alternates, because the first one uses up the burst of a VM's disk.
                for name, command in list(commands.items())[:: 1 if turn % 2 else -1]:
                    runs[name].append(measured(command, given.folder, cold))
            for name, list_of in runs.items():
                print(row(f"{name}, {dtype}, {'cold' if cold else 'warm'}", list_of), flush=True)
    print()


if __name__ == "__main__":
    main()
