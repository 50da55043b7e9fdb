"""`benches/gpu.sh` without a card: its arithmetic, its table, and the whole script with tiny sizes."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benches"))

import gpu_table  # noqa: E402
import roofline  # noqa: E402

RATES = {"what": "rates", "tflops": 790.0, "terabytes": 4.3, "pinned": 50e9, "pageable": 10e9}
DEVICE = {"what": "device", "name": "A card"}
INFER = {"what": "infer", "cameras": 1, "batch": 1, "rounds": 5, "first_ms": 90.0, "end_to_end_ms": 5.0, "processor_ms": 0.5}
EAGER = {"what": "eager", "cameras": 1, "batch": 1, "tokens": 83, "ms": 50.0, "first_s": 1.0, "error": 0.01}


def table(tmp_path: pathlib.Path, capsys, lines: list[dict], log: str = "") -> str:
    model, vlm = roofline.released()
    (tmp_path / "vlm").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(model))
    (tmp_path / "vlm/config.json").write_text(json.dumps(vlm))
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "tests.log").write_text(log)
    gpu_table.main(tmp_path, tmp_path, "abc")
    return capsys.readouterr().out


@pytest.mark.parametrize("batch, known", [(1, (2.3, 2.5, 3.3)), (8, (6.5, 9.8, 16.4)), (32, (26, 39, 65))])
def test_the_roofline_is_the_one_that_was_counted_by_hand(batch, known):
    found = [roofline.milliseconds(roofline.released(), (n, 66 * n + 17, batch), 790, 4.3) for n in (1, 2, 4)]
    assert found == pytest.approx(known, rel=0.03)


def test_twice_the_rates_are_half_the_time():
    at = lambda factor: roofline.milliseconds(roofline.released(), (2, 149, 4), 100 * factor, 1 * factor)
    assert at(1) == pytest.approx(2 * at(2))


def test_a_row_has_the_ratios_of_its_figures(tmp_path, capsys):
    load = {"what": "load", "seconds": 0.2, "bytes": 6e9, "tensors": 1, "files_bytes": 6e9}
    text = table(tmp_path, capsys, [DEVICE, RATES, load, INFER | {"peak_bytes": 8 << 30}, EAGER])
    assert "| 1 | 1 | 5.0 ms | 0.5 ms | 90.0 ms | 50.0 ms | – | 10.00 | 2.33 ms | 2.15 | 8.0 GiB |" in text
    assert "30.0 GB/s; copies from pinned memory 50.0 GB/s (ratio 0.60, aim 0.80)" in text
    assert "eager 85.8 ms" in text and "do not compute the same" not in text


def test_sides_that_do_not_agree_are_told(tmp_path, capsys):
    wrong = EAGER | {"error": float("nan")}
    assert "do not compute the same" in table(tmp_path, capsys, [DEVICE, INFER | {"peak_bytes": None}, wrong])


def test_failed_and_skipped_tests_are_counted_and_named(tmp_path, capsys):
    log = (
        "test a::gpu_x ... skipped: no card\nok\ntest b::gpu_y ... FAILED\n\nfailures:\n\n---- b::gpu_y stdout ----\nwords\n\n"
        "failures:\n    b::gpu_y\n\ntest result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured\n"
    )
    assert "Tests: 0 passed, 1 skipped, 1 failed (b::gpu_y)." in table(tmp_path, capsys, [], log)


def test_nothing_measured_is_no_table_of_zeros(tmp_path, capsys):
    text = table(tmp_path, capsys, [])
    assert "did not come to an end" in text and "Loading: not measured" in text and "0.0 ms" not in text


def test_a_card_that_is_not_there_is_a_failure():
    env = {**os.environ, "RRUN_DEVICE": "tpu"}
    done = subprocess.run([ROOT / "benches/gpu.sh"], env=env, capture_output=True, text=True)
    assert (done.returncode, "expected cpu, cuda or cuda:N" in done.stderr) == (2, True)


def test_the_whole_script_runs_without_a_card(tmp_path):
    env = {**os.environ, "RRUN_DEVICE": "cpu", "RRUN_OUT": str(tmp_path), "RRUN_SECONDS": "900"}
    done = subprocess.run([ROOT / "benches/gpu.sh"], env=env, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert "0 failed" in done.stdout and "| 4 | 2 |" in done.stdout
