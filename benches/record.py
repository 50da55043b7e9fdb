"""Measures datasets: megabytes per second written to HDF5, compared with h5py with the same layout,
chunks and compression.
"""

import json
import pathlib
import shutil
import statistics
import subprocess
import sys

from launch import FOLDER
from programs import program
from video import rendered

# Width and height of the images (0: none), and number of episodes.
SIZES = {0: 40, 224: 2}
STEPS = 300
ROUNDS = 3


def megabytes(side: int, episodes: int) -> float:
    """Returns the uncompressed size: three observed vectors, two of the simulator, two actions of 7
    numbers, reward, done, and images."""
    return episodes * STEPS * (7 * 7 * 4 + 5 + side * side * 3) / 1e6


def main() -> None:
    print(f"### record: episodes of {STEPS} steps into one HDF5 file; MB/s before compression, file; medians\n")
    print("| episodes | rrun | of it the loop is held up | h5py | ratio |")
    print("|---|---|---|---|---|")
    rust, script = program("measure"), str(pathlib.Path(__file__).with_name("record_h5py.py"))
    for side, episodes in SIZES.items():
        frames = str(rendered(side, 240)) if side else "none"
        words = [frames, str(side), str(side), str(STEPS), str(episodes)]
        sides = {"rrun": [rust, "record", "dataset", *words], "h5py": [sys.executable, script, *words]}
        runs = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, command in sides.items():
                folder = pathlib.Path(FOLDER.name, "datasets")
                folder.mkdir()
                output = subprocess.run([*command, str(folder)], check=True, capture_output=True, text=True).stdout
                runs[name].append({**json.loads(output), "size": next(folder.iterdir()).stat().st_size / 1e6})
                shutil.rmtree(folder)
        seconds = {name: statistics.median(run["all"] for run in found) for name, found in runs.items()}
        rate = {name: megabytes(side, episodes) / seconds[name] for name in seconds}
        cells = [f"{rate[name]:.1f} MB/s, {runs[name][-1]['size']:.1f} MB" for name in runs]
        held = statistics.median(run["caller"] for run in runs["rrun"]) / seconds["rrun"]
        kind = f"{episodes} of pictures of {side}x{side}" if side else f"{episodes} of numbers"
        print(f"| {kind} | {cells[0]} | {held:.0%} | {cells[1]} | {rate['rrun'] / rate['h5py']:.2f} |", flush=True)
    print()
