"""Measures GR00T N1.7 in PyTorch on a GPU, in the dtype of the reference, eager and compiled, for
comparison with `measure gpu`.

    policy_gpu.py rates  [--device cuda]         rates of the GPU: products, copies, host to device
    policy_gpu.py eager  DIR INPUTS [--batches 1,8,32]
    policy_gpu.py compile DIR INPUTS             one environment, one camera

DIR is a model directory, INPUTS the output of `measure gpu --inputs`. Time is measured from inputs in
host memory to actions in host memory; images are already preprocessed and prompts tokenised. The
operators are those of the authors' modules, in their order and with their casts, as functions on
plain tensors. Positions and rotary tables are computed beforehand, and there is no `lm_head` and no
cache. All that favours this side. Prints one JSON object per line.
"""

import argparse
import json
import math
import pathlib
import statistics
import time
from collections.abc import Callable

import policy_eager
import torch
import torch.nn.functional as F
from policy_eager import Part, Tensor, attention, category, feed_forward, layer_norm, layers, linear, part, split

ROUNDS, PATIENCE = (5, 50), 2.0  # minimum and maximum number of inferences; seconds
COMPILED = 100


def read(folder: pathlib.Path) -> Part:
    """Returns all tensors of a checkpoint."""
    policy_eager.DTYPES.update({"BF16": torch.bfloat16, "F16": torch.float16, "BOOL": torch.bool})
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= policy_eager.read(file)
    return tensors


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Vision(policy_eager.Vision):
    """The vision tower for images of one size."""

    def prepare(self, grid: list[int], count: int) -> Part:
        cos, sin = self.tables(grid[1], grid[2])
        dtype = self.w["pos_embed.weight"].dtype
        position = self.position(grid[1], grid[2]).to(dtype).repeat(count, 1)
        return {"position": position, "cos": cos.float().transpose(0, 1), "sin": sin.float().transpose(0, 1)}

    def forward(self, pixels: Tensor, tables: Part, count: int) -> tuple[Tensor, list[Tensor]]:
        kernel = self.w["patch_embed.proj.weight"]
        x = F.conv3d(pixels.view(-1, *kernel.shape[1:]), kernel, self.w["patch_embed.proj.bias"], kernel.shape[2:])
        x = x.view(-1, kernel.shape[0]) + tables["position"]
        deep = []
        for i, w in enumerate(self.blocks):
            qkv = linear(layer_norm(x, w, "norm1", 1e-6), w, "attn.qkv")
            qkv = qkv.view(count, x.shape[0] // count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            q, k = (rotate(t.float(), tables["cos"], tables["sin"]).to(x.dtype) for t in qkv[:2].unbind(0))
            out = F.scaled_dot_product_attention(q, k, qkv[2])
            x = x + linear(out.transpose(1, 2).reshape(x.shape[0], -1), w, "attn.proj")
            inner = linear(layer_norm(x, w, "norm2", 1e-6), w, "mlp.linear_fc1")
            x = x + linear(F.gelu(inner, approximate="tanh"), w, "mlp.linear_fc2")
            if i in self.after:
                w = self.deep[self.after.index(i)]
                deep.append(self.merged(layer_norm(x.view(x.shape[0] // self.merge**2, -1), w, "norm", 1e-6), w))
        grouped = layer_norm(x, self.merger, "norm", 1e-6).view(x.shape[0] // self.merge**2, -1)
        return self.merged(grouped, self.merger), deep


class Language(policy_eager.Language):
    """The language model for the same prompt in every row, with any number of images."""

    def places(self, ids: list[int], grids: list[list[int]]) -> Tensor:
        """Returns the positions, [3, S]: time, row and column of every token."""
        columns, at, n, grids = [], 0, 0, iter(grids)
        while at < len(ids):
            if ids[at] != self.image:
                columns.append((n, n, n))
                at, n = at + 1, n + 1
                continue
            _, height, width = next(grids)
            height, width = height // self.merge, width // self.merge
            columns += [(n, n + y, n + x) for y in range(height) for x in range(width)]
            at, n = at + height * width, n + max(height, width)
        return torch.tensor(columns).T

    def prepare(self, ids: Tensor, grids: list[list[int]]) -> Part:
        angles = (self.places(ids[0].tolist(), grids)[self.axes].float() * self.inverse[:, None]).T.repeat(1, 2)
        dtype = self.embeddings.dtype
        is_image = ids == self.image
        rows = is_image.flatten().nonzero().flatten()
        return {"cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype), "rows": rows, "is_image": is_image}

    def forward(self, ids: Tensor, tables: Part, tokens: Tensor, deep: list[Tensor]) -> Tensor:
        x = F.embedding(ids, self.embeddings)
        place = lambda x, values, op: op(x.view(-1, x.shape[-1]), 0, tables["rows"], values).view(x.shape)
        x = place(x, tokens, torch.index_copy)
        for i, w in enumerate(self.layers):
            n = rms_norm(x, w["input_layernorm.weight"], self.eps)
            q, k, v = (split(linear(n, w, f"self_attn.{name}"), h) for name, h in self.projections())
            q, k = rms_norm(q, w["self_attn.q_norm.weight"], self.eps), rms_norm(k, w["self_attn.k_norm.weight"], self.eps)
            q, k = rotate(q, tables["cos"], tables["sin"]), rotate(k, tables["cos"], tables["sin"])
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + linear(out.transpose(1, 2).reshape(*ids.shape, -1), w, "self_attn.o_proj")
            n = rms_norm(x, w["post_attention_layernorm.weight"], self.eps)
            x = x + linear(F.silu(linear(n, w, "mlp.gate_proj")) * linear(n, w, "mlp.up_proj"), w, "mlp.down_proj")
            if i < len(deep):
                x = place(x, deep[i], torch.index_add)
        return x


class Head(policy_eager.Head):
    def conditions(self, features: Tensor, state: Tensor, embodiment: Tensor) -> tuple[Tensor, Tensor]:
        x = layer_norm(features, self.w, "vlln", 1e-5)
        for w in self.vl:
            n = layer_norm(x, w, "norm1", 1e-5)
            x = attention(n, n, w, self.vl_heads) + x
            x = feed_forward(layer_norm(x, w, "norm3", 1e-5), w) + x
        hidden = F.relu(category(state.flatten(1).unsqueeze(1), self.w, "state_encoder.layer1", embodiment))
        return x, category(hidden, self.w, "state_encoder.layer2", embodiment)

    def encode(self, actions: Tensor, time: Tensor, embodiment: Tensor) -> Tensor:
        u = category(actions, self.w, "action_encoder.W1", embodiment)
        half = u.shape[-1] // 2
        angles = time.float()[:, None] * torch.exp(torch.arange(half).float() * (-math.log(10_000.0) / half))
        wave = torch.cat((angles.sin(), angles.cos()), -1).to(u.dtype).unsqueeze(1).expand_as(u)
        z = category(torch.cat((u, wave), -1), self.w, "action_encoder.W2", embodiment)
        z = category(z * torch.sigmoid(z), self.w, "action_encoder.W3", embodiment)
        return z + F.embedding(torch.arange(z.shape[1]), self.w["position_embedding.weight"])

    def embed(self, time: Tensor) -> Tensor:
        angles = time.float()[:, None] * torch.exp(torch.arange(128).float() * (-math.log(10_000.0) / 127))
        name = "model.timestep_encoder.timestep_embedder.linear_"
        wave = torch.cat((angles.cos(), angles.sin()), -1).to(self.w[f"{name}1.weight"].dtype)
        return linear(F.silu(linear(wave, self.w, f"{name}1")), self.w, f"{name}2")


class Network:
    """The three parts, each a function of tensors only, so that it can be compiled."""

    def __init__(self, folder: pathlib.Path, dtype: torch.dtype, device: str):
        weights = {name: tensor.to(device, dtype) for name, tensor in read(folder).items()}
        model, vlm = (json.loads((folder / name).read_text()) for name in ("config.json", "vlm/config.json"))
        self.weights, self.device, self.dtype = weights, device, dtype
        self.vision = Vision(weights, vlm["vision_config"])
        self.language = Language(weights, model, vlm)
        self.head = Head(weights, model)
        self.steps = model["num_inference_timesteps"]
        self.backbone, self.conditions, self.velocity = self.see, self.head.conditions, self.head.velocity

    def see(self, ids: Tensor, pixels: Tensor, tables: dict[str, Part], count: int) -> Tensor:
        tokens, deep = self.vision.forward(pixels, tables["vision"], count)
        return self.language.forward(ids, tables["language"], tokens, deep)

    def compile(self, backend: str) -> None:
        # Otherwise every weight is copied before each replay of a graph.
        for tensor in self.weights.values():
            torch._dynamo.mark_static_address(tensor)
        how = {"backend": backend} if backend != "inductor" else {"mode": "reduce-overhead"}
        compiled = lambda function: torch.compile(function, dynamic=False, **how)
        self.backbone, self.conditions, self.velocity = map(compiled, (self.see, self.head.conditions, self.head.velocity))
        self.is_compiled = True

    is_compiled = False

    def tables(self, inputs: Part, batch: int) -> tuple[dict[str, Part], int]:
        grids = inputs["image_grid_thw"].tolist()
        ids = inputs["input_ids"].repeat(batch, 1).to(self.device)
        count = batch * len(grids)
        return {"vision": self.vision.prepare(grids[0], count), "language": self.language.prepare(ids, grids)}, count

    def __call__(self, inputs: Part, tables: dict[str, Part], count: int) -> Tensor:
        """Returns the actions in host memory."""
        moved = {name: tensor.to(self.device, non_blocking=True) for name, tensor in inputs.items()}
        pixels, state, actions = (moved[name].to(self.dtype) for name in ("pixel_values", "state", "noise"))
        # The next replay of a graph overwrites its results.
        kept = (lambda tensor: tensor.clone()) if self.is_compiled else (lambda tensor: tensor)
        features = kept(self.backbone(moved["input_ids"], pixels, tables, count))
        vl, state = map(kept, self.conditions(features, state, moved["embodiment_id"]))
        is_image = tables["language"]["is_image"]
        for k in range(self.steps):
            time = torch.full((1,), int(k / self.steps * self.head.buckets))
            velocity = self.velocity(vl, state, is_image, actions, time, moved["embodiment_id"])
            actions = actions + 1 / self.steps * velocity
        return actions.float().cpu()


def batch_of(inputs: Part, batch: int) -> Part:
    names = ("input_ids", "pixel_values", "state", "embodiment_id", "noise")
    return {name: inputs[name].repeat(batch, *[1] * (inputs[name].dim() - 1)) for name in names}


def error(actions: Tensor, inputs: Part) -> float:
    """Returns the norm of the error of the first row, divided by the norm of the change from noise
    to actions."""
    wanted, noise = inputs["actions"].cpu(), inputs["noise"].cpu()
    return ((actions[:1] - wanted).norm() / (wanted - noise).norm()).item()


def median(run: Callable[[], object], rounds: tuple[int, int] = ROUNDS, patience: float = PATIENCE) -> float:
    """Returns the median in milliseconds; the first two runs are not counted."""
    times, end = [], time.perf_counter() + patience
    for _ in range(2):
        run()
    while len(times) < rounds[0] or (len(times) < rounds[1] and time.perf_counter() < end):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def measure(network: Network, file: pathlib.Path, batch: int, what: str, **more) -> None:
    inputs = policy_eager.read(file)
    tables, count = network.tables(inputs, batch)
    given = batch_of(inputs, batch)
    begin = time.perf_counter()
    off = error(network(given, tables, count), inputs)
    first = time.perf_counter() - begin
    took = median(lambda: network(given, tables, count), **more)
    cameras = int(file.stem.split(".")[1])
    tokens = inputs["input_ids"].shape[1]
    line = {"what": what, "cameras": cameras, "batch": batch, "tokens": tokens, "ms": took, "first_s": first, "error": off}
    print(json.dumps(line), flush=True)


def rates(device: str) -> None:
    """Prints the rates of the device. On a CPU the sizes are small, just to check that it runs."""
    on_card = device.startswith("cuda")
    edge, size = (8192, 1 << 30) if on_card else (256, 1 << 22)
    wait = torch.cuda.synchronize if on_card else (lambda: None)

    def seconds(run: Callable[[], object]) -> float:
        def once() -> None:
            run()
            wait()

        return median(once, (10, 10)) / 1e3

    a, b = (torch.randn(edge, edge, dtype=torch.bfloat16, device=device) for _ in range(2))
    out = torch.empty_like(a)
    flops = 2 * edge**3 / seconds(lambda: torch.mm(a, b, out=out))
    source, target = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
    copied = 2 * size / seconds(lambda: target.copy_(source))
    line = {"what": "rates", "tflops": flops / 1e12, "terabytes": copied / 1e12}
    if on_card:
        pinned, pageable = torch.zeros(size, dtype=torch.uint8, device="cpu", pin_memory=True), torch.zeros(size, dtype=torch.uint8, device="cpu")
        line["pinned"] = size / seconds(lambda: target.copy_(pinned, non_blocking=True))
        line["pageable"] = size / seconds(lambda: target.copy_(pageable))
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["rates", "eager", "compile"])
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("inputs", type=pathlib.Path, nargs="?")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    given = parser.parse_args()
    if given.what == "rates":
        rates(given.device)
        return
    # Compiled functions need tensors with version counters, which inference mode does not keep.
    with torch.no_grad() if given.what == "compile" else torch.inference_mode():
        infer(given)


def infer(given: argparse.Namespace) -> None:
    # The default for tables and times that are created in between. The CPU reads files anyway.
    torch.set_default_device(given.device)
    network = Network(given.folder, getattr(torch, given.dtype), given.device)
    if given.what == "compile":
        network.compile(given.backend)
        measure(network, given.inputs / "inputs.1.safetensors", 1, "compile", rounds=(5, COMPILED))
        return
    for file in sorted(given.inputs.glob("inputs.*.safetensors")):
        for batch in map(int, given.batches.split(",")):
            measure(network, file, batch, "eager")


if __name__ == "__main__":
    main()
