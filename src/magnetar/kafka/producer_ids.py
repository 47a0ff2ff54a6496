"""Producer ids: each is given once, ever. They are taken from the metadata store in blocks, as Kafka does."""

from __future__ import annotations

from magnetar.metadata import MetadataStore

_PATH = "/magnetar/producer-ids"
_BLOCK = 1000


class ProducerIds:
    """Gives producer ids; those of a block begun before a crash are skipped."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store.blocking
        self._next = self._limit = 0

    def take(self) -> int:
        """Give an id that nobody had before."""
        if self._next == self._limit:
            stored = self._store.get(_PATH)
            self._next = int(stored.value) if stored else 0
            self._store.put(_PATH, str(self._next + _BLOCK).encode(), stored.version if stored else -1)
            self._limit = self._next + _BLOCK
        self._next += 1
        return self._next - 1
