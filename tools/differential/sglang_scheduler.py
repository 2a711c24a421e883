"""SGLang's real scheduler, set up by hand without a model: what `sglang_record.py` drives.

Real: `Scheduler.get_next_batch_to_run` and all it calls (policy, prefill adder, retraction, the ratio of new tokens),
`ScheduleBatch`, the batch result processor, the radix cache (the default unified one) and the allocators. Not
real: the model worker, the sockets, the metrics.
"""

from __future__ import annotations

import os
from collections import deque
from types import SimpleNamespace
from typing import Any

from absent_modules import Nothing

os.environ.setdefault("SGLANG_RUST_BUILD_MODE", "never")

import torch
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm


class Same(Nothing):
    """An adapter that hands its batch back."""

    def maybe_prepare_mlp_sync_batch(self, batch: Any, **_: Any) -> Any:
        """No other rank."""
        return batch

    def maybe_convert_decode_to_extend(self, batch: Any) -> Any:
        """No other rank."""
        return batch

    def prepare_for_forward(self, batch: Any, **_: Any) -> Any:
        """No n-gram embedding."""
        return batch


class Recorded(Scheduler):
    """The real scheduler, set up by hand: its own set-up starts a model."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Only what scheduling reads."""
        size, page = settings["max_total_num_tokens"], settings["page_size"]
        self.settings = settings
        self.page_size = page
        self.max_total_num_tokens = size
        self.max_running_requests = settings["max_running_requests"]
        self.max_prefill_tokens = settings["max_prefill_tokens"]
        self.enable_overlap = not settings["disable_overlap_schedule"]
        self.schedule_policy = settings["schedule_policy"]
        self.model_config = SimpleNamespace(
            is_encoder_decoder=False,
            vocab_size=1 << 60,
            self_opened_think_start_ids=None,
            think_end_ids=None,
            think_end_id=None,
        )
        self.req_to_token_pool = ReqToTokenPool(
            size=self.max_running_requests,
            max_context_len=size + page,
            device="cpu",
            enable_memory_saver=False,
        )
        kind = {"dtype": torch.float32, "device": "cpu", "kvcache": None, "need_sort": False}
        self.token_to_kv_pool_allocator = (
            TokenToKVPoolAllocator(size, **kind)
            if page == 1
            else PagedTokenToKVPoolAllocator(size, page_size=page, **kind)
        )
        self.tree_cache = UnifiedRadixCache(
            CacheInitParams(
                disable=settings["disable_radix_cache"],
                req_to_token_pool=self.req_to_token_pool,
                token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
                page_size=page,
                eviction_policy=settings["radix_eviction_policy"],
                chunked_prefill_size=settings["chunked_prefill_size"],
                tree_components=(ComponentType.FULL,),
            )
        )
        for name in (
            "enable_lora",
            "enable_hierarchical_cache",
            "enable_hicache_storage",
            "enable_lmcache",
            "enable_unified_cache_external_linker",
            "enable_hisparse",
            "abort_on_priority_when_disabled",
            "is_hybrid_swa",
            "require_mlp_sync",
            "enable_unified_memory",
            "enable_skip_finishing_decode",
        ):
            setattr(self, name, False)
        for name in (
            "dllm_config",
            "hisparse_coordinator",
            "decode_offload_manager",
            "min_free_slots_delayer",
            "dynamic_chunk_sizer",
            "truncation_align_size",
            "lora_drainer",
            "last_batch",
            "max_queued_requests",
            "draft_worker",
            "metrics_collector",
            "max_new_tokens_limit",
            "sliding_window_size",
            "scheduler_stage_metrics",
        ):
            setattr(self, name, None)
        self.kv_shard_widening = 1
        self.spec_algorithm = SpeculativeAlgorithm.NONE
        self.disaggregation_mode = DisaggregationMode.NULL
        self.enable_priority_scheduling = settings.get("enable_priority_scheduling", False)
        self.schedule_low_priority_values_first = True
        threshold = settings.get("priority_scheduling_preemption_threshold", 0)
        self.priority_scheduling_preemption_threshold = threshold
        self.processed_tokens_counter = 0
        self.forward_ct = 0
        self.waiting_queue: list[Req] = []
        self.running_batch = ScheduleBatch(reqs=[], batch_is_full=False)
        self.result_queue: deque[Any] = deque()
        self.tp_worker = SimpleNamespace(
            model_runner=SimpleNamespace(attn_backend=None, prefill_aware_swa=False)
        )
        self.grammar_manager = Nothing()
        self.beam_coordinator = SimpleNamespace(
            pending_member_rows=lambda _: 0, commit_decode=lambda _: set()
        )
        self.dp_attn_adapter = self.ngram_embedding_manager = Same()
        self.load_inquirer = Nothing()
        self.metrics_reporter = Metrics()
        chunked = settings["chunked_prefill_size"]
        self.chunked_prefill_size = chunked if chunked > 0 else None
        self.is_mixed_chunk = chunked > 0 and settings["enable_mixed_chunk"]
        self.prefill_decode_interval = settings.get("prefill_decode_interval", 0)
        self.prefill_decode_interval_min_bs = settings.get("prefill_decode_interval_min_bs", 0)
        self._prefill_decode_interval_remaining = 0
        self.chunked_req = self._pending_chunked_abort_req = None
        self.init_schedule_policy()
        self.enable_skip_finishing_decode = self.enable_overlap
        self.batch_result_processor = SchedulerBatchResultProcessor(
            is_generation=True,
            disaggregation_mode=self.disaggregation_mode,
            enable_overlap=self.enable_overlap,
            enable_overlap_mlx=False,
            model_config=self.model_config,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            tree_cache=self.tree_cache,
            hisparse_coordinator=None,
            req_to_token_pool=self.req_to_token_pool,
            decode_offload_manager=None,
            metrics_collector=None,
            metrics_reporter=self.metrics_reporter,
            draft_worker=None,
            model_worker=None,
            logprob_result_processor=None,
            output_streamer=Nothing(),
            beam_coordinator=self.beam_coordinator,
            abort_request=Nothing(),
        )

    def enqueue(self, request: Req) -> None:
        """Queue a request as the engine's own handler does."""
        self._add_request_to_queue(request)


class Metrics(Nothing):
    """Counts that the processor adds to; nobody reads them."""

    num_generated_tokens = 0
    forward_ct_decode = 0
    num_retracted_reqs = 0
    enable_metrics = False


def published(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that the engine reads from its published configuration."""
    names = (
        "schedule_policy",
        "chunked_prefill_size",
        "enable_mixed_chunk",
        "schedule_conservativeness",
        "radix_eviction_policy",
        "disable_radix_cache",
        "page_size",
    )
    optional = (
        "enable_priority_scheduling",
        "disable_priority_preemption",
        "retraction_policy",
        "prefill_decode_interval",
        "prefill_decode_interval_min_bs",
    )
    return {name: settings[name] for name in (*names, *optional) if name in settings} | {
        "schedule_low_priority_values_first": "enable_priority_scheduling" in settings,
        "pp_max_micro_batch_size": settings["max_running_requests"],
        "attention_backend": "torch_native",
        "device": "cpu",
    }
