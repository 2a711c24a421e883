"""What may be kept of an attribute: by its key alone, so that it costs nothing a span."""

from __future__ import annotations

import re
from enum import Enum

_USER_TEXT = re.compile(
    r"gen_ai\.(?:prompt|completion|content|choice|input|output|system_instructions|tool\.definitions"
    r"|tool\.call\.(?:arguments|result)|evaluation\.explanation|retrieval)(?:\.|$)"
    r"|llm\.(?:prompts?|completions?|input_messages|output_messages|invocation_parameters"
    r"|prompt_template|tools|function_call)(?:\.|$)"
    r"|(?:input|output)\.value$|(?:input|output)$|traceloop\.entity\.(?:input|output)$"
    r"|langfuse\..*(?:input|output|metadata)|(?:http\.)?(?:request|response)\.body"
    r"|db\.(?:statement|query)|exception\.(?:message|stacktrace)$|messaging\..*body|rpc\..*\.metadata"
    r"|(?:prompt|completion|messages|prompt_token_ids|output_token_ids|token_ids)$"
)
"""Prompts, answers and token ids, as the GenAI conventions, OpenLLMetry, OpenInference and Langfuse name
them (https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/)."""
_MACHINE = re.compile(
    r"process\.(?:command|command_args|command_line|executable\.path|owner|environment_variable.*)$"
    r"|service\.instance\.id$|host\.(?:id|mac|ip)$|host_id$|container\.id$|k8s\..*\.uid$"
    r"|cloud\.(?:account|resource)[._]id$|(?:end)?user\.|user_agent|(?:network\.peer|client)\.address$"
    r"|url\.(?:full|query)$|http\.(?:url|target|client_ip|user_agent)$|http\.(?:request|response)\.header\."
)
"""Command lines, people, machine ids and addresses with queries."""
_HOST = re.compile(
    r"host\.name$|(?:server|source|destination)\.address$|net\.(?:host|peer|sock\.peer|sock\.host)\.name$"
    r"|k8s\.(?:node|pod)\.name$|llm_d\.pd_proxy\.(?:prefill_target|decode\.target|prefill\.target)$"
    r"|peer\.hostname$|http\.host$"
)
SECRET_KEY = re.compile(
    r"passw(?:or)?d|passphrase|secret|api[_.-]?key|authorization|cookie|credential|access[_.-]?key"
    r"|private[_.-]?key|session[_.-]?id|(?:^|[._-])(?:auth[_.-]?)?token$",
    re.IGNORECASE,
)


class Keep(Enum):
    """What becomes of the values of a key."""

    ALL = "as they are"
    HOST = "as a pseudonym"
    MASKED = "masked"
    NOT_USER_TEXT = "prompt or answer text"
    NOT_MACHINE = "machine or person"


def keep(key: str) -> Keep:
    """What may be kept of the values of a key."""
    if _USER_TEXT.match(key):
        return Keep.NOT_USER_TEXT
    if _MACHINE.match(key):
        return Keep.NOT_MACHINE
    if _HOST.match(key):
        return Keep.HOST
    return Keep.MASKED if SECRET_KEY.search(key) else Keep.ALL


RESOURCE_SETTINGS = (
    "service.name",
    "service.version",
    "service.namespace",
    "deployment.environment.name",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
    "vllm.version",
)
"""Attributes of a resource that become settings; the others name processes and machines."""
