"""What every reader keeps: sniffing, units, counted skips, bounded memory, damage, determinism, masking."""

from __future__ import annotations

import random
import shutil
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.compare import difference, reasons, rows
from ingest.planted import SECRETS, TELLTALES
from ingest.samples import Sample, all_samples
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import TokenpathError
from tokenpath.ingest import read
from tokenpath.ingest.formats import readers, sniff, sniff_folder

SAMPLES = all_samples()
each = pytest.mark.parametrize("sample", SAMPLES, ids=[sample.name for sample in SAMPLES])
_NUM_DAMAGED = 20
_BESIDE_HOSTS = ("Hugging Face", "URL", "email", "home", "IPv4", "cluster host")


def test_every_reader_has_a_sample() -> None:
    assert {reader.name for reader in readers()} == {sample.reader for sample in SAMPLES}


def test_names_are_unique() -> None:
    names = [reader.name for reader in readers()]
    assert len(set(names)) == len(names)


@each
def test_one_reader_takes_it(sample: Sample, tmp_path: Path) -> None:
    path = sample.build(tmp_path)
    reader = sniff_folder(path) if path.is_dir() else sniff(path)
    assert reader is not None
    assert reader.name == sample.reader


@each
def test_values_units_and_skips(sample: Sample, tmp_path: Path) -> None:
    capture = read([sample.build(tmp_path)])
    validate(capture)
    for (table, *columns), expected in sample.expect.items():
        assert rows(capture, table, *columns) == expected, (table, columns)
    counted = {reason: number for reason, number in reasons(capture).items() if number}
    assert counted == {reason: number for reason, number in sample.skipped.items() if number}
    (num_events,) = rows(capture, "source", "num_events")[:1]
    assert num_events >= rows(capture, "source", "num_skipped")[0]
    assert rows(capture, "source", "format")[0] == sample.reader


@each
def test_the_same_input_gives_the_same_tables(sample: Sample, tmp_path: Path) -> None:
    path = sample.build(tmp_path)
    one, two = read([path]), read([path])
    assert difference(one, two) is None
    for name in one:
        assert one[name].equals(two[name])


@each
def test_two_files_are_two_sources(sample: Sample, tmp_path: Path) -> None:
    """Read together, each row keeps to its source, and no row is lost."""
    (tmp_path / "a").mkdir()
    path = sample.build(tmp_path / "a")
    other = tmp_path / ("b-" + path.name)
    (shutil.copytree if path.is_dir() else shutil.copy)(path, other)
    one, both = read([path]), read([path, other])
    validate(both)
    assert both.num_rows("source") == 2 * one.num_rows("source")
    if sample.reader != "kineto":  # parts of one capture are read as one
        for name in one:
            assert both.num_rows(name) == 2 * one.num_rows(name), name


@each
def test_truncated_anywhere(sample: Sample, tmp_path: Path) -> None:
    """All that is there is read, or one clear error; never more rows than the whole has."""
    path = sample.build(tmp_path)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = files[0].read_bytes()
    for number in range(_NUM_DAMAGED):
        files[0].write_bytes(whole[: len(whole) * number // _NUM_DAMAGED])
        _read_or_refuse(path)


@each
def test_damaged_anywhere(sample: Sample, tmp_path: Path) -> None:
    path = sample.build(tmp_path)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = files[0].read_bytes()
    random_ = random.Random(7)
    for _ in range(2 * _NUM_DAMAGED):
        wounded = bytearray(whole)
        for _ in range(random_.randrange(1, 4)):
            at = random_.randrange(len(wounded))
            wounded[at : at + random_.randrange(3)] = random_.randbytes(random_.randrange(3))
        files[0].write_bytes(bytes(wounded))
        _read_or_refuse(path)


def _read_or_refuse(path: Path) -> None:
    try:
        capture = read([path])
    except TokenpathError:
        return
    validate(capture)


@pytest.mark.parametrize("keep_hosts", [False, True])
@each
def test_no_planted_secret_survives(sample: Sample, tmp_path: Path, keep_hosts: bool) -> None:
    if sample.planted is None:
        pytest.fail(f"{sample.name} plants no secrets: every format holds texts")
    # With hosts kept all other rules are the same: those that tell hosts from secrets are tried again.
    tried = [*SECRETS.values()] if not keep_hosts else [SECRETS[name] for name in _BESIDE_HOSTS]
    for number, secret in enumerate(tried):
        folder = tmp_path / str(number)
        folder.mkdir()
        capture = read([sample.planted(folder, secret)], keep_hosts=keep_hosts)
        texts = "\n".join(_texts(capture))
        for telltale in TELLTALES:
            if telltale in secret.lower() or telltale in secret:
                is_host = any(part in telltale for part in ("gpu-node", "10.214", "10-214"))
                assert (keep_hosts and is_host) or telltale not in texts, (secret, telltale)


def _texts(capture: Capture) -> list[str]:
    found = []
    for name in capture:
        for column in capture[name].columns:
            kind = column.type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
                found.append(str(column.to_pylist()))
    return found


@each
def test_memory_grows_with_the_columns_alone(sample: Sample, tmp_path: Path) -> None:
    """The decoded input is never held as objects: the peak grows by no more than its columns need."""
    if sample.many is None:
        return
    peaks = []
    small, large = 2_000, 8_000
    for number, size in enumerate((small, large)):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = sample.many(folder, size)
        read([path])
        tracemalloc.start()
        try:
            read([path])
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (large - small) <= sample.bytes_an_event
