"""How much of the outputs still to come admission keeps room for."""

from __future__ import annotations

from tokenpath.engine.sglang.sequence import Sequence
from tokenpath.engine.sglang.settings import SglangSettings


class NewTokenRatio:
    """Starts high, falls with every decode step, jumps when requests had to be retracted."""

    def __init__(self, settings: SglangSettings) -> None:
        self._retract_decode_steps = settings.retract_decode_steps
        self.init = min(settings.init_new_token_ratio * settings.schedule_conservativeness, 1.0)
        self.min = min(self.init * settings.min_new_token_ratio_factor, 1.0)
        self.decay = (self.init - self.min) / settings.new_token_ratio_decay_steps
        self.current = self.init

    def decay_step(self) -> None:
        """A decode step without retraction."""
        self.current = max(self.current - self.decay, self.min)

    def after_retraction(self, kept: list[Sequence]) -> None:
        """As if the requests that stay would all end `retract_decode_steps` later."""
        emitted = sum(s.num_outputs for s in kept)
        asked = sum(s.max_new_tokens for s in kept)
        estimate = (emitted + self._retract_decode_steps * len(kept)) / (asked + 1)
        self.current = min(1.0, estimate)

    def reset(self) -> None:
        """Nothing is queued and nothing runs."""
        self.current = self.init
