"""Labels of series: hosts as pseudonyms, machine ids and secrets taken out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tokenpath.core.redact import MASK, Redactor
from tokenpath.ingest.otlp.attributes import SECRET_KEY

MAX_VALUE = 1024
"""Longer values of labels are cut."""

_HOST = re.compile(
    r"(?:exported_)?(?:instance|host|hostname|node|nodename|node_name|server|endpoint_url|address"
    r"|kubernetes_node|k8s_node_name|host_name|pod_ip|model_server_pod|pod|pod_name)$",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"uuid$|gpu_uuid$|serial$|pci_bus_id$|machine_id$|host_id$|container_id$|user|end_user",
    re.IGNORECASE,
)
"""Identify a machine or a person; the index of a GPU stays."""
_HOST_WITH_PORT = re.compile(r"(?P<host>[^:/\s]{4,253})(?P<port>:\d{1,5})?")


def cleaned(labels: Mapping[str, str], redactor: Redactor) -> dict[str, str]:
    """The labels that may be kept, with pseudonyms for hosts."""
    kept = {}
    for key, value in labels.items():
        if _MACHINE.match(key):
            continue
        value = value[:MAX_VALUE]
        if SECRET_KEY.search(key):
            value = MASK
        elif _HOST.fullmatch(key):
            value = _pseudonym(value, redactor)
        kept[key] = value
    return kept


def as_json(labels: Mapping[str, str]) -> str | None:
    """Keys sorted; None for no labels."""
    if not labels:
        return None
    return json.dumps(labels, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _pseudonym(value: str, redactor: Redactor) -> str:
    if redactor.keep_hosts:
        return value
    found = _HOST_WITH_PORT.fullmatch(value)
    if found is None:
        return MASK if value else value
    is_address = re.fullmatch(r"[\d.]+|localhost", found["host"]) is not None
    host = found["host"] if is_address else redactor.host(found["host"])
    return host + (found["port"] or "")
