"""Computes the minimum time of one inference of GR00T N1.7 on a GPU.

It is the sum over all matrix products of the longer of arithmetic and weight traffic.

    python3 benches/roofline.py      the published sizes at 790 TFLOP/s and 4.3 TB/s

Everything that depends only on the checkpoint and the number of steps counts as done beforehand,
and keys and values of cross attention are computed once. That is the network as `rrun` runs it
(fused), which does less than the authors' code.
"""

import json
import pathlib
from collections.abc import Iterator

BF16 = 2  # bytes per value
PATCHES = 256  # per image of 256x256 pixels
Product = tuple[float, int, int]  # rows, inputs, outputs


def released() -> tuple[dict, dict]:
    """Returns the relevant sizes of `config.json` and `vlm/config.json`."""
    model = {
        "select_layer": 16,
        "action_horizon": 40,
        "max_action_dim": 132,
        "max_state_dim": 132,
        "hidden_size": 1024,
        "input_embedding_dim": 1536,
        "num_inference_timesteps": 4,
        "attend_text_every_n_blocks": 2,
        "vl_self_attention_cfg": {"num_layers": 4},
        "diffusion_model_cfg": {"num_layers": 32},
    }
    text = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144}
    vision = {"hidden_size": 1024, "depth": 24, "intermediate_size": 4096, "out_hidden_size": 2048, "deepstack_visual_indexes": [5, 11, 17]}
    return model, {"text_config": text, "vision_config": vision}


def products(model: dict, vlm: dict, images: int, tokens: int, batch: int) -> Iterator[tuple[int, Product]]:
    """Yields the matrix products with weights, with the number of times they occur. `tokens` is the
    length of one prompt, images included."""
    vision, text = vlm["vision_config"], vlm["text_config"]
    d, inner, patches = vision["hidden_size"], vision["intermediate_size"], batch * images * PATCHES
    yield 1, (patches, 1536, d)
    for outputs, inputs in ((3 * d, d), (d, d), (inner, d), (d, inner)):
        yield vision["depth"], (patches, inputs, outputs)
    mergers = 1 + len(vision["deepstack_visual_indexes"])
    yield mergers, (patches / 4, 4 * d, 4 * d)
    yield mergers, (patches / 4, 4 * d, vision["out_hidden_size"])

    width, rows = text["hidden_size"], batch * tokens
    queries, keys = (text[name] * text["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    for outputs, inputs in ((queries + 2 * keys, width), (width, queries), (2 * text["intermediate_size"], width), (width, text["intermediate_size"])):
        yield model["select_layer"], (rows, inputs, outputs)
    for outputs, inputs in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width)):
        yield model["vl_self_attention_cfg"]["num_layers"], (rows, inputs, outputs)

    e, steps, blocks = model["input_embedding_dim"], model["num_inference_timesteps"], model["diffusion_model_cfg"]["num_layers"]
    actions = batch * (1 + model["action_horizon"])
    looked_at = {"image": batch * images * PATCHES / 4, "text": batch * (tokens - images * PATCHES / 4)}
    text_blocks = blocks // 2 // model["attend_text_every_n_blocks"]
    yield text_blocks, (looked_at["text"], width, 2 * e)
    yield blocks // 2 - text_blocks, (looked_at["image"], width, 2 * e)
    yield steps * blocks // 2, (actions, e, 3 * e)  # self attention
    yield steps * blocks // 2, (actions, e, e)  # queries of cross attention
    for outputs, inputs in ((e, e), (4 * e, e), (e, 4 * e)):
        yield steps * blocks, (actions, inputs, outputs)
    hidden, action = model["hidden_size"], model["max_action_dim"]
    for inputs, outputs in ((action, e), (e, e), (e, e), (e, hidden), (hidden, hidden), (hidden, action)):
        yield steps, (actions, inputs, outputs)


def attention(model: dict, vlm: dict, images: int, tokens: int, batch: int) -> float:
    """Returns the floating point operations of attention itself."""
    vision, text = vlm["vision_config"], vlm["text_config"]
    seen = 4 * batch * images * PATCHES**2 * vision["hidden_size"] * vision["depth"]
    said = 4 * batch * tokens**2 * (text["num_attention_heads"] * text["head_dim"] * model["select_layer"] / 2)
    said += 4 * batch * tokens**2 * text["hidden_size"] * model["vl_self_attention_cfg"]["num_layers"]
    rows = 1 + model["action_horizon"]
    done = 4 * batch * rows * model["input_embedding_dim"] * model["diffusion_model_cfg"]["num_layers"] / 2
    return seen + said + done * (rows + tokens / 2) * model["num_inference_timesteps"]


def milliseconds(sizes: tuple[dict, dict], shape: tuple[int, int, int], tflops: float, terabytes: float) -> float:
    """Returns the minimum time. `shape` is images per prompt, tokens per prompt, and number of
    prompts; `tflops` applies to products, `terabytes` per second to weight traffic."""
    model, vlm = sizes
    total = attention(model, vlm, *shape) / (tflops * 1e12)
    for count, (rows, inputs, outputs) in products(model, vlm, *shape):
        arithmetic = 2 * rows * inputs * outputs / (tflops * 1e12)
        traffic = BF16 * inputs * outputs / (terabytes * 1e12)
        total += count * max(arithmetic, traffic)
    return total * 1e3


def of_folder(folder: pathlib.Path) -> tuple[dict, dict]:
    """Returns the sizes of a model directory."""
    return json.loads((folder / "config.json").read_text()), json.loads((folder / "vlm/config.json").read_text())


def main() -> None:
    for batch in (1, 8, 32):
        times = [milliseconds(released(), (n, 66 * n + 17, batch), 790, 4.3) for n in (1, 2, 4)]
        print(f"batch {batch}: " + " / ".join(f"{time:.1f} ms" for time in times) + " for 1 / 2 / 4 cameras")


if __name__ == "__main__":
    main()
