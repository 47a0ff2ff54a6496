"""CRC32C, from the package ``crc32c`` but without its start-up.

That package reads its own version through ``importlib.metadata`` and imports a command line: 20 to 30 ms that every
broker and every command would pay. Only its C extension is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _extension() -> Callable[..., int] | None:
    """Return the extension's function, or None where the package is laid out in another way."""
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", list(places or ()))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., int] | None = getattr(module, "crc32c", None)
    return found


def _from_package() -> Callable[..., int]:
    from crc32c import crc32c as function

    return function  # type: ignore[no-any-return]


crc32c = _extension() or _from_package()
