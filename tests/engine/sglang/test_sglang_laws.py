"""What holds for SGLang's scheduler under any settings and workload."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from sglang_cases import all_settings, request, settings, workloads

from tokenpath.engine.scheduler import EngineRequest
from tokenpath.engine.sglang.scheduler import SglangScheduler
from tokenpath.engine.sglang.settings import SglangSettings

several = hypothesis_settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Audited(SglangScheduler):
    """Checks after every turn that each page is somewhere, and only once."""

    def schedule(self, now_ns):
        decision = super().schedule(now_ns)
        self._audit()
        return decision

    def complete(self, decision, now_ns):
        outcome = super().complete(decision, now_ns)
        self._audit()
        return outcome

    def _audit(self):
        cache = self.cache
        alive = {*self.waiting, *self.running.sequences}
        for batch in (self._last, self._under_way, self._ahead):
            alive.update(batch.sequences if batch is not None else ())
        if self._chunked is not None:
            alive.add(self._chunked)
        owned = sum(
            -(-s.committed // cache.page_size) - s.protected // cache.page_size
            for s in alive
            if s.committed
        )
        nodes = list(cache.tree.nodes())
        assert cache.tree.evictable_pages == sum(len(n.key) for n in nodes if n.lock_refs == 0)
        assert cache.tree.locked_pages == sum(len(n.key) for n in nodes if n.lock_refs > 0)
        in_tree = cache.tree.evictable_pages + cache.tree.locked_pages
        assert cache.free_pages + in_tree + owned == cache.num_pages
        assert self._rows_held == sum(s.holds_row for s in alive)
        assert self._rows_held <= self._settings.max_running_requests


@several
@given(workloads(), all_settings())
def test_every_request_ends_and_every_page_is_accounted_for(
    drive, requests: list[EngineRequest], chosen: SglangSettings
) -> None:
    drive(Audited(chosen), requests)


@several
@given(workloads(), all_settings())
def test_the_same_run_twice_is_the_same(
    drive, requests: list[EngineRequest], chosen: SglangSettings
) -> None:
    first = drive(SglangScheduler(chosen), requests)
    second = drive(SglangScheduler(chosen), requests)
    assert first.shape == second.shape
    assert first.finished == second.finished


@several
@given(workloads(), all_settings())
def test_without_memory_pressure_nobody_is_retracted(
    drive, requests: list[EngineRequest], chosen: SglangSettings
) -> None:
    roomy = settings(
        max_total_tokens=100_000,
        schedule_policy=chosen.schedule_policy,
        page_size=chosen.page_size,
        disable_overlap_schedule=chosen.disable_overlap_schedule,
    )
    assert drive(SglangScheduler(roomy), requests).preempted == []


@several
@given(workloads())
def test_first_come_first_served_keeps_the_order(drive, requests: list[EngineRequest]) -> None:
    run = drive(SglangScheduler(settings(max_total_tokens=100_000)), requests)
    first_seen: list[int] = []
    for decision, _ in run.steps:
        first_seen += [i for i in decision.request.tolist() if i not in first_seen]
    order = sorted(requests, key=lambda r: (r.arrival_ns, r.index))
    assert first_seen == [r.index for r in order]


@example([request(0, 5, 3), request(1, 5, 3)])
@several
@given(workloads())
def test_overlap_changes_when_steps_are_decided_not_what_comes_out(
    drive, requests: list[EngineRequest]
) -> None:
    roomy = {"max_total_tokens": 100_000}
    overlapped = drive(SglangScheduler(settings(**roomy, disable_overlap_schedule=False)), requests)
    plain = drive(SglangScheduler(settings(**roomy)), requests)
    assert overlapped.emitted == plain.emitted
