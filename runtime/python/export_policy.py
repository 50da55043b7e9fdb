"""Exports a PyTorch module as a `.pt2` package that `policy_type: exported` runs without Python.

    python export_policy.py my_policy.py:make policy.pt2 [--device cuda] [--max-batch 64] [--isa avx2]

`make()` returns the module and the list of its inputs, in the order of the arguments of `forward`:

    def make():
        return Policy().eval(), [camera("front", 96, 96), state({"eef_position": 3}), tokens(64), noise(16, 7)]

`forward` returns the actions of all rows: `[B, horizon, action_dim]`. The module is compiled by
`torch.export` and AOTInductor, which takes a C++ compiler and about a minute. The package is then
loaded and compared with the module, for several numbers of rows.
"""

import argparse
import contextlib
import importlib
import importlib.util
import inspect
import json
import logging
import os
import pathlib
import re
import sys

import torch

# Numbers that a package may differ from its module by, as a share of the largest action: compiled
# kernels add in another order.
TOLERANCE = 1e-3

# Flags of the CPU in /proc/cpuinfo of which a compiler makes use on its own.
VECTOR_FLAGS = re.compile(r"avx|amx|sse|ssse3|fma|f16c|bmi|movbe|popcnt|abm|xop")

# What the compiler may use for each `isa`, and how wide the vectors of torch's kernels are.
ARCHITECTURES = {"avx2": ("x86-64-v3", 256), "avx512": ("x86-64-v4", 512)}


def cameras(names: list[str], height: int, width: int, layout: str = "HWC", dtype: str = "uint8") -> dict:
    """Pictures of several cameras: `[B, cameras, height, width, 3]`, or `[B, cameras, 3, height,
    width]` with the layout `CHW`. Bytes from 0 to 255, or with `float32` numbers from 0 to 1. RGB."""
    size = {"height": height, "width": width, "layout": layout, "dtype": dtype}
    return {"kind": "cameras", "names": list(names), **size, "stacked": True}


def camera(name: str, height: int, width: int, layout: str = "HWC", dtype: str = "uint8") -> dict:
    """Pictures of one camera: as `cameras`, without the dimension of cameras."""
    return {**cameras([name], height, width, layout, dtype), "stacked": False}


def state(vectors: dict[str, int]) -> dict:
    """State vectors, one after the other: `float32 [B, sum of sizes]`; `vectors` has the size of each."""
    return {"kind": "state", "vectors": [{"name": name, "size": size} for name, size in vectors.items()]}


def tokens(length: int, tokenizer: str = "bytes") -> dict:
    """The instruction: `int64 [B, length]`, padded on the right with 0. Tokens are the UTF-8 bytes
    (`bytes`), or those of a `tokenizer.json` (`file`) that the job names."""
    return {"kind": "tokens", "length": length, "tokenizer": tokenizer}


def noise(*shape: int) -> dict:
    """Standard normal noise: `float32 [B, *shape]`, drawn from the seed and the step of the episode."""
    return {"kind": "noise", "shape": list(shape)}


def shape(entry: dict) -> list[int]:
    """Returns the shape of an input without the batch."""
    match entry["kind"]:
        case "cameras":
            size = [entry["height"], entry["width"]]
            picture = [*size, 3] if entry["layout"] == "HWC" else [3, *size]
            return [len(entry["names"]), *picture] if entry["stacked"] else picture
        case "state":
            return [sum(vector["size"] for vector in entry["vectors"])]
        case "tokens":
            return [entry["length"]]
        case "noise":
            return entry["shape"]
        case other:
            raise ValueError(f"an input has the kind {other!r}, expected cameras, state, tokens or noise")


def example(entry: dict, rows: int, device: str) -> torch.Tensor:
    """Returns random values of an input, drawn on the CPU."""
    size = [rows, *shape(entry)]
    if entry["kind"] == "tokens":
        value = torch.randint(0, 128, size)
    elif entry["kind"] != "cameras":
        value = torch.randn(size)
    elif entry["dtype"] == "uint8":
        value = torch.randint(0, 256, size, dtype=torch.uint8)
    else:
        value = torch.rand(size)
    return value.to(device)


def cpu_flags(isa: str) -> list[str]:
    """Returns the flags of this CPU that compiled code may depend on; none if `isa` limits them."""
    if isa != "native":
        return []
    try:
        lines = open("/proc/cpuinfo").read().splitlines()
    except OSError:
        return []
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    return sorted(flag for flag in flags if VECTOR_FLAGS.match(flag))


@contextlib.contextmanager
def instruction_set(isa: str):
    """Limits the instructions of the CPU that the compiler uses; torch asks for all of this machine."""
    if isa == "native":
        yield
        return
    from torch._inductor import config, cpp_builder

    architecture, width = ARCHITECTURES[isa]
    of_torch = cpp_builder._get_optimization_cflags

    def limited(*args, **kwargs):
        flags, *others = of_torch(*args, **kwargs)
        if "march=native" not in flags:
            raise RuntimeError(f"torch {torch.__version__} has other compiler flags than --isa knows: {flags}")
        return [f"march={architecture}" if flag == "march=native" else flag for flag in flags], *others

    try:
        cpp_builder._get_optimization_cflags = limited
        with config.patch({"cpp.simdlen": width}):
            yield
    finally:
        cpp_builder._get_optimization_cflags = of_torch


def export(
    module: torch.nn.Module,
    inputs: list[dict],
    path: str | os.PathLike,
    device: str = "cpu",
    max_batch: int = 64,
    min_batch: int = 1,
    isa: str = "native",
) -> float:
    """Writes the package of a module and compares it with the module. Returns the largest
    difference of an action.

    `max_batch` is the largest number of rows of one call; with `min_batch=max_batch` the number is
    fixed, which compilers like, and `rrun` fills batches up. `isa` limits the instructions of the
    CPU: `avx2` and `avx512` run on any CPU that has them, `native` on CPUs such as this one.

    Raises ValueError for inputs or an output of a wrong form, and what torch raises for a module
    that it cannot export."""
    if not 1 <= min_batch <= max_batch <= 4096:
        raise ValueError(f"batches of {min_batch} to {max_batch} rows: expected 1 to 4096")
    module = module.eval().to(device)
    rows = min(max(2, min_batch), max_batch)
    examples = tuple(example(entry, rows, device) for entry in inputs)
    with torch.inference_mode():
        actions = module(*examples)
    if actions.dim() != 3 or actions.shape[0] != rows or not actions.dtype.is_floating_point:
        wanted = f"floating point numbers [{rows}, horizon, action_dim]"
        raise ValueError(f"forward gave {actions.dtype} {list(actions.shape)} for {rows} rows, expected {wanted}")
    shapes = None
    if min_batch != max_batch:
        batch = torch.export.Dim("batch", min=min_batch, max=max_batch)
        shapes = tuple({0: batch} for _ in inputs)
    with torch.no_grad():
        program = torch.export.export(module, examples, dynamic_shapes=(shapes,) if variadic(module) and shapes else shapes)
    description = {
        "format": 1,
        "torch": torch.__version__,
        "cpu_flags": cpu_flags(isa),
        "batch": {"min": min_batch, "max": max_batch},
        "inputs": inputs,
        "output": {"horizon": actions.shape[1], "action_dim": actions.shape[2]},
    }
    # Without `dynamic_threads`, the number of threads of this machine would be in the code.
    settings = {"aot_inductor.metadata": {"rrun.inputs": json.dumps(description)}, "cpp.dynamic_threads": True}
    with instruction_set(isa):
        torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=settings)
    return compare(module, inputs, path, device, min_batch, max_batch)


def variadic(module: torch.nn.Module) -> bool:
    """Returns whether `forward` takes `*args`: torch then wants the shapes of all in one tuple."""
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(module.forward).parameters.values())


def compare(module, inputs: list[dict], path, device: str, min_batch: int, max_batch: int) -> float:
    """Returns the largest difference between the actions of a package and those of its module."""
    # It warns of packages for other instructions than those of this machine, which --isa asks for.
    logging.getLogger("torch.export.pt2_archive._package").setLevel(logging.ERROR)
    package = torch._inductor.aoti_load_package(str(path))
    worst = 0.0
    for rows in sorted({min_batch, min(min_batch + 1, max_batch), max_batch}):
        examples = [example(entry, rows, device) for entry in inputs]
        with torch.inference_mode():
            wanted, found = module(*examples).float(), package(*examples).float()
        if found.shape != wanted.shape or not torch.isfinite(found).all():
            raise ValueError(f"the package gave {list(found.shape)} with {rows} rows, or no finite numbers")
        difference = (found - wanted).abs().max().item()
        if difference > TOLERANCE * max(1.0, wanted.abs().max().item()):
            raise ValueError(f"with {rows} rows, an action of the package differs by {difference:.3g} from the module's")
        worst = max(worst, difference)
    return worst


def load(name: str):
    """Returns the function that `file.py:function` or `package.module:function` names."""
    place, colon, function = name.rpartition(":")
    if not colon:
        raise ValueError(f"{name!r} names no function, expected file.py:function or package.module:function")
    if place.endswith(".py"):
        path = pathlib.Path(place).resolve()
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    return getattr(module, function)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("make", help="file.py:function or package.module:function that returns module and inputs")
    parser.add_argument("out", help="the package, NAME.pt2")
    parser.add_argument("--device", default="cpu", help="cpu or cuda: what the package runs on")
    parser.add_argument("--max-batch", type=int, default=64, help="largest number of rows of one call")
    parser.add_argument("--min-batch", type=int, default=1, help="smallest number; the same as --max-batch fixes it")
    parser.add_argument("--isa", default="native", choices=["native", *ARCHITECTURES], help="instructions of the CPU")
    asked = parser.parse_args()
    sys.path.insert(0, os.getcwd())
    # So that the file of the policy can import this one by its name.
    sys.modules.setdefault("export_policy", sys.modules[__name__])
    module, inputs = load(asked.make)()
    options = {"device": asked.device, "max_batch": asked.max_batch, "min_batch": asked.min_batch, "isa": asked.isa}
    difference = export(module, inputs, asked.out, **options)
    size = os.path.getsize(asked.out) / 2**20
    print(f"{asked.out}: {size:.1f} MiB; the largest difference from the module is {difference:.3g}")


if __name__ == "__main__":
    main()
