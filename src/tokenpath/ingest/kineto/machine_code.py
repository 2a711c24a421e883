"""The compiled scanner as finished machine code, kept on disk.

Importing numba and looking up its cached functions takes longer than scanning 100 MB. So the code is
compiled once for a machine, written as an object file, and loaded without numba from then on. The file
is named by a hash of all that it depends on, so a changed source or processor means another file. Where
nothing can be written, the code is compiled anew in each process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llvmlite import binding

Entry = Callable[[int, int, int, int, int], int]
"""`compiled.entry.run`."""

_FOLDER = Path(__file__).parent
_SOURCES = (
    "compiled/*.py",
    "columns.py",
    "state.py",
    "categories.py",
    "losses.py",
    "machine_code.py",
)
_SYMBOL = "tokenpath_scan"
_FROM_OUTSIDE = ("llvm.", "memset", "memcpy", "memmove")
"""What the code may call; all of it is in every process."""
_DIGEST_BYTES = 32
_NUM_ARGUMENTS = 5

# numba's calling convention (numba/core/callconv.py, CPUCallConv): status returned, result written to
# the first pointer, exceptions to the second; the scanner raises none.
_NATIVE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_void_p),
    *[ctypes.c_int64] * _NUM_ARGUMENTS,
)


@functools.cache
def load_entry() -> Entry:
    """The entry point of the compiled scanner, from the cache or freshly compiled."""
    path = cache_folder() / f"scan-{_key()}.o"
    code = _read(path)
    if code is None:
        code = _compile()
        if code is None:
            return _jitted()
        _write(path, code)
    return _link(code)


def cache_folder() -> Path:
    """Where machine code is kept: TOKENPATH_CACHE_DIR, else the user's cache folder."""
    named = os.environ.get("TOKENPATH_CACHE_DIR")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenpath"


def _key() -> str:
    import llvmlite
    from llvmlite import binding

    digest = hashlib.sha256()
    for pattern in _SOURCES:
        for source in sorted(_FOLDER.glob(pattern)):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    for part in (llvmlite.__version__, binding.get_process_triple(), _processor(), _features()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def _processor() -> str:
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def _features() -> str:
    from llvmlite import binding

    return str(binding.get_host_cpu_features().flatten())


def _machine() -> binding.TargetMachine:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(binding.get_process_triple())
    return target.create_target_machine(
        cpu=_processor(), features=_features(), opt=3, jit=True, reloc="pic", codemodel="jitdefault"
    )


def _compile() -> bytes | None:
    """The object file; None if this numba gives no code that stands on its own."""
    from llvmlite import binding

    dispatcher = _dispatcher()
    signature = dispatcher.signatures[0]
    overload = dispatcher.overloads[signature]
    module = binding.parse_assembly(overload.library.get_llvm_str())
    native = overload.fndesc.llvm_func_name
    for function in module.functions:
        if not function.is_declaration:
            function.linkage = "external" if function.name == native else "internal"
    module.get_function(native).name = _SYMBOL
    builder = binding.create_pass_builder(_machine(), binding.create_pipeline_tuning_options())
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
    if not _stands_alone(module.functions):
        return None
    return bytes(_machine().emit_object(module))


def _stands_alone(functions: Iterable[Any]) -> bool:
    return all(not f.is_declaration or f.name.startswith(_FROM_OUTSIDE) for f in functions)


def _dispatcher() -> Any:  # noqa: ANN401 - a numba dispatcher
    from numba import int64

    from tokenpath.ingest.kineto.compiled.entry import run

    run.compile((int64,) * _NUM_ARGUMENTS)
    return run


def _jitted() -> Entry:
    run = _dispatcher()
    return lambda state, op, a, b, c: int(run(state, op, a, b, c))


def _link(code: bytes) -> Entry:
    from llvmlite import binding

    machine = _machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    native = _NATIVE(engine.get_function_address(_SYMBOL))
    run = functools.partial(_call, native)
    # The code lives as long as the engine does.
    run.engine = engine  # type: ignore[attr-defined]
    return run


def _call(native: Any, state: int, op: int, a: int, b: int, c: int) -> int:  # noqa: ANN401
    result, exception = ctypes.c_int64(), ctypes.c_void_p()
    native(ctypes.byref(result), ctypes.byref(exception), state, op, a, b, c)
    return result.value


def _read(path: Path) -> bytes | None:
    """A kept object file, if it is whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    code = data[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == data[:_DIGEST_BYTES] else None


def _write(path: Path, code: bytes) -> None:
    """Keep an object file, if that is possible: whole or not at all."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(code).digest() + code)
        Path(file.name).replace(path)
