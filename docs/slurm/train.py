"""Stands in for a training script: sums ones over all ranks, and saves when it is told that time is up.

    STEPS  steps of 0.1 s to run (10)
    STATE  file that rank 0 writes its step into when it stops early, starts from, and removes at the end
"""
import os
import signal
import socket
import time

import torch
import torch.distributed as dist

asked = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: asked.append(signal.Signals(number).name))

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
state = os.environ.get("STATE", "")
start = int(open(state).read()) if state and os.path.exists(state) else 0
if rank == 0:
    print(f"resumed at step {start}" if start else "started", flush=True)
for step in range(start, int(os.environ.get("STEPS", "10"))):
    # All ranks stop at the same step, whichever of them was told first.
    told = torch.tensor([float(bool(asked)), 1.0])
    dist.all_reduce(told)
    if told[0] > 0:
        if rank == 0 and state:
            with open(state, "w") as file:
                file.write(str(step))
            print(f"saved at step {step} because of {','.join(asked) or 'another rank'}", flush=True)
        break
    time.sleep(0.1)
else:
    if rank == 0 and state and os.path.exists(state):
        os.remove(state)
print(
    f"rank {rank} of {world} local {os.environ['LOCAL_RANK']} of {os.environ['LOCAL_WORLD_SIZE']}"
    f" group {os.environ['GROUP_RANK']} on {socket.gethostname()} sum {told[1].item():.0f}",
    flush=True,
)
dist.destroy_process_group()
