"""Compiled loops as finished machine code, kept on disk.

Importing numba and looking up its cached functions takes over half a second, longer than most loops run.
So a loop is compiled once for a machine, written as an object file, and loaded without numba from then
on. The file is named by a hash of all that it depends on, so a changed source, library or processor means
another file. Where nothing can be written, the code is compiled anew in each process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llvmlite import binding

Argument = int | NDArray[np.generic]
"""What a loop may take: integers, and C-contiguous arrays."""
Loop = Callable[..., object]

_SYMBOL = "tokenpath_loop"
_FROM_OUTSIDE = ("llvm.", "memset", "memcpy", "memmove")
"""What the code may call; all of it is in every process."""
_NO_DESTRUCTOR = "define void @NRT_MemInfo_call_dtor(ptr %0) { ret void }"
"""numba counts references to arrays; ours come without an owner, so none is ever destroyed."""
_DIGEST_BYTES = 32


def cache_folder() -> Path:
    """Where machine code is kept: TOKENPATH_CACHE_DIR, else the user's cache folder."""
    named = os.environ.get("TOKENPATH_CACHE_DIR")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tokenpath"


def signature_of(arguments: Sequence[Argument]) -> tuple[str, ...]:
    """The types of a loop's arguments: `int64`, or `int32:1` for an array of one dimension."""
    return tuple(
        f"{argument.dtype.name}:{argument.ndim}" if isinstance(argument, np.ndarray) else "int64"
        for argument in arguments
    )


def load(function: Callable[..., object], signature: tuple[str, ...]) -> Loop:
    """The loop as machine code, from the cache or freshly compiled."""
    path = cache_folder() / f"{function.__name__.strip('_')}-{_key(function, signature)}.o"
    code = _read(path)
    if code is None:
        dispatcher = _compiled(function, signature)
        code = _object_file(dispatcher)
        if code is None:
            return dispatcher
        _write(path, code)
    return _link(code, signature)


def _key(function: Callable[..., object], signature: tuple[str, ...]) -> str:
    import llvmlite
    from llvmlite import binding

    digest = hashlib.sha256()
    source = Path(inspect.getfile(function)).read_text(encoding="utf-8")
    processor, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    for part in (
        source,
        Path(__file__).read_text(encoding="utf-8"),
        function.__qualname__,
        " ".join(signature),
        llvmlite.__version__,
        binding.get_process_triple(),
        processor,
        features,
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


def _machine() -> binding.TargetMachine:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_triple(binding.get_process_triple())
    return target.create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
        reloc="pic",
        codemodel="jitdefault",
    )


def _compiled(function: Callable[..., object], signature: tuple[str, ...]) -> Loop:
    import numba

    types = []
    for name in signature:
        scalar, _, dimensions = name.partition(":")
        kind = getattr(numba, scalar)
        types.append(numba.types.Array(kind, int(dimensions), "C") if dimensions else kind)
    dispatcher = numba.njit(nogil=True)(function)
    dispatcher.compile(tuple(types))
    compiled: Loop = dispatcher
    return compiled


def _object_file(dispatcher: Loop) -> bytes | None:
    """The object file; None if this numba gives no code that stands on its own."""
    from llvmlite import binding

    overload = next(iter(dispatcher.overloads.values()))  # type: ignore[attr-defined]
    module = binding.parse_assembly(overload.library.get_llvm_str())
    native = overload.fndesc.llvm_func_name
    with contextlib.suppress(RuntimeError):
        module.link_in(binding.parse_assembly(_NO_DESTRUCTOR))
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


def _stands_alone(functions: Iterable[binding.ValueRef]) -> bool:
    return all(not f.is_declaration or f.name.startswith(_FROM_OUTSIDE) for f in functions)


def _link(code: bytes, signature: tuple[str, ...]) -> Loop:
    from llvmlite import binding

    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    # numba's calling convention (numba/core/callconv.py, CPUCallConv): status returned, result written
    # to the first pointer, exceptions to the second; arrays flattened (numba/core/datamodel, ArrayModel).
    native = ctypes.CFUNCTYPE(
        ctypes.c_int32,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_void_p),
        *(kind for name in signature for kind in _native_types(name)),
    )(engine.get_function_address(_SYMBOL))
    # The code lives as long as the engine does, so the loop holds on to it.
    return functools.partial(_call, engine, native, signature)


def _native_types(name: str) -> list[type[ctypes.c_int64 | ctypes.c_void_p]]:
    if ":" not in name:
        return [ctypes.c_int64]
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return [pointer, pointer, integer, integer, pointer, *[integer] * (2 * int(name[-1]))]


def _call(
    engine: object,  # noqa: ARG001
    native: Callable[..., int],
    signature: tuple[str, ...],
    *arguments: Argument,
) -> int:
    """Run the code; TypeError for arguments of other types than it was compiled for."""
    if signature_of(arguments) != signature:
        raise TypeError(f"the loop takes {signature}, not {signature_of(arguments)}")
    flat: list[int | None] = []
    for argument in arguments:
        if not isinstance(argument, np.ndarray):
            flat.append(argument)
            continue
        if not argument.flags.c_contiguous:
            raise TypeError("the loop takes C-contiguous arrays")
        flat += [None, None, argument.size, argument.itemsize, argument.ctypes.data]
        flat += [*argument.shape, *argument.strides]
    result, exception = ctypes.c_int64(), ctypes.c_void_p()
    status = native(ctypes.byref(result), ctypes.byref(exception), *flat)
    if status != 0:
        raise RuntimeError(f"a compiled loop ended with status {status}")
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
