"""One id for a request, whatever the engine has put around it.

vLLM turns a client's `R` into `cmpl-R` (`chatcmpl-R` for chat) at its API server, `cmpl-R-0` for the
first answer to its first prompt, and `cmpl-R-0-1a2b3c4d` within the engine (vllm/entrypoints/openai/
serving_completion.py and vllm/v1/engine/input_processor.py of 0.32). The number counts prompts or answers.
"""

from __future__ import annotations

import re

_PREFIX = re.compile(r"(?:chatcmpl|cmpl|embd|pooling|score|rerank|classify)-")
_SUFFIX = re.compile(r"-(?P<choice>\d{1,4})(?:-[0-9a-f]{8})?$", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_ENGINE_SUFFIX = re.compile(r"-[0-9a-f]{8}$", re.ASCII)


def plain_request_id(text: str) -> tuple[str, int | None]:
    """The id without what an engine has added, and the number of the answer if the id has one.

    Only an id that begins as an engine's does is cut: a client's own `run-7` stays as it is. The number
    of a chat id (`chatcmpl-R-1a2b3c4d` has none) is None.
    """
    prefix = _PREFIX.match(text)
    if prefix is None:
        return text, None
    rest = text[prefix.end() :]
    # A random id of the API server's own is 32 hexadecimal digits or a UUID; its last group is no suffix.
    if _UUID.fullmatch(rest) is not None:
        return rest, None
    suffix = _SUFFIX.search(rest)
    if suffix is not None and suffix.start() > 0:
        return rest[: suffix.start()], int(suffix["choice"])
    engine = _ENGINE_SUFFIX.search(rest)
    if engine is not None and engine.start() > 0:
        return rest[: engine.start()], None
    return rest or text, None
