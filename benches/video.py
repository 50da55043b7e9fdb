"""Measures videos: frames per second of the recorder on one core, compared with the ffmpeg program
that gets the same frames over a pipe.
"""

import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import time

from launch import FOLDER
from programs import program

os.environ.setdefault("MUJOCO_GL", "egl")

# Edge of the square images: number of distinct images, and of images in all.
SIZES = {224: (240, 2400), 480: (120, 960), 960: (60, 240)}
PRESETS = ["ultrafast", "veryfast"]
FPS = 30
ROUNDS = 3


def rendered(side: int, count: int) -> pathlib.Path:
    """Returns images of `push` with a moving arm, as raw RGB."""
    import mujoco
    import numpy as np
    import python_loop

    path = pathlib.Path(FOLDER.name, f"{side}.rgb")
    if path.exists():
        return path
    model = python_loop.model()
    model.vis.global_.offwidth = model.vis.global_.offheight = side
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, "grip")
    renderer = mujoco.Renderer(model, side, side)
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        for number in range(count):
            if number % 10 == 0:
                delta = random.uniform(-0.05, 0.05, 3)
            python_loop.step(model, data, site, delta)
            renderer.update_scene(data, camera=0)
            file.write(renderer.render().tobytes())
    renderer.close()
    return path


def rrun(rust: str, frames: pathlib.Path, side: int, total: int, folder: pathlib.Path) -> dict:
    command = [rust, "record", "video", str(frames), str(side), str(side), str(total - 1), "1", str(folder)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"wall": said["all"], "cpu": said["cpu"], "file": next(folder.iterdir())}


def ffmpeg(preset: str, frames: pathlib.Path, side: int, total: int, folder: pathlib.Path) -> dict:
    folder.mkdir()
    path, pictures = folder / "ffmpeg.mp4", frames.read_bytes()
    size = side * side * 3
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{side}x{side}", "-r", str(FPS), "-i", "-"]
    code = ["-c:v", "libx264", "-preset", preset, "-crf", "23", "-threads", "1", "-pix_fmt", "yuv420p", "-movflags", "faststart"]
    used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    child = subprocess.Popen(["ffmpeg", "-v", "error", *raw, *code, str(path)], stdin=subprocess.PIPE)
    for number in range(total):
        at = number * size % len(pictures)
        child.stdin.write(pictures[at : at + size])
    child.stdin.close()
    assert child.wait() == 0
    wall, now = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": wall, "cpu": now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, "file": path}


def decibels(video: pathlib.Path, frames: pathlib.Path, side: int, count: int) -> float:
    """Returns the peak signal-to-noise ratio of the first round of images in RGB, as a viewer sees
    them."""
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{side}x{side}", "-r", str(FPS), "-i", str(frames)]
    compare = ["-lavfi", "[0:v]format=gbrp[a];[1:v]format=gbrp[b];[a][b]psnr", "-frames:v", str(count), "-f", "null", "-"]
    said = subprocess.run(["ffmpeg", "-i", str(video), *raw, *compare], capture_output=True, text=True).stderr
    return float(re.search(r"average:([\d.]+)", said).group(1))


def main() -> None:
    print(f"### video: `push` at {FPS} frames/s; frames a second of processor time (of wall time), size, quality; medians\n")
    sides = " | ".join(f"ffmpeg, x264 {preset} | ratio" for preset in PRESETS)
    print(f"| picture | rrun, one thread | {sides} |")
    print("|---|---|---|---|---|---|")
    rust = program("measure")
    for side, (count, total) in SIZES.items():
        frames = rendered(side, count)
        runs = {name: [] for name in ["rrun", *PRESETS]}
        for number in range(ROUNDS):
            for name in runs:
                folder = pathlib.Path(FOLDER.name, f"{name}-{side}-{number}")
                found = rrun(rust, frames, side, total, folder) if name == "rrun" else ffmpeg(name, frames, side, total, folder)
                runs[name].append(found)
        cells, rate = [], {}
        for name, found in runs.items():
            rate[name], wall = (total / statistics.median(run[key] for run in found) for key in ("cpu", "wall"))
            video = found[-1]["file"]
            size, quality = video.stat().st_size / 1e6, decibels(video, frames, side, count)
            cells.append(f"{rate[name]:.0f} ({wall:.0f}), {size:.1f} MB, {quality:.1f} dB")
            if name != "rrun":
                cells.append(f"{rate['rrun'] / rate[name]:.2f}")
        print(f"| {side}x{side} | {' | '.join(cells)} |", flush=True)
    print()
