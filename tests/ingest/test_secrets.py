"""No secret of the input is in any table, wherever it stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.compare import rows
from ingest.planted import SECRETS, TELLTALES
from ingest.traces import Trace
from tokenpath.capture.parquet import write_capture
from tokenpath.ingest import read


def planted() -> Trace:
    """Every secret in every place of a trace that a text can stand in."""
    everything = list(SECRETS.values())
    trace = Trace(
        base_time_ns=5,
        rank=0,
        trace_id=SECRETS["Hugging Face"],
        host_name="gpu-node-117",
        username="joanquill",
        INFO=everything,
        ERROR=everything,
        metadata={"system": {"env": {"HF_TOKEN": SECRETS["Hugging Face"]}, "argv": everything}},
        command_line=" ".join(everything),
    )
    trace.head["deviceProperties"] = [{"id": 0, "name": SECRETS["GitHub classic"]}]
    trace.head["distributedInfo"] |= {"backend": SECRETS["Slack"]}
    trace.tail["traceName"] = SECRETS["home"]
    for at, secret in enumerate(everything):
        trace.kernel(secret, at, 1).op(secret, at, 1, dims=[secret], types=secret)
        trace.op("op", at, 1, **{"Call stack": secret}).frame(secret, at, 1)
        trace.call(secret, at, 1).range(secret, at, 1).device_range(secret, at, 1)
        trace.complete("overhead", secret, at, 1, -1, 0, {}).complete(
            "odd", secret, at, 1, 3, 4, {}
        )
        trace.complete(secret, "name", at, 1, 3, 4, {}).sync(secret, at, 1)
        trace.op("c", at, 1, tid=secret, **{"Collective name": secret, "dtype": secret})
        trace.kernel("n", at, 1, **{"Collective name": "x", "Process Group Name": secret})
        trace.thread_name(secret, tid=secret).process_name(secret, pid=secret)
        trace.counter(secret, at, **{secret: 1})
        trace.complete("cuda_profiler_range", secret, at, 1, 0, 0, {secret: 1})
        trace.flow("s", at, at, secret, secret, cat=secret)
        trace.event(ph="B", name=secret, pid=secret, tid=1, ts=at)
        trace.raw(secret.replace("\n", " ").replace('"', ""))
        trace.event(ph="i", name=secret, pid=1, tid=1, ts=at, s="t")
    return trace


@pytest.mark.parametrize("scanner", ["slow", "fast"])
@pytest.mark.parametrize("keep_hosts", [False, True])
def test_no_planted_secret_survives(tmp_path: Path, scanner: str, keep_hosts: bool) -> None:
    name = "gpu-node-117_4242.1700000000000.pt.trace.json"
    path = planted().write(tmp_path / name)
    capture = read([path], keep_hosts=keep_hosts, scanner=scanner)
    write_capture(capture, tmp_path / "capture")
    texts = "\n".join(_texts(capture))
    # Zstandard hides text from a search, so the values are looked at, and the files' own metadata.
    stored = b"".join(p.read_bytes() for p in (tmp_path / "capture").iterdir()).decode("latin-1")
    hosts = {"gpu-node-117", "10-214-33-7"} if keep_hosts else set()
    for telltale in set(TELLTALES) - hosts:
        assert telltale not in texts
        assert telltale not in stored
    assert rows(capture, "source", "host") == ["gpu-node-117" if keep_hosts else "host-0"]
    assert capture.num_rows("kernel") >= len(SECRETS)


def _texts(capture) -> list[str]:
    return [str(capture[name].to_pydict()) for name in capture]


def test_hosts_of_several_files_stay_apart(tmp_path: Path) -> None:
    paths = [
        Trace(rank=rank, host_name=host).kernel("k", 1, 1).write(tmp_path / f"{rank}.json")
        for rank, host in enumerate(["alpha1", "beta22", "alpha1"])
    ]
    assert rows(read(paths), "source", "host") == ["host-0", "host-1", "host-0"]
