"""Stands in for packages that an engine imports and the harness does not need (images, notebooks, weights).

Import this first. A stand-in has every attribute, does nothing, and is only made for the packages named at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar


def _no_magic(name: str) -> None:
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)


class Nothing:
    """Any value: it can be called, indexed, iterated and asked for attributes, and stays nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept anything."""

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        """As a decorator, the function itself; otherwise nothing."""
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else Nothing()

    def __getattr__(self, name: str) -> Any:
        """Nothing again."""
        _no_magic(name)
        return Nothing()

    def __getitem__(self, _: Any) -> Any:
        """Nothing again."""
        return self

    def __iter__(self) -> Iterator[Any]:
        """No elements."""
        return iter(())

    def __bool__(self) -> bool:
        """False."""
        return False

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        """As a base class it is `object`."""
        return (object,)


class _NothingType(type):
    def __getattr__(cls, name: str) -> Any:
        _no_magic(name)
        return Nothing()


class _AbsentModule(ModuleType):
    __path__: ClassVar[list[str]] = []
    __version__ = "0"

    def __getattr__(self, name: str) -> Any:
        _no_magic(name)
        return _NothingType(name, (), {}) if name[:1].isupper() else Nothing()


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, _: ModuleType) -> None:
        """Nothing to run."""


def stand_in_for(*names: str) -> None:
    """From now on, these packages can be imported even if they are not installed."""
    sys.meta_path.append(_Finder(set(names)))


ABSENT = ("IPython", "gguf", "orjson", "torchvision")
"""Packages that SGLang imports for images, notebooks and weights."""

stand_in_for(*ABSENT)
