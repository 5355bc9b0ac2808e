"""Empty modules in place of those that texts do not need, such as kernels and image code."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

__all__ = ["EmptyModule", "as_config", "folder", "leave_empty"]


class _Kind(type):
    """The type of classes of which any attribute can be asked."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls()


class Anything(metaclass=_Kind):
    """Stands in for whatever an empty module is asked for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class EmptyModule(types.ModuleType):
    """A module in which every name is a class without content."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("register"):  # makes decorators
            return lambda *_, **__: lambda decorated: decorated
        return _Kind(name, (Anything,), {}) if name[:1].isupper() else Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        del path, target
        if any(name == empty or name.startswith(f"{empty}.") for empty in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def leave_empty(*names: str) -> None:
    """Load these modules, and those inside them, as empty ones."""
    sys.meta_path.insert(0, _Finder(names))


def as_config(raw: dict[str, Any]) -> Any:
    """Return a checkpoint's config as an object, with its parts."""
    from transformers import PretrainedConfig

    parts = {
        name: as_config(value)
        for name, value in raw.items()
        if isinstance(value, dict) and name.endswith("_config") and "hidden_size" in value
    }
    left = {"quantization_config", "dtype", "torch_dtype"}
    config = PretrainedConfig()
    for name, value in ({"model_type": "llama"} | raw | parts).items():
        if name not in left:
            setattr(config, name, value)
    return config


def folder(config: dict[str, Any]) -> str:
    """Return a new folder that holds a config."""
    path = Path(tempfile.mkdtemp(prefix="proof-"))
    (path / "config.json").write_text(json.dumps(config), "utf-8")
    return str(path)
