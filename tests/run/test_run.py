"""What `make test` reads from programs, how it calls cargo, and in which order parts run."""

import json

import pytest

import build
import outcomes
import parts
from outcomes import Libtest, Result
from run_part import Run
from schedule import Schedule, chosen


def event(name: str, what: str, **more) -> str:
    return json.dumps({"type": "test", "name": name, "event": what, **more}) + "\n"


def read(*lines: str) -> list[Result]:
    program = Libtest()
    for line in lines:
        program.read(line)
    return program.finished()


def test_a_failure_has_its_output_and_a_pass_its_time():
    found = read(event("a", "started"), event("a", "ok", exec_time=1.5),
                 event("b", "failed", exec_time=0.1, stdout="why\n"))
    assert found == [Result("a", "passed", 1.5), Result("b", "failed", 0.1, "why\n")]


def test_a_test_that_says_so_is_skipped_with_its_reason():
    found = read(event("a", "ok", stdout="x\nskipped: no card\n"),
                 event("b", "ok", stdout="skipped, there is no sbatch\n"),
                 event("c", "ok", stdout="2 jobs are skipped: a, b\n"))
    assert [(it.outcome, it.text) for it in found] == [
        ("skipped", "no card"), ("skipped", "there is no sbatch"), ("passed", "")]


def test_output_of_other_processes_is_shown_and_does_not_hide_a_test():
    program = Libtest()
    shown = program.read("from a rank" + event("a", "ok", exec_time=0.25))
    assert shown == "from a ranktest a ... ok 0.25 s\n"
    assert program.read("panicked at { x }\n") == "panicked at { x }\n"
    assert [it.name for it in program.finished()] == ["a"]


def test_a_test_that_never_ended_has_failed():
    found = read(event("a", "started"), event("b", "started"), event("b", "ok"))
    assert [(it.name, it.outcome) for it in found] == [("b", "passed"), ("a", "failed")]


def test_pytests_file_is_read(tmp_path):
    path = tmp_path / "x.xml"
    path.write_text('''<testsuites><testsuite>
      <testcase classname="tests.test_a" name="test_1" time="0.5"/>
      <testcase classname="tests.test_a" name="test_2"><failure message="m">t</failure></testcase>
      <testcase classname="" name="tests.test_b"><error message="m">no module</error></testcase>
      <testcase classname="c" name="d"><skipped type="pytest.skip" message="no h5py"/></testcase>
    </testsuite></testsuites>''')
    assert outcomes.of_file(path) == [
        Result("tests.test_a::test_1", "passed", 0.5),
        Result("tests.test_a::test_2", "failed", 0, "t"),
        Result("tests.test_b", "failed", 0, "no module"), Result("c::d", "skipped", 0, "no h5py")]
    assert outcomes.of_file(tmp_path / "y.xml") == []


def commands(*names: str) -> list[str]:
    return [" ".join(it[4:]) for it in build.tests(chosen(list(names)))]


def test_all_test_programs_are_built_at_once_and_a_part_builds_its_own_alone():
    json_lines = "--no-run --message-format=json-render-diagnostics"
    (whole,) = commands()
    assert whole.startswith(f"{json_lines} --workspace --lib") and "--test=outside" in whole
    assert commands("jobs") == [f"{json_lines} --package=jobs --lib"]
    assert commands("launch", "eval") == [f"{json_lines} --workspace --test=outside"]
    assert commands("tch") == []


def test_cargos_messages_name_the_test_programs():
    built = build.Built()
    built.add("not JSON\n")
    message = {"executable": "/t/x-1", "manifest_path": "/w/jobs/fit/Cargo.toml",
               "package_id": "path+file:///w/jobs/fit#0.1.0", "profile": {"test": True},
               "target": {"kind": ["lib"], "name": "fit"}}
    built.add(json.dumps(message))
    built.add(json.dumps(message | {"profile": {"test": False}, "package_id": "x#rrun@0.1.0"}))
    assert str(built.find(("fit", "lib")).folder) == "/w/jobs/fit"
    with pytest.raises(LookupError, match="cargo has built no tests of launcher lib"):
        built.find(("launcher", "lib"))


def test_an_unknown_part_names_the_known_ones():
    with pytest.raises(SystemExit, match="`lunch` is not a part .* launch, launcher, models, nodes"):
        chosen(["lunch"])


def test_what_waits_runs_one_at_a_time_and_nothing_before_it_is_built():
    waiting = [parts.Part("early", is_early=True), parts.Part("a", holds="waits"),
               parts.Part("b", holds="waits"), parts.Part("c")]
    schedule = Schedule(waiting)
    assert schedule.take().name == "early"
    assert not any(schedule.may_run(part) for part in schedule.waiting)
    schedule.stage = 2
    assert [schedule.take().name, schedule.take().name] == ["a", "c"]
    schedule.held.clear()
    assert (schedule.take().name, schedule.take()) == ("b", None)


def test_a_program_that_fails_without_a_failed_test_is_a_failure_with_its_last_lines(
        tmp_path, monkeypatch):
    monkeypatch.setattr("run_part.LOGS", tmp_path)
    words = ["/bin/sh", "-c", "echo early; exit 3"]
    done = Run(parts.Part("x", steps=[parts.Step(words)])).to_the_end(build.Built())
    (failed,) = done.tests
    assert failed.outcome == "failed" and failed.text.startswith("exit code 3; its last lines:")
    assert "early" in failed.text


def test_a_part_that_hangs_is_ended_and_says_what_ran(tmp_path, monkeypatch):
    monkeypatch.setattr("run_part.LOGS", tmp_path)
    part = parts.Part("x", steps=[parts.Step(["sleep", "1000"])], limit_s=1)
    done = Run(part).to_the_end(build.Built())
    assert done.counts["failed"] == 1 and "sleep 1000" in done.tests[0].text


def test_processes_that_outlive_a_program_are_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("run_part.LOGS", tmp_path)
    monkeypatch.setattr("run_part.GRACE_S", 1)
    words = ["/bin/sh", "-c", "setsid sleep 1000 & exit 0"]
    done = Run(parts.Part("x", steps=[parts.Step(words)])).to_the_end(build.Built())
    assert not done.counts["failed"]
    assert "sleep 1000" in done.log_path.read_text()


def test_a_step_may_have_the_path_of_the_program_that_was_built(tmp_path, monkeypatch):
    monkeypatch.setattr("run_part.LOGS", tmp_path)
    built = build.Built()
    built.programs["runtime", "torch"] = build.Program(tmp_path / "torch-1", tmp_path)
    step = parts.Step(["/bin/echo", "it is", parts.BUILT])
    done = Run(parts.Part("x", ("runtime", "torch"), steps=[step])).to_the_end(built)
    assert f"it is {tmp_path}/torch-1" in done.log_path.read_text()
