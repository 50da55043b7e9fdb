"""A policy server of the reference's design: a REP socket, one request at a time, msgpack with
numpy arrays.

    serve_python.py echo|eager CHECKPOINT        prints its port

`echo` decodes a request and answers with actions computed beforehand, which shows the cost of the
protocol. `eager` runs the network of policy_eager.py for each request, on inputs prepared
beforehand: no images are resized and no prompts tokenised, which favours this side.
"""

import pathlib
import sys

import msgpack
import numpy as np
import torch
import zmq

import policy_eager

TEXT_TOKENS = 24
HORIZON, ACTIONS = 8, ["dx", "dy", "dz", "droll", "dpitch", "dyaw", "gripper"]


def encode(obj):
    if isinstance(obj, np.ndarray):
        return {b"nd": True, b"type": obj.dtype.str, b"kind": b"", b"shape": obj.shape, b"data": obj.tobytes()}
    return obj


def decode(obj):
    if b"nd" in obj:
        return np.ndarray(buffer=obj[b"data"], dtype=np.dtype(obj[b"type"]), shape=obj[b"shape"])
    return obj


def inputs() -> dict[str, torch.Tensor]:
    """Returns inputs for the demo checkpoint: a single image with as many patches and tokens as two
    images of 96 x 96 have (6 x 6, 9)."""
    words = torch.randint(0, 200, (TEXT_TOKENS,))
    picture = torch.tensor([665] + [668] * 18 + [666])
    return {
        "pixel_values": torch.randn(72, 1536),
        "image_grid_thw": torch.tensor([1, 6, 12]),
        "input_ids": torch.cat((words[:8], picture, words[8:]))[None],
        "state": torch.randn(1, 1, 16),
        "embodiment_id": torch.tensor([0]),
        "noise": torch.randn(1, HORIZON, len(ACTIONS)),
    }


@torch.inference_mode()
def main(kind: str, checkpoint: str) -> None:
    torch.set_num_threads(1)
    network, sample = policy_eager.Network(pathlib.Path(checkpoint)), inputs()
    actions = network(sample)[0]
    socket = zmq.Context().socket(zmq.REP)
    print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    while True:
        request = msgpack.unpackb(socket.recv(), object_hook=decode)
        observation = request["data"]["observation"]
        assert observation["video"]["front"].shape[-1] == 3
        if kind == "eager":
            actions = network(sample)[0]
        keys = {key: actions[..., i : i + 1].numpy() for i, key in enumerate(ACTIONS)}
        socket.send(msgpack.packb([keys, {}], default=encode))


if __name__ == "__main__":
    main(*sys.argv[1:])
