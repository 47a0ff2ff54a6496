"""Whether bookies were set up where a broker's settings say, looked at before a JVM is begun for them."""

from __future__ import annotations

from magnetar.ledger.errors import StorageNotReady
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity

_DEFAULT = "/ledgers"
"""Where BookKeeper's own tools set bookies up unless they are told otherwise."""
_SETTING = "bookkeeperMetadataServiceUri"


async def check_formatted(
    hosts: str, root: str, security: ZooKeeperSecurity, session_s: float, *, is_named: bool
) -> None:
    """Raise `StorageNotReady` unless bookies are known below ``root``, which has no ``/ledgers`` at its end.

    ``is_named``: a setting names the place; otherwise it is the one of the metadata.
    """
    from magnetar.metadata.zookeeper import ZooKeeperStore

    place = f"{root}{_DEFAULT}"
    store = await ZooKeeperStore.open(hosts, session_seconds=session_s, security=security)
    try:
        here, by_default = await store.get_many([f"{place}/available", f"{_DEFAULT}/available"])
    finally:
        await store.close()
    if here is not None:
        return
    where = f"zk://{hosts}{place}"
    words = f"no bookies were set up at {where}: there is no {place}/available" + (
        "" if is_named else f", which is where they are looked for without {_SETTING}"
    )
    uri = f"zk+hierarchical://{hosts.replace(',', ';')}{_DEFAULT}"
    if by_default is not None:
        raise StorageNotReady(words, f"They are at {_DEFAULT} there: set {_SETTING}={uri}.")
    raise StorageNotReady(
        words,
        f"Set the bookies up ('bookkeeper shell initnewcluster', with metadataServiceUri={uri} in their configuration) "
        f"and name the same place by {_SETTING}; docs/cluster.md shows how.",
    )
