"""The recording that `rrun` replaces: a robomimic dataset written by h5py, as Isaac Lab's recorder
does it.

    record_h5py.py PICTURES HEIGHT WIDTH STEPS EPISODES DIR      prints {"all": seconds}

Rows are kept in memory until the end of an episode, then written with the chunks and compression
that `rrun` uses, and the file is synced. The file is not protected against a kill while it grows,
and no row is checked.
"""

import json
import os
import sys
import time

import h5py
import numpy as np

JOINTS = 7


def columns(step: int) -> dict[str, np.ndarray]:
    wave = np.sin(step * np.arange(1, JOINTS + 1) * 0.01).astype(np.float32)
    action = np.full(JOINTS, step * 1e-3, np.float32)
    names = ["obs/joint_position", "obs/joint_velocity", "obs/eef"]
    names += [f"states/articulation/robot/{name}" for name in ("joint_position", "joint_velocity")]
    return {**{name: wave.copy() for name in names}, "actions": action, "processed_actions": action.copy()}


def write(demo: h5py.Group, rows: list[dict], pictures: list[np.ndarray]) -> None:
    for name in rows[0]:
        values = np.stack([row[name] for row in rows])
        demo.create_dataset(name, data=values, chunks=values.shape, compression="gzip", compression_opts=2, shuffle=True)
    for name, kind in (("rewards", np.float32), ("dones", np.uint8)):
        demo.create_dataset(name, data=np.zeros(len(rows), kind), chunks=(len(rows),), compression="gzip", compression_opts=2)
    if pictures:
        stacked = np.stack(pictures)
        demo.create_dataset("obs/front", data=stacked, chunks=(1, *stacked.shape[1:]), compression="gzip", compression_opts=2)
    demo.attrs.update({"num_samples": len(rows), "success": True, "seed": 0})


def main(path: str, height: int, width: int, steps: int, episodes: int, folder: str) -> None:
    frames = np.fromfile(path, np.uint8).reshape(-1, height, width, 3) if height else None
    begin = time.perf_counter()
    with h5py.File(os.path.join(folder, "dataset.hdf5"), "w") as file:
        data = file.create_group("data")
        for episode in range(episodes):
            rows = [columns(step) for step in range(steps)]
            pictures = [frames[step % len(frames)].copy() for step in range(steps)] if height else []
            write(data.create_group(f"demo_{episode}"), rows, pictures)
            data.attrs["total"] = (episode + 1) * steps
            file.flush()
            os.fsync(file.id.get_vfd_handle())
    print(json.dumps({"all": time.perf_counter() - begin}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]), sys.argv[6])
