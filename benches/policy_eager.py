"""GR00T N1.7 in eager PyTorch: plain operators in the order in which its authors' modules call
them.

    policy_eager.py DIR      reads a number of patches from each line of stdin, and prints a line
                             with the seconds of each part

DIR is a folder that `measure policy inputs` has written to. The actions must equal those in the folder.
There are functions instead of modules, and no `lm_head`, no cache and no dtype casts, all of which
the authors' code has: that favours this side.
"""

import json
import math
import mmap
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"F32": torch.float32, "I64": torch.int64}
TOLERANCE = 1e-4  # relative to the largest change from noise to actions
STEPS = 4

Tensor = torch.Tensor
Part = dict[str, Tensor]


def read(path: pathlib.Path) -> Part:
    """Returns all tensors of a safetensors file, as views of a private memory map."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        flat = torch.frombuffer(data, dtype=dtype, count=(end - begin) // dtype.itemsize, offset=8 + size + begin)
        tensors[name] = flat.view(entry["shape"])
    return tensors


def part(weights: Part, prefix: str) -> Part:
    return {name[len(prefix) :]: tensor for name, tensor in weights.items() if name.startswith(prefix)}


def layers(weights: Part, prefix: str, count: int) -> list[Part]:
    return [part(weights, f"{prefix}.{i}.") for i in range(count)]


def linear(x: Tensor, w: Part, name: str) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def layer_norm(x: Tensor, w: Part, name: str, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def split(x: Tensor, heads: int) -> Tensor:
    """Reshapes [B, n, heads·d] to [B, heads, n, d]."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def attention(x: Tensor, keys: Tensor, w: Part, heads: int, mask: Tensor | None = None) -> Tensor:
    """Attention with the weight names of diffusers."""
    q, k, v = linear(x, w, "attn1.to_q"), linear(keys, w, "attn1.to_k"), linear(keys, w, "attn1.to_v")
    out = F.scaled_dot_product_attention(split(q, heads), split(k, heads), split(v, heads), attn_mask=mask)
    return linear(out.transpose(1, 2).reshape(x.shape), w, "attn1.to_out.0")


def feed_forward(x: Tensor, w: Part) -> Tensor:
    return linear(F.gelu(linear(x, w, "ff.net.0.proj"), approximate="tanh"), w, "ff.net.2")


class Vision:
    def __init__(self, weights: Part, config: dict):
        self.w = part(weights, "backbone.model.model.visual.")
        self.blocks = layers(self.w, "blocks", config["depth"])
        self.merger = part(self.w, "merger.")
        self.deep = layers(self.w, "deepstack_merger_list", len(config["deepstack_visual_indexes"]))
        self.after = config["deepstack_visual_indexes"]
        self.heads, self.merge = config["num_heads"], config["spatial_merge_size"]
        head_dim = config["hidden_size"] // self.heads
        self.inverse = 1.0 / 10_000.0 ** (torch.arange(0, head_dim // 2, 2).float() / (head_dim // 2))

    def order(self, x: Tensor) -> Tensor:
        """Reorders [height, width, n] to patches, [P, n]: one merge block after the other."""
        height, width, n = x.shape
        blocks = x.reshape(height // self.merge, self.merge, width // self.merge, self.merge, n)
        return blocks.permute(0, 2, 1, 3, 4).reshape(height * width, n)

    def position(self, height: int, width: int) -> Tensor:
        table = self.w["pos_embed.weight"]
        side = math.isqrt(table.shape[0])
        y, x = torch.linspace(0, side - 1, height), torch.linspace(0, side - 1, width)
        y0, x0 = y.long(), x.long()
        y1, x1 = (y0 + 1).clamp(max=side - 1), (x0 + 1).clamp(max=side - 1)
        dy, dx = y - y0, x - x0
        corners = [(y0, x0, 1 - dy, 1 - dx), (y0, x1, 1 - dy, dx), (y1, x0, dy, 1 - dx), (y1, x1, dy, dx)]
        terms = [table[r[:, None] * side + c] * (a[:, None] * b)[..., None] for r, c, a, b in corners]
        return self.order(terms[0] + terms[1] + terms[2] + terms[3])

    def tables(self, height: int, width: int) -> tuple[Tensor, Tensor]:
        angles = torch.arange(max(height, width)).float().outer(self.inverse)
        rows = angles[:height, None].expand(height, width, -1)
        columns = angles[None, :width].expand(height, width, -1)
        turned = self.order(torch.cat((rows, columns), -1)).repeat(1, 2).unsqueeze(1)
        return turned.cos(), turned.sin()

    def merged(self, x: Tensor, w: Part) -> Tensor:
        return linear(F.gelu(linear(x, w, "linear_fc1")), w, "linear_fc2")

    def __call__(self, pixels: Tensor, grid: list[int]) -> tuple[Tensor, list[Tensor]]:
        _, height, width = grid
        kernel = self.w["patch_embed.proj.weight"]
        x = F.conv3d(pixels.view(-1, *kernel.shape[1:]), kernel, self.w["patch_embed.proj.bias"], kernel.shape[2:])
        x = x.view(-1, kernel.shape[0]) + self.position(height, width)
        cos, sin = self.tables(height, width)
        patches, deep = x.shape[0], []
        for i, w in enumerate(self.blocks):
            qkv = linear(layer_norm(x, w, "norm1", 1e-6), w, "attn.qkv").view(patches, 3, self.heads, -1)
            q, k, v = qkv.permute(1, 0, 2, 3).unbind(0)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
            out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(patches, -1)
            x = x + linear(out, w, "attn.proj")
            inner = linear(layer_norm(x, w, "norm2", 1e-6), w, "mlp.linear_fc1")
            x = x + linear(F.gelu(inner, approximate="tanh"), w, "mlp.linear_fc2")
            if i in self.after:
                w = self.deep[self.after.index(i)]
                grouped = x.view(patches // self.merge**2, -1)
                deep.append(self.merged(layer_norm(grouped, w, "norm", 1e-6), w))
        grouped = layer_norm(x, self.merger, "norm", 1e-6).view(patches // self.merge**2, -1)
        return self.merged(grouped, self.merger), deep


class Language:
    def __init__(self, weights: Part, model: dict, vlm: dict):
        text = vlm["text_config"]
        prefix = "backbone.model.model.language_model"
        self.embeddings = weights[f"{prefix}.embed_tokens.weight"]
        self.layers = layers(weights, f"{prefix}.layers", model["select_layer"])
        self.heads, self.kv_heads = text["num_attention_heads"], text["num_key_value_heads"]
        self.eps, self.image, self.merge = text["rms_norm_eps"], vlm["image_token_id"], vlm["vision_config"]["spatial_merge_size"]
        half = text["head_dim"] // 2
        self.inverse = 1.0 / text["rope_theta"] ** (torch.arange(half).float() / half)
        _, height, width = text["rope_scaling"]["mrope_section"]
        axis = lambda i: 1 if i % 3 == 1 and i < 3 * height else 2 if i % 3 == 2 and i < 3 * width else 0
        self.axes = torch.tensor([axis(i) for i in range(half)])

    def positions(self, ids: Tensor, grid: list[int]) -> Tensor:
        """Returns the positions of the tokens, [3, S], of one sample with one image."""
        begin = ids[0].tolist().index(self.image)
        height, width = grid[1] // self.merge, grid[2] // self.merge
        before = torch.arange(begin).expand(3, -1)
        rows = torch.arange(height).view(-1, 1).expand(height, width).flatten()
        columns = torch.arange(width).view(1, -1).expand(height, width).flatten()
        picture = torch.stack((torch.zeros_like(rows), rows, columns)) + begin
        rest = ids.shape[1] - begin - height * width
        after = torch.arange(rest).expand(3, -1) + begin + max(height, width)
        return torch.cat((before, picture, after), 1)

    def __call__(self, ids: Tensor, grid: list[int], tokens: Tensor, deep: list[Tensor]) -> tuple[Tensor, Tensor]:
        is_image = ids == self.image
        x = F.embedding(ids, self.embeddings)
        x = x.masked_scatter(is_image.unsqueeze(-1).expand_as(x), tokens)
        angles = (self.positions(ids, grid)[self.axes].float() * self.inverse[:, None]).T.repeat(1, 2)
        cos, sin = angles.cos(), angles.sin()
        for i, w in enumerate(self.layers):
            n = rms_norm(x, w["input_layernorm.weight"], self.eps)
            q, k, v = (split(linear(n, w, f"self_attn.{name}"), h) for name, h in self.projections())
            q, k = rms_norm(q, w["self_attn.q_norm.weight"], self.eps), rms_norm(k, w["self_attn.k_norm.weight"], self.eps)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + linear(out.transpose(1, 2).reshape(*ids.shape, -1), w, "self_attn.o_proj")
            n = rms_norm(x, w["post_attention_layernorm.weight"], self.eps)
            x = x + linear(F.silu(linear(n, w, "mlp.gate_proj")) * linear(n, w, "mlp.up_proj"), w, "mlp.down_proj")
            if i < len(deep):
                x = x.clone()
                x[is_image] = x[is_image] + deep[i]
        return x, is_image

    def projections(self) -> tuple[tuple[str, int], ...]:
        return ("q_proj", self.heads), ("k_proj", self.kv_heads), ("v_proj", self.kv_heads)


def category(x: Tensor, w: Part, name: str, embodiment: Tensor) -> Tensor:
    """A linear layer with separate weights for each embodiment."""
    return torch.bmm(x, w[f"{name}.W"][embodiment]) + w[f"{name}.b"][embodiment].unsqueeze(1)


class Head:
    def __init__(self, weights: Part, model: dict):
        self.w = part(weights, "action_head.")
        vl, dit = model["vl_self_attention_cfg"], model["diffusion_model_cfg"]
        self.vl = layers(self.w, "vl_self_attention.transformer_blocks", vl["num_layers"])
        self.blocks = layers(self.w, "model.transformer_blocks", dit["num_layers"])
        self.vl_heads, self.heads = vl["num_attention_heads"], dit["num_attention_heads"]
        self.every, self.buckets = 2 * model["attend_text_every_n_blocks"], model["num_timestep_buckets"]

    def conditions(self, features: Tensor, state: Tensor, embodiment: Tensor) -> tuple[Tensor, Tensor]:
        x = layer_norm(features, self.w, "vlln", 1e-5)
        for w in self.vl:
            n = layer_norm(x, w, "norm1", 1e-5)
            x = attention(n, n, w, self.vl_heads) + x
            x = feed_forward(layer_norm(x, w, "norm3", 1e-5), w) + x
        hidden = F.relu(category(state.view(1, 1, -1), self.w, "state_encoder.layer1", embodiment))
        return x, category(hidden, self.w, "state_encoder.layer2", embodiment)

    def encode(self, actions: Tensor, time: Tensor, embodiment: Tensor) -> Tensor:
        u = category(actions, self.w, "action_encoder.W1", embodiment)
        half = u.shape[-1] // 2
        angles = time.float()[:, None] * torch.exp(torch.arange(half).float() * (-math.log(10_000.0) / half))
        wave = torch.cat((angles.sin(), angles.cos()), -1).unsqueeze(1).expand_as(u)
        z = category(torch.cat((u, wave), -1), self.w, "action_encoder.W2", embodiment)
        z = category(z * torch.sigmoid(z), self.w, "action_encoder.W3", embodiment)
        return z + F.embedding(torch.arange(z.shape[1]), self.w["position_embedding.weight"])

    def embed(self, time: Tensor) -> Tensor:
        angles = time.float()[:, None] * torch.exp(torch.arange(128).float() * (-math.log(10_000.0) / 127))
        wave = torch.cat((angles.cos(), angles.sin()), -1)
        name = "model.timestep_encoder.timestep_embedder.linear_"
        return linear(F.silu(linear(wave, self.w, f"{name}1")), self.w, f"{name}2")

    def velocity(self, vl: Tensor, state: Tensor, is_image: Tensor, actions: Tensor, time: Tensor, embodiment: Tensor) -> Tensor:
        x = torch.cat((state, self.encode(actions, time, embodiment)), 1)
        temb, width = self.embed(time), x.shape[-1:]
        image = is_image[:, None, None, :]
        text = ~image
        for i, w in enumerate(self.blocks):
            scale, shift = linear(F.silu(temb), w, "norm1.linear").chunk(2, -1)
            n = F.layer_norm(x, width) * (1 + scale[:, None]) + shift[:, None]
            if i % 2 == 1:
                x = attention(n, n, w, self.heads) + x
            else:
                x = attention(n, vl, w, self.heads, text if i % self.every == 0 else image) + x
            x = feed_forward(F.layer_norm(x, width), w) + x
        shift, scale = linear(F.silu(temb), self.w, "model.proj_out_1").chunk(2, -1)
        x = F.layer_norm(x, width, eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
        hidden = F.relu(category(linear(x, self.w, "model.proj_out_2"), self.w, "action_decoder.layer1", embodiment))
        return category(hidden, self.w, "action_decoder.layer2", embodiment)[:, -actions.shape[1] :]

    def sample(self, vl: Tensor, state: Tensor, is_image: Tensor, noise: Tensor, embodiment: Tensor) -> Tensor:
        actions = noise
        for k in range(STEPS):
            time = torch.full((1,), int(k / STEPS * self.buckets))
            actions = actions + 1 / STEPS * self.velocity(vl, state, is_image, actions, time, embodiment)
        return actions


class Network:
    def __init__(self, folder: pathlib.Path):
        weights = read(folder / "model.safetensors")
        model, vlm = (json.loads((folder / name).read_text()) for name in ("config.json", "vlm/config.json"))
        self.vision = Vision(weights, vlm["vision_config"])
        self.language = Language(weights, model, vlm)
        self.head = Head(weights, model)

    def __call__(self, inputs: Part) -> tuple[Tensor, list[float]]:
        """Returns the actions, and the seconds of vision, language, conditions and sampler."""
        times = [time.perf_counter()]
        grid = inputs["image_grid_thw"].tolist()
        tokens, deep = self.vision(inputs["pixel_values"], grid)
        times.append(time.perf_counter())
        features, is_image = self.language(inputs["input_ids"], grid, tokens, deep)
        times.append(time.perf_counter())
        vl, state = self.head.conditions(features, inputs["state"], inputs["embodiment_id"])
        times.append(time.perf_counter())
        actions = self.head.sample(vl, state, is_image, inputs["noise"], inputs["embodiment_id"])
        times.append(time.perf_counter())
        return actions, [end - begin for begin, end in zip(times, times[1:])]


def check(actions: Tensor, inputs: Part) -> None:
    wanted = inputs["actions"]
    off = ((actions - wanted).abs().max() / (wanted - inputs["noise"]).abs().max()).item()
    print(f"largest difference {off:.1e} of the largest change of the noise", file=sys.stderr)
    assert off <= TOLERANCE, f"actions differ by {off}, at most {TOLERANCE} is expected"


@torch.inference_mode()
def main(folder: pathlib.Path) -> None:
    network = Network(folder)
    samples = {}
    for line in sys.stdin:
        path = folder / f"inputs.{int(line)}.safetensors"
        inputs = samples.get(path) or read(path)
        actions, seconds = network(inputs)
        if path not in samples:
            check(actions, inputs)
            samples[path] = inputs
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
