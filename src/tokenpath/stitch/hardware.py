"""Device names to entries of the hardware catalogue."""

from __future__ import annotations

import pyarrow as pa

from tokenpath.capture.capture import Capture
from tokenpath.core.hardware import find_hardware


def resolve_devices(capture: Capture) -> Capture:
    """The capture with `device.hardware` and `device.resolved_by` filled where the catalogue knows."""
    device = capture["device"]
    if device.num_rows == 0:
        return capture
    keys: list[str | None] = []
    how: list[str | None] = []
    for row in device.select(["name", "memory_bytes", "num_sms"]).to_pylist():
        hardware = find_hardware(
            row["name"] or "", memory_bytes=row["memory_bytes"], num_sms=row["num_sms"]
        )
        keys.append(None if hardware is None else hardware.key)
        how.append(None if hardware is None else hardware.resolved_by)
    for name, values in (("hardware", keys), ("resolved_by", how)):
        position = device.schema.get_field_index(name)
        column = pa.array(values, pa.string()).dictionary_encode()
        device = device.set_column(position, device.schema.field(name), column)
    return capture.replace({"device": device})
