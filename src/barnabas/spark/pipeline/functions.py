"""Functions of a pipeline, `module:function`: their modules are beside the file or on Python's path."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barnabas.errors import InvalidConfig


def is_findable(reference: str, folder: Path) -> bool:
    """Whether there is such a module, as far as that can be said without running anybody's code."""
    top = reference.partition(":")[0].partition(".")[0]
    if (folder / f"{top}.py").exists() or (folder / top).is_dir():
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def load_function(reference: str, folder: Path) -> Callable[..., Any]:
    """The function. A module beside the file goes to Spark's workers by value, because they cannot import it."""
    module_name, _, name = reference.partition(":")
    _look_in(folder, module_name.partition(".")[0])
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidConfig(
            f"{reference}: the module cannot be imported: {type(error).__name__}: {error}"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        known = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise InvalidConfig(
            f"{reference}: {module.__file__} has no function {name}; it has {', '.join(known) or 'none'}"
        )
    top = sys.modules[module_name.partition(".")[0]]
    if module.__file__ is not None and Path(module.__file__).is_relative_to(folder.absolute()):
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(top)  # type: ignore[no-untyped-call]
        _folders[top.__name__] = folder.absolute()
    return function  # type: ignore[no-any-return]


# The locations of modules that were loaded from beside a pipeline's file.
_folders: dict[str, Path] = {}


def _look_in(folder: Path, top: str) -> None:
    """Modules beside the file come first; a module of the same name beside another file is a different one."""
    path = str(folder.absolute())
    if path in sys.path:
        sys.path.remove(path)
    sys.path.insert(0, path)
    importlib.invalidate_caches()
    if _folders.get(top) not in (None, folder.absolute()):
        for name in [each for each in sys.modules if each == top or each.startswith(f"{top}.")]:
            del sys.modules[name]
        del _folders[top]
