"""The epochs of bundles, which only grow, whether several have them or one alone has everything.

    /magnetar/bundle-epochs                          the epoch in which one broker had all, after others
    /magnetar/bundle-epochs/TENANT/NAMESPACE/RANGE   the epoch of a bundle's last owner

Clients do not believe an epoch that is older than one they know, so a broker that has alone what several had before
begins above all of theirs, and whoever comes after it above that.
"""

from __future__ import annotations

from magnetar.metadata import ANY, MetadataStore, Put
from magnetar.metadata.ops import Stored

EPOCHS = "/magnetar/bundle-epochs"


async def highest_of_one(store: MetadataStore) -> int:
    """Return the epoch in which one broker had everything last; 0 if none ever had after others."""
    return _number(await store.get(EPOCHS))


async def outgrown(store: MetadataStore) -> int:
    """Return the epoch for a broker that has everything, and keep it; 0, and nothing is kept, if nobody had a part."""
    tree = await store.get_tree(EPOCHS)
    before = await store.get(EPOCHS)
    if before is None and not tree:
        return 0
    epoch = max(map(_number, (before, *tree.values()))) + 1
    await store.commit([Put(EPOCHS, b"%d" % epoch, ANY)])
    return epoch


def _number(stored: Stored | None) -> int:
    return int(stored.value or 0) if stored is not None else 0  # a parent that came into being is empty
