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
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenpath.capture.machine_code import cache_folder

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
        library, native = _compile()
        code = _standing_alone(library, native)
        if code is None:
            return _bind(library.get_pointer_to_function(native), library)
        _write(path, code)
    return _link(code)


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


def _compile() -> tuple[Any, str]:
    """Numba's library of the scanner, and the name of the entry point in it."""
    from numba.core import config as settings

    config: Any = settings

    level = config.OPT
    # numba would optimise each function on its own and again in each caller; once at the end is enough.
    config.OPT = type(level)(0)
    try:
        from tokenpath.ingest.kineto.compiled.entry import run
    finally:
        config.OPT = level
    overload = run.overloads[run.signatures[0]]
    return overload.library, overload.fndesc.llvm_func_name


def _standing_alone(library: Any, native: str) -> bytes | None:
    """The object file; None if the code calls what not every process has."""
    from llvmlite import binding

    module = binding.parse_assembly(library.get_llvm_str())
    for function in module.functions:
        if not function.is_declaration:
            function.linkage = "external" if function.name == native else "internal"
    module.get_function(native).name = _SYMBOL
    machine = _machine()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    called = [f.name for f in module.functions if f.is_declaration]
    if not all(name.startswith(_FROM_OUTSIDE) for name in called):
        return None
    return bytes(machine.emit_object(module))


def _link(code: bytes) -> Entry:
    from llvmlite import binding

    machine = _machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return _bind(engine.get_function_address(_SYMBOL), engine)


def _bind(address: int, owner: object) -> Entry:
    """A function at an address; the code lives as long as its owner does."""
    run = functools.partial(_call, _NATIVE(address))
    run.owner = owner  # type: ignore[attr-defined]
    return run


def _call(native: Any, state: int, op: int, a: int, b: int, c: int) -> int:
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
