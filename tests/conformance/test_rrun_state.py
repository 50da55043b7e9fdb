"""What an elastic launch of rrun keeps in the store: JSON behind a pickle that tells a torchrun why it cannot join."""
import base64
import json
import pickle

import pytest
from conftest import DUMP
from ministore import Client
from test_c10d import FAST, hold, node, release

cid = pytest.mark.cid
STORE_ELSEWHERE = FAST + ",is_host=0"


def text(store, rid):
    return base64.b64decode(Client("127.0.0.1", store).get(f"torch.rendezvous.{rid}"), validate=True)


def state(raw):
    """The JSON behind the pickle's end."""
    return json.loads(raw[raw.index(b"R.{") + 2:])


@cid("RRUN-01")
@pytest.mark.rrun
def test_rrun_state_key_in_the_store(box, ext_store):
    a = node(box, ext_store, DUMP, hold(box), nnodes="1", conf=STORE_ELSEWHERE, rid="peek")
    box.wait_recs(1)
    before = state(text(ext_store, "peek"))
    ((addr, card),) = [(key, value) for key, value in before["participants"].items()]
    assert addr and (card["role"], card["nproc"], card["node_rank"]) == ("default", 1, 0)
    assert [name for name, _ in before["world"]] == [addr] and before["closed"] is None
    env = box.recs()[0]["env"]
    assert (before["restarts"], before["round"]) == (0, 0)
    assert (before["master"]["addr"], str(before["master"]["port"])) == (env["MASTER_ADDR"], env["MASTER_PORT"])
    release(box)
    a.ok()
    after = state(text(ext_store, "peek"))
    assert after["closed"] == "Succeeded" and after["version"] > before["version"]


@cid("RRUN-02")
@pytest.mark.rrun
def test_rrun_state_has_no_time_in_it(box, ext_store):
    # clocks of nodes differ by more than a keep-alive: what is not there cannot be compared
    a = node(box, ext_store, DUMP, hold(box), nnodes="1", conf=STORE_ELSEWHERE, rid="still")
    box.wait_recs(1)
    assert not [n for n in numbers(state(text(ext_store, "still"))) if n > 100_000]
    release(box)
    a.ok()


@cid("RRUN-03")
@pytest.mark.rrun
def test_rrun_state_tells_a_torchrun_who_is_at_work(box, ext_store):
    a = node(box, ext_store, DUMP, hold(box), nnodes="1", conf=STORE_ELSEWHERE, rid="told")
    box.wait_recs(1)
    with pytest.raises(ValueError, match="rrun keeps this rendezvous"):
        pickle.loads(text(ext_store, "told"))
    release(box)
    a.ok()


def numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [n for item in value for n in numbers(item)]
    return [value] if isinstance(value, (int, float)) else []
