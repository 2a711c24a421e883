"""What holds for TensorRT-LLM's scheduler under any settings and workload."""

from __future__ import annotations

from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from trtllm_cases import all_settings, settings, workloads

from tokenpath.engine.scheduler import EngineRequest, Kind
from tokenpath.engine.trtllm import TrtllmScheduler, TrtllmSettings

several = hypothesis_settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Audited(TrtllmScheduler):
    """Checks after every turn that each block is free or held, and the tree hangs together."""

    def schedule(self, now_ns):
        decision = super().schedule(now_ns)
        self._audit()
        return decision

    def complete(self, decision, now_ns):
        outcome = super().complete(decision, now_ns)
        self._audit()
        return outcome

    def _audit(self):
        blocks = self.blocks
        free = {n for queue in blocks._queues.values() for n in queue}
        assert len(free) == blocks.num_free
        refs: dict[int, int] = {}
        for sequence in self.active:
            for block in sequence.blocks:
                refs[block.number] = refs.get(block.number, 0) + 1
                assert block.refs >= refs[block.number]
        assert not free & refs.keys()
        assert len(free) + len(refs) == self._settings.num_blocks
        stack = [blocks.root]
        while stack:
            node = stack.pop()
            for key, child in node.children.items():
                assert child.parent is node
                assert child.key == key
                assert child.key == blocks.key_of(child.owner, child.place, key[0])
                stack.append(child)
            assert {b for found in node.by_first.values() for b in found.values()} == set(
                node.children.values()
            )


@several
@given(workloads(), all_settings())
def test_every_request_ends_and_every_block_is_accounted_for(
    drive, requests: list[EngineRequest], chosen: TrtllmSettings
) -> None:
    drive(Audited(chosen), requests)


@several
@given(workloads(), all_settings())
def test_the_same_run_twice_is_the_same(
    drive, requests: list[EngineRequest], chosen: TrtllmSettings
) -> None:
    first = drive(TrtllmScheduler(chosen), requests)
    second = drive(TrtllmScheduler(chosen), requests)
    assert first.shape == second.shape
    assert first.finished == second.finished


@several
@given(workloads(), all_settings())
def test_steps_keep_to_their_limits_and_only_max_utilization_pauses(
    drive, requests: list[EngineRequest], chosen: TrtllmSettings
) -> None:
    run = drive(TrtllmScheduler(chosen), requests)
    if chosen.capacity_scheduler_policy != "max_utilization":
        assert run.preempted == []
    for decision, _ in run.steps:
        assert len(decision.request) <= chosen.max_batch_size
        if not chosen.enable_prefix_aware_scheduling or not chosen.enable_block_reuse:
            assert decision.num_scheduled_tokens <= chosen.max_num_tokens


@several
@given(workloads())
def test_with_room_for_all_nobody_is_paused(drive, requests: list[EngineRequest]) -> None:
    # Not so between two tight pools: the larger one starts more requests, and may pause more.
    roomy = settings(num_blocks=10_000, capacity_scheduler_policy="max_utilization")
    assert drive(TrtllmScheduler(roomy), requests).preempted == []


@several
@given(workloads())
def test_a_static_batch_takes_nobody_in_before_all_have_left(
    drive, requests: list[EngineRequest]
) -> None:
    run = drive(TrtllmScheduler(settings(capacity_scheduler_policy="static_batch")), requests)
    for decision, _ in run.steps:
        starts = decision.kind != Kind.RUN
        assert starts.all() or not starts.any(), "all of a batch start together"
