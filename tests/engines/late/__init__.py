"""The late engine: the ledger engine port kept a second time, by nothing that the files engine is made of.

It lives in memory and behaves as a remote store would. Everything is answered late, and a seed says how late; where an
entry lies is known only when it is kept; an append may fail long after it was placed; and whoever opens a log takes it
from the engine that had it. All that outlives an engine is in its `LateStore`, which others may share.
"""

from tests.engines.late.engine import LateEngine
from tests.engines.late.store import LateStore
from tests.engines.late.weather import Weather

__all__ = ["LateEngine", "LateStore", "Weather"]
