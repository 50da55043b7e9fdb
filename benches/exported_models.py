"""GR00T N1.7 as a module that torch.export takes, and its other forms for `exported.py`.

    exported_models.py make DIR     exports the network in DIR as DIR/policy.pt2 and DIR/policy.pt
    exported_models.py run DIR      runs it in eager PyTorch, once for each line of stdin, and prints the seconds

DIR is a folder that `measure policy` has written. The network is that of policy_eager.py. What
depends on the values of tokens there, which no compiler follows, is computed beforehand here: which
tokens are of an image, and where they are.
"""

import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from policy_eager import Language, Network, check, linear, read, rms_norm, rotate, split

PATCHES = 64
THIS = pathlib.Path(__file__).resolve()


class FixedLanguage(Language):
    """The language model for one prompt."""

    def fix(self, ids: torch.Tensor, grid: list[int]) -> None:
        self.ids, self.is_image = ids, ids == self.image
        self.places = self.is_image[0].nonzero()[:, 0]
        angles = (self.positions(ids, grid)[self.axes].float() * self.inverse[:, None]).T.repeat(1, 2)
        self.cos, self.sin = angles.cos(), angles.sin()

    def __call__(self, ids, grid, tokens, deep):
        x = F.embedding(self.ids, self.embeddings).index_copy(1, self.places, tokens[None])
        for i, w in enumerate(self.layers):
            n = rms_norm(x, w["input_layernorm.weight"], self.eps)
            q, k, v = (split(linear(n, w, f"self_attn.{name}"), h) for name, h in self.projections())
            q, k = rms_norm(q, w["self_attn.q_norm.weight"], self.eps), rms_norm(k, w["self_attn.k_norm.weight"], self.eps)
            q, k = rotate(q, self.cos, self.sin), rotate(k, self.cos, self.sin)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + linear(out.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1), w, "self_attn.o_proj")
            n = rms_norm(x, w["post_attention_layernorm.weight"], self.eps)
            x = x + linear(F.silu(linear(n, w, "mlp.gate_proj")) * linear(n, w, "mlp.up_proj"), w, "mlp.down_proj")
            if i < len(deep):
                x = x.index_add(1, self.places, deep[i][None])
        return x, self.is_image


class Policy(torch.nn.Module):
    """pixels [1, patches, n], state [1, steps, n], noise [1, horizon, n] -> actions [1, horizon, n]."""

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        inputs = read(folder / f"inputs.{PATCHES}.safetensors")
        self.network = Network(folder)
        self.grid = inputs["image_grid_thw"].tolist()
        self.embodiment = inputs["embodiment_id"]
        self.network.language.__class__ = FixedLanguage
        self.network.language.fix(inputs["input_ids"], self.grid)

    def forward(self, pixels, state, noise):
        network = self.network
        tokens, deep = network.vision(pixels[0], self.grid)
        features, is_image = network.language(None, self.grid, tokens, deep)
        vl, state = network.head.conditions(features, state, self.embodiment)
        return network.head.sample(vl, state, is_image, noise, self.embodiment)


def arguments(folder: pathlib.Path) -> tuple[torch.Tensor, ...]:
    inputs = read(folder / f"inputs.{PATCHES}.safetensors")
    return inputs["pixel_values"][None], inputs["state"], inputs["noise"]


def make(folder: pathlib.Path) -> None:
    sys.path.insert(0, str(THIS.parents[1] / "runtime/python"))
    from export_policy import export, noise

    policy, inputs = Policy(folder), arguments(folder)
    described = [noise(*tensor.shape[1:]) for tensor in inputs]
    export(policy, described, folder / "policy.pt2", min_batch=1, max_batch=1)
    with torch.no_grad():
        torch.jit.trace(policy, inputs, check_trace=False).save(folder / "policy.pt")


@torch.inference_mode()
def run(folder: pathlib.Path) -> None:
    policy, inputs = Policy(folder), arguments(folder)
    check(policy(*inputs), read(folder / f"inputs.{PATCHES}.safetensors"))
    for _ in sys.stdin:
        begin = time.perf_counter()
        policy(*inputs)
        print(json.dumps([time.perf_counter() - begin]), flush=True)


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](pathlib.Path(sys.argv[2]))
