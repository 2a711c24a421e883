"""Compiled loops as finished machine code, kept on disk.

Importing numba and looking up its cached functions takes over half a second, longer than most loops run.
So a loop is compiled once for a machine, written as an object file, and loaded without numba from then
on. The file is named by a hash of all that it depends on, so a changed source, library or processor means
another file. Where nothing can be written, the code is compiled anew in each process; so it is where
others could have written it, since whoever writes there decides what runs here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import inspect
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llvmlite import binding
    from numba.core.types import Type

Argument = int | NDArray[np.generic]
"""What a loop may take: integers, and C-contiguous arrays."""

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


@dataclass(frozen=True)
class Library:
    """Code that numba has compiled into this process."""

    llvm: str
    """Its text in LLVM's language."""
    native_name: str
    """The function in it that is wanted, by numba's calling convention for native code."""
    address: int
    """Where that function lies."""
    owner: object
    """What keeps the code alive."""
    is_one_piece: bool = False
    """Whether each function in it is to become part of its callers."""


def load(
    name: str,
    signature: tuple[str, ...],
    sources: Sequence[Path],
    compile_now: Callable[[], Library],
) -> MachineCode:
    """Machine code from the cache, or freshly compiled and kept there.

    `sources` are the files that the code is made of; a change of any of them is another code.
    """
    path = _path_of(name, signature, sources)
    code = _read(path)
    if code is None:
        library = compile_now()
        code = _object_file(library)
        if code is None:
            return MachineCode(library.address, library.owner, signature)
        _write(path, code)
    return _link(code, signature)


def is_kept(name: str, signature: tuple[str, ...], sources: Sequence[Path]) -> bool:
    """Whether `load` would find finished code, and not have to compile."""
    return _path_of(name, signature, sources).exists()


def _path_of(name: str, signature: tuple[str, ...], sources: Sequence[Path]) -> Path:
    return cache_folder() / f"{name}-{_key(signature, sources)}.o"


def load_loop(function: Callable[..., object], signature: tuple[str, ...]) -> MachineCode:
    """A Python function that is valid as numba nopython code, as machine code."""
    return load(
        function.__name__.strip("_"),
        signature,
        [Path(inspect.getfile(function))],
        lambda: compile_function(function, signature),
    )


def compile_function(function: Callable[..., object], signature: tuple[str, ...]) -> Library:
    """Compile a function with numba for arguments of these types."""
    import numba

    dispatcher = numba.njit(nogil=True)(function)
    dispatcher.compile(tuple(numba_type(name) for name in signature))
    return library_of(cast("Overload", next(iter(dispatcher.overloads.values()))))


def numba_type(name: str) -> Type:
    """Numba's type for a name as in `signature_of`."""
    import numba

    scalar, _, dimensions = name.partition(":")
    kind = getattr(numba, scalar)
    return numba.types.Array(kind, int(dimensions), "C") if dimensions else kind


class _CodeLibrary(Protocol):
    def get_llvm_str(self) -> str: ...

    def get_pointer_to_function(self, name: str) -> int: ...


class _Description(Protocol):
    llvm_func_name: str


class Overload(Protocol):
    """What numba holds of one compiled function (numba/core/compiler.py, CompileResult)."""

    library: _CodeLibrary
    """Its code."""
    fndesc: _Description
    """How it is called there."""


def library_of(overload: Overload) -> Library:
    """The code of one compiled function."""
    library, native = overload.library, overload.fndesc.llvm_func_name
    return Library(library.get_llvm_str(), native, library.get_pointer_to_function(native), library)


def _key(signature: tuple[str, ...], sources: Sequence[Path]) -> str:
    digest = hashlib.sha256(_here())
    digest.update(" ".join(signature).encode() + b"\0")
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


@functools.cache
def _here() -> bytes:
    """What all code of this process depends on: this file, the library and the processor."""
    import llvmlite
    from llvmlite import binding

    parts = (
        Path(__file__).read_text(encoding="utf-8"),
        llvmlite.__version__,
        binding.get_process_triple(),
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    )
    return "\0".join(parts).encode()


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


def _object_file(library: Library) -> bytes | None:
    """The optimised object file; None if the code calls what not every process has."""
    from llvmlite import binding

    module = binding.parse_assembly(library.llvm)
    with contextlib.suppress(RuntimeError):
        module.link_in(binding.parse_assembly(_NO_DESTRUCTOR))
    for function in module.functions:
        if not function.is_declaration:
            is_wanted = function.name == library.native_name
            function.linkage = "external" if is_wanted else "internal"
            if library.is_one_piece and not is_wanted:
                function.add_function_attribute("alwaysinline")
    module.get_function(library.native_name).name = _SYMBOL
    machine = _machine()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    called = [function.name for function in module.functions if function.is_declaration]
    if not all(name.startswith(_FROM_OUTSIDE) for name in called):
        return None
    return bytes(machine.emit_object(module))


def _link(code: bytes, signature: tuple[str, ...]) -> MachineCode:
    from llvmlite import binding

    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return MachineCode(engine.get_function_address(_SYMBOL), engine, signature)


class MachineCode:
    """A compiled function; a call runs without the GIL."""

    def __init__(self, address: int, owner: object, signature: tuple[str, ...]) -> None:
        """`owner` keeps the code alive."""
        self._owner = owner
        self._signature = signature
        # numba's calling convention (numba/core/callconv.py, CPUCallConv): status returned, result
        # written to the first pointer, exceptions to the second; arrays flattened
        # (numba/core/datamodel, ArrayModel).
        self._native = ctypes.CFUNCTYPE(
            ctypes.c_int32,
            ctypes.POINTER(ctypes.c_int64),
            ctypes.POINTER(ctypes.c_void_p),
            *(kind for name in self._signature for kind in _native_types(name)),
        )(address)

    def __call__(self, *arguments: Argument) -> int:
        """Run the code; TypeError for arguments of other types than it was compiled for."""
        if signature_of(arguments) != self._signature:
            raise TypeError(f"the loop takes {self._signature}, not {signature_of(arguments)}")
        flat: list[int | None] = []
        for argument in arguments:
            flat += _flattened(argument) if isinstance(argument, np.ndarray) else [argument]
        return self._run(flat)

    def bind(self, *arrays: NDArray[np.generic]) -> Callable[..., int]:
        """The function with its last arguments fixed; what remains are integers.

        For loops called so often that taking arrays apart would cost more than the loop. The arrays are
        kept alive, and must stay the arrays that they are (no `resize`).
        """
        num_integers = len(self._signature) - len(arrays)
        wanted = ("int64",) * num_integers + signature_of(arrays)
        if wanted != self._signature:
            raise TypeError(f"the loop takes {self._signature}, not {wanted}")
        flat = [part for array in arrays for part in _flattened(array)]

        def run(*integers: int) -> int:
            if len(integers) != num_integers:
                raise TypeError(f"the loop takes {num_integers} integers, not {len(integers)}")
            return self._run([*integers, *flat])

        run.__dict__["arrays"] = arrays
        return run

    def _run(self, flat: list[int | None]) -> int:
        result, exception = ctypes.c_int64(), ctypes.c_void_p()
        status = self._native(ctypes.byref(result), ctypes.byref(exception), *flat)
        if status != 0:
            raise RuntimeError(f"a compiled loop ended with status {status}")
        return result.value


def _flattened(array: NDArray[np.generic]) -> list[int | None]:
    """An array as numba takes it: parent, meminfo, size, item size, data, shape, strides."""
    if not array.flags.c_contiguous:
        raise TypeError("the loop takes C-contiguous arrays")
    head = [None, None, array.size, array.itemsize, array.ctypes.data]
    return [*head, *array.shape, *array.strides]


def _native_types(name: str) -> list[type[ctypes.c_int64 | ctypes.c_void_p]]:
    if ":" not in name:
        return [ctypes.c_int64]
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return [pointer, pointer, integer, integer, pointer, *[integer] * (2 * int(name[-1]))]


def _read(path: Path) -> bytes | None:
    """A kept object file, if it is whole and nobody else can have written it."""
    try:
        with path.open("rb") as file:
            if not (_is_ours(os.fstat(file.fileno())) and _is_ours(path.parent.stat())):
                return None
            data = file.read()
    except OSError:
        return None
    code = data[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == data[:_DIGEST_BYTES] else None


def _is_ours(status: os.stat_result) -> bool:
    """Whether only this user, or the administrator, may change a file or a folder."""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, code: bytes) -> None:
    """Keep an object file, if that is possible: whole or not at all."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(code).digest() + code)
        Path(file.name).replace(path)
