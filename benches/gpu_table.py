"""Prints the table of `benches/gpu.sh` from the output of its programs.

    gpu_table.py RESULTS CHECKPOINT COMMIT
"""

import json
import pathlib
import re
import sys

import roofline

# From NVIDIA's deployment guide of GR00T N1.7: one camera, one environment, 4 steps, end to end
# with data processing.
PUBLISHED = "Published, H100, 1 camera, 1 environment, end to end: eager 85.8 ms, torch.compile 48.6 ms, TensorRT 27.9 ms."
# Two kernels of the reference differ by less than this. Random weights change the noise little, and
# bfloat16 rounds the change.
FAR = 0.2


class Results:
    def __init__(self, folder: pathlib.Path):
        file = folder / "results.jsonl"
        self.lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        log = folder / "tests.log"
        self.tests = log.read_text(errors="replace") if log.exists() else ""

    def all(self, what: str) -> list[dict]:
        return [line for line in self.lines if line["what"] == what]

    def one(self, what: str, **wanted) -> dict:
        matching = (line for line in self.all(what) if all(line.get(key) == value for key, value in wanted.items()))
        return next(matching, {})


def cell(value: float | None, text: str = "{:.1f} ms") -> str:
    return "–" if value is None else text.format(value)


def ratio(above: float | None, below: float | None) -> str:
    return f"{above / below:.2f}" if above and below else "–"


def tests(results: Results) -> str:
    counted = re.search(r"test result: (\w+)\. (\d+) passed; (\d+) failed", results.tests)
    if not counted:
        return "Tests: did not come to an end.\n"
    skipped = len(re.findall(r"\bskipped: ", results.tests))
    # The last list of failures contains only the names.
    named = re.findall(r"^    (\S+)$", results.tests.rpartition("\nfailures:\n")[2], re.M) if counted[3] != "0" else []
    failed = f" ({', '.join(named)})" if named else ""
    passed = int(counted[2]) - skipped
    return f"Tests: {passed} passed, {skipped} skipped, {counted[3]} failed{failed}.\n"


def loading(results: Results) -> str:
    rates, loads = results.one("rates"), results.all("load")
    if not loads:
        return "Loading: not measured.\n"
    best = min(line["seconds"] for line in loads)
    first, bytes_ = loads[0]["seconds"], loads[0]["bytes"]
    rate = bytes_ / best
    pinned, pageable = rates.get("pinned"), rates.get("pageable")
    gigabytes = lambda value: cell(value and value / 1e9, "{:.1f} GB/s")
    return (
        f"Loading {bytes_ / 1e9:.2f} GB out of the page cache: first {first:.2f} s, best of {len(loads)} {best:.2f} s = {gigabytes(rate)}; "
        f"copies from pinned memory {gigabytes(pinned)} (ratio {ratio(rate, pinned)}, aim 0.80), from pageable memory {gigabytes(pageable)}.\n"
    )


def inference(results: Results, sizes: tuple[dict, dict] | None) -> list[str]:
    rates = results.one("rates")
    rows = [
        "| cameras | environments | rrun, end to end | of it pictures and words | first | eager PyTorch, network | torch.compile, network | eager / rrun | roofline | rrun / roofline | memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for line in results.all("infer"):
        cameras, batch = line["cameras"], line["batch"]
        eager, compiled = (results.one(what, cameras=cameras, batch=batch) for what in ("eager", "compile"))
        tokens = eager.get("tokens") or results.one("eager", cameras=cameras).get("tokens")
        floor = None
        if sizes and rates and tokens:
            floor = roofline.milliseconds(sizes, (cameras, tokens, batch), rates["tflops"], rates["terabytes"])
        ours = line["end_to_end_ms"]
        cells = [cameras, batch, cell(ours), cell(line["processor_ms"]), cell(line["first_ms"]), cell(eager.get("ms")), cell(compiled.get("ms"))]
        memory = line["peak_bytes"] and line["peak_bytes"] / 2**30
        cells += [ratio(eager.get("ms"), ours), cell(floor, "{:.2f} ms"), ratio(ours, floor), cell(memory, "{:.1f} GiB")]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def caveats(results: Results) -> list[str]:
    lines = [f"Not run: {line['of']}, {line['reason']}." for line in results.all("skipped")]
    compared = [line for what in ("eager", "compile") for line in results.all(what)]
    if compared:
        worst = max(line["error"] for line in compared)
        lines.append(f"Actions of both sides differ by at most {worst:.1e} of what the noise was changed by.")
        if not worst <= FAR:
            lines.append(f"**The two sides do not compute the same: at most {FAR} is expected.**")
    for line in results.all("compile"):
        lines.append(f"The first inference of torch.compile took {line['first_s']:.0f} s.")
    return lines


def main(folder: pathlib.Path, checkpoint: pathlib.Path, commit: str) -> None:
    results = Results(folder)
    device, rates = results.one("device"), results.one("rates")
    has_sizes = (checkpoint / "config.json").exists()
    print(f"### gpu: {device.get('name', 'no device')}, commit {commit}\n")
    print(tests(results))
    if rates:
        print(f"The card: {rates['tflops']:.0f} TFLOP/s in bfloat16 products, {rates['terabytes']:.2f} TB/s in copies (bytes read and written).\n")
    print(loading(results))
    print("One inference of GR00T N1.7, bfloat16, random weights, 4 steps; medians:\n")
    print("\n".join(inference(results, roofline.of_folder(checkpoint) if has_sizes else None)))
    print(f"\n{PUBLISHED}")
    print("\n".join(caveats(results)))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
