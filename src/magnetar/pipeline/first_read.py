"""The first read on a machine: what decodes records is compiled there, which takes a minute or more and is kept."""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module

from magnetar.records.kept_code import is_kept, note_kept

READERS = ("magnetar.records.kernels.arrow", "magnetar.pipeline.frames")
_log = logging.getLogger("magnetar.pipeline")


@cache
def prepare() -> None:
    """Load what decodes records; where it has to be compiled for this machine, say so before that begins."""
    if is_kept(READERS):
        return
    _log.warning(
        "what decodes records is compiled for this machine now, once: a minute on a quiet one, several on a busy one"
    )
    for each in READERS:
        import_module(each)
    note_kept(READERS)
