"""Episodes of `rrun eval` are those of plain gymnasium: same seed and same actions, same numbers to the last bit.

Each task is evaluated on two ranks, two copies each, with its episodes recorded. Then the simulator's own interpreter,
with nothing of rrun in it, resets a fresh environment with the recorded seed and takes the recorded
`processed_actions`. Where the dataset has float32, the simulator's numbers are rounded to float32 before they are
compared.
"""

import pathlib
import subprocess

import h5py
import numpy as np
import pytest
from tasks import TASKS, run

NAMED = {task.name: task for task in TASKS}


def needed(name):
    """The task, if its simulator is installed."""
    task = NAMED[name]
    if task.python() is None:
        pytest.skip(f"{task.venv} is not installed; jobs/suites/simulators/install.sh {task.venv} does it")
    return task


@pytest.fixture(scope="session", params=NAMED)
def random_actions(request, tmp_path_factory):
    """Episodes of random actions, which are within the bounds."""
    task = needed(request.param)
    return run(task, task.job("random_action", num_episodes=task.episodes), tmp_path_factory.mktemp(task.name))


@pytest.fixture(scope="session", params=[name for name in NAMED if name != "cartpole"])
def wild_actions(request, tmp_path_factory):
    """Episodes of actions up to twice as far out as the bounds, from a dataset."""
    task = needed(request.param)
    folder = tmp_path_factory.mktemp(f"{task.name}_wild")
    dataset = folder / "wild.hdf5"
    width, low, high = {"pusht": (2, -256, 768), "pusher": (7, -4, 4), "fetch": (4, -2, 2)}[task.name]
    rng = np.random.default_rng(3)
    write_demonstrations(dataset, [(seed, rng.uniform(low, high, (task.steps, width))) for seed in (1000, 1001)])
    return run(task, replay(task, dataset), folder)


def write_demonstrations(path, demonstrations):
    with h5py.File(path, "w") as file:
        for number, (seed, actions) in enumerate(demonstrations):
            demo = file.create_group(f"data/demo_{number}")
            demo["actions"] = actions.astype(np.float32)
            demo.attrs["seed"] = int(seed)


def replay(task, dataset):
    return task.job("replay_action", policy_config_dict={"replay_file_path": str(dataset)})


def assert_same_rows(episode, name):
    found, wanted = episode.recorded[name], episode.played[name]
    where = f"{episode.task.name}, episode {episode.number}, {name}"
    wanted = wanted.astype(found.dtype).reshape(len(wanted), -1)
    found = found.reshape(len(found), -1)
    assert found.shape == wanted.shape, where
    # By their bytes, so that -0 is not 0.
    differ = [row for row in range(len(found)) if found[row].tobytes() != wanted[row].tobytes()]
    assert not differ, f"{where}: differs in {len(differ)} of {len(found)} rows, first in row {differ[0]}"


def assert_same_run(episode):
    for name in episode.task.observe:
        assert_same_rows(episode, f"obs/{name}")
    assert_same_rows(episode, "rewards")


def test_observations_and_rewards_are_those_of_plain_gymnasium(random_actions):
    for episode in random_actions:
        assert_same_run(episode)


def test_an_episode_goes_on_until_the_environment_ends_it(random_actions):
    for episode in random_actions:
        played = episode.played
        over = played["terminated"] | played["truncated"]
        where = f"{episode.task.name}, episode {episode.number}: {len(over)} steps"
        assert over.nonzero()[0].tolist() == [len(over) - 1], where
        assert episode.line["length"] == episode.recorded["@num_samples"] == len(over), where
        assert episode.recorded["dones"].tolist() == over.astype(int).tolist(), where
        if not played["terminated"][-1]:
            assert len(over) == episode.task.steps, where


def test_the_end_is_that_of_plain_gymnasium(random_actions):
    for episode in random_actions:
        where = f"{episode.task.name}, episode {episode.number}"
        assert episode.recorded["@terminated"] == episode.played["terminated"][-1], where
        assert episode.recorded["@truncated"] == episode.played["truncated"][-1], where


def test_success_once_and_at_the_end_are_those_of_plain_gymnasium(random_actions):
    for episode in random_actions:
        solved, where = episode.played["success"], f"{episode.task.name}, episode {episode.number}"
        assert episode.line["success"] == solved.any(), where
        assert episode.line["success_at_end"] == solved[-1], where
        assert episode.recorded["@success"] == episode.recorded["success"][0] == solved.any(), where


def test_the_return_is_the_sum_of_the_recorded_rewards(random_actions):
    for episode in random_actions:
        assert episode.line["return"] == sum(map(float, episode.recorded["rewards"]))


def test_ranks_and_copies_share_the_episodes(random_actions):
    assert {episode.number for episode in random_actions} == set(range(random_actions[0].task.episodes))
    assert {episode.line["rank"] for episode in random_actions} == {0, 1}


def test_actions_beyond_the_bounds_reach_the_simulator_as_they_are(wild_actions):
    for episode in wild_actions:
        given, taken = episode.recorded["actions"], episode.recorded["processed_actions"]
        assert given.tobytes() == taken.tobytes(), f"{episode.task.name}, episode {episode.number}"
        assert_same_run(episode)


def test_an_expert_episode_of_fetch_is_solved_and_has_all_of_its_50_steps(tmp_path):
    task = needed("fetch")
    expert = pathlib.Path(__file__).with_name("fetch_expert.py")
    subprocess.run([task.python(), expert, "4", tmp_path / "expert.npz"], check=True, capture_output=True)
    played = np.load(tmp_path / "expert.npz")
    dataset = tmp_path / "expert.hdf5"
    write_demonstrations(dataset, zip(played["seeds"], played["actions"]))
    episodes = run(task, replay(task, dataset), tmp_path)
    assert [episode.line["length"] for episode in episodes] == [50] * 4
    for episode in episodes:
        first = episode.played["success"].nonzero()[0][0]
        assert first < 49, "the episode was solved by its last step: this says nothing"
        assert episode.line["success"] and episode.line["success_at_end"] == episode.played["success"][-1]
        assert_same_run(episode)
