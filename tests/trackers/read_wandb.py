"""Reads the file of an offline run of wandb: records in LevelDB's log format, whose messages the package knows."""

import json
import struct

from wandb.proto import wandb_internal_pb2

BLOCK = 1 << 15
HEAD = struct.Struct("<IHB")  # checksum, length, kind
FULL, FIRST, LAST = 1, 2, 4


def records(path):
    data, at, whole = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + HEAD.size <= len(data):
        if BLOCK - at % BLOCK < HEAD.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = HEAD.unpack_from(data, at)
        piece = data[at + HEAD.size : at + HEAD.size + length]
        at += HEAD.size + length
        whole = piece if kind in (FULL, FIRST) else whole + piece
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record


def history(path):
    """The logged rows, and the names of the artifacts."""
    rows, artifacts = [], []
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item})
        elif record.WhichOneof("record_type") == "artifact":
            artifacts.append(record.artifact.type)
    return rows, artifacts
