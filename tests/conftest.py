"""What every test stands on: reference data that may not be skipped, no network, no leaks."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

REFERENCE_DATA_VARIABLE = "TOKENPATH_REFERENCE_DATA"

# The machines that run the tests are noisy: a deadline per example would measure them. In CI the examples
# are the same in every run, so that a red run is about the change; elsewhere hypothesis looks further, run by run.
# 50 examples, for the whole suite has ten minutes; a test that needs more says so itself.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True, max_examples=50)
hypothesis.settings.register_profile(
    "ci", deadline=None, print_blob=True, max_examples=50, derandomize=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """The folder of real captures named by TOKENPATH_REFERENCE_DATA; skips when it is unset."""
    value = os.environ.get(REFERENCE_DATA_VARIABLE)
    if not value:
        pytest.skip(f"{REFERENCE_DATA_VARIABLE} is not set: no real captures to test on")
    path = Path(value)
    if not path.is_dir():
        pytest.fail(f"{REFERENCE_DATA_VARIABLE} names {path}, which is not a folder")
    return path


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _forbid_skip(report: pytest.TestReport | pytest.CollectReport, uses_data: bool) -> None:
    """Turn the skip of a test on reference data into a failure while the data is promised."""
    promised = bool(os.environ.get(REFERENCE_DATA_VARIABLE))
    if not promised or not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = _skip_reason(report)
    if uses_data or REFERENCE_DATA_VARIABLE in reason:
        report.outcome = "failed"
        report.longrepr = (
            f"{REFERENCE_DATA_VARIABLE} is set, so a test on reference data may not skip. "
            f"Its reason was: {reason}"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    _forbid_skip(report, "reference_data" in getattr(item, "fixturenames", ()))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[pytest.CollectReport]:
    report: pytest.CollectReport = yield
    _forbid_skip(report, uses_data=False)
    return report


def _is_local(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None:
        return True
    name = str(host)
    return name in ("", "localhost", "::1", "0.0.0.0", "::") or name.startswith("127.")


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Connecting to or looking up anything but this machine fails the test.

    ``pytest.fail`` raises no ``Exception``, so code that swallows errors cannot swallow this one.
    """
    patch = pytest.MonkeyPatch()

    def guard(owner: type | object, method: str) -> None:
        original = getattr(owner, method)

        def checked(sock: socket.socket, *args: object) -> object:
            address = args[-1]
            inet = sock.family in (socket.AF_INET, socket.AF_INET6)
            if inet and isinstance(address, tuple) and not _is_local(address[0]):
                pytest.fail(f"network access: {method} to {address}")
            return original(sock, *args)

        patch.setattr(owner, method, checked)

    for method in ("connect", "connect_ex", "sendto"):
        guard(socket.socket, method)

    look_up = socket.getaddrinfo

    def checked_look_up(host: object, *args: object, **kwargs: object) -> object:
        if not _is_local(host):
            pytest.fail(f"network access: look-up of {host!r}")
        return look_up(host, *args, **kwargs)

    patch.setattr(socket, "getaddrinfo", checked_look_up)
    yield
    patch.undo()


def _global_state() -> dict[str, object]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    return {"working folder": str(Path.cwd()), "environment": environment}


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """A test leaves the working folder and the environment as it found them."""
    before = _global_state()
    yield
    after = _global_state()
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"the test changed the {' and the '.join(changed)}; use monkeypatch"
