"""ServeGen's clients: rates by window, lengths by moment, burstiness as fitted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tokenpath.core.errors import DamagedInput, InputError, UsageError
from tokenpath.simulate.workload.files import read_workload, sniff
from tokenpath.simulate.workload.servegen import draw_servegen, read_servegen
from tokenpath.simulate.workload.statistics import arrival_facts

HEADER = "client,t_s,rate,cv,dist,p1,p2\n"


def _folder(tmp_path: Path, rates: str, **lengths: dict[str, dict[str, str]]) -> Path:
    (tmp_path / "rates.csv").write_text(HEADER + rates)
    for client, content in lengths.items():
        (tmp_path / f"chunk-{client[1:]}-dataset.json").write_text(json.dumps(content))
    return tmp_path


def _lengths(prompt: str, output: str) -> dict[str, str]:
    return {"input_tokens": prompt, "output_tokens": output}


def test_each_client_keeps_its_rate_and_its_lengths(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path,
        "3,0,2,1,,0,0\n3,600,8,1,Gamma,1,0\n5,0,1,1,Weibull,1,0\n5,600,0,0,,0,0\n",
        c3={"0": _lengths("{100: 0.5, 200: 0.5}", "{7: 1.0}"), "600": _lengths("{300: 1}", "{8: 1}"),
            "900": _lengths("{}", "{}")},
        c5={"0": _lengths("{40: 1}", "{9: 1}")},
    )  # fmt: skip
    assert sniff(folder) == "servegen"
    clients = read_servegen([folder])
    assert [client.number for client in clients.clients] == [3, 5]
    drawn = draw_servegen(clients, begin_s=0, duration_s=1200)
    prompt, output, at = drawn.prompt_tokens, drawn.output_tokens, drawn.arrival_ns / 1e9
    assert np.bincount(output)[7:].tolist() == [1200, 4800, 600]
    assert (at[output == 8] >= 600).all()
    assert set(prompt[output == 7].tolist()) == {100, 200}
    assert (prompt[output == 9] == 40).all()
    again = draw_servegen(clients, begin_s=0, duration_s=1200)
    assert np.array_equal(drawn.arrival_ns, again.arrival_ns)
    half = draw_servegen(clients, begin_s=0, duration_s=1200, scale=0.5)
    assert half.num_requests == 3300


def test_gaps_are_as_uneven_as_fitted(tmp_path: Path) -> None:
    rates = "".join(f"1,{600 * number},5,2,Gamma,0.25,0\n" for number in range(20))
    folder = _folder(tmp_path, rates, c1={"0": _lengths("{1: 1}", "{1: 1}")})
    drawn = draw_servegen(read_servegen([folder]), begin_s=0, duration_s=12_000)
    facts = arrival_facts(drawn.arrival_ns)
    assert facts is not None
    assert facts.gap_cv == pytest.approx(2.0, rel=0.06)
    assert facts.rate_per_s == pytest.approx(5.0, rel=0.01)


def test_a_client_without_lengths_takes_anybody_s(tmp_path: Path) -> None:
    folder = _folder(
        tmp_path, "1,0,1,1,,0,0\n2,0,1,1,,0,0\n", c1={"0": _lengths("{11: 1}", "{3: 1}")}
    )
    read = read_workload(folder, begin_s=0, duration_s=600)
    assert read.format == "servegen"
    assert read.workload.num_requests == 1200
    assert set(read.workload.prompt_tokens.tolist()) == {11}
    assert "1 of them have lengths of their own" in read.notes[0]
    assert read.workload.state == "estimated"


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "1,0,1,1,,0,0\nx,0,1,1,,0,0\n1,600,-1,1,,0,0\n1,1200\n")
    clients = read_servegen([folder])
    assert {skip.reason: (skip.num_rows, skip.first_line) for skip in clients.skips} == {
        "a value is missing or no number": (2, 3),
        "a value out of range": (1, 4),
    }
    with pytest.raises(InputError, match="no client has lengths"):
        draw_servegen(clients)
    (tmp_path / "chunk-1-dataset.json").write_text('{"0": {"input_tokens": 3}}')
    with pytest.raises(DamagedInput, match="not a data set"):
        read_servegen([folder])
    (tmp_path / "chunk-1-dataset.json").write_text(json.dumps({"0": _lengths("{5: 1}", "{5: 1}")}))
    with pytest.raises(UsageError):
        draw_servegen(read_servegen([folder]), duration_s=-1)
    with pytest.raises(UsageError, match="requests"):
        draw_servegen(read_servegen([folder]), begin_s=0, scale=1e9)
    (tmp_path / "rates.csv").unlink()
    with pytest.raises(InputError, match="no client has rates"):
        draw_servegen(read_servegen([folder]))
