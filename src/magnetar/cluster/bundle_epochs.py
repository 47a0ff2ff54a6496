"""The epochs of bundles, which only grow, whether several brokers own them or one owns everything.

    /magnetar/bundle-epochs                          the epoch in which one broker owned all, after several
    /magnetar/bundle-epochs/TENANT/NAMESPACE/RANGE   the epoch of a bundle's last owner

Clients ignore an epoch that is older than one they know, so a broker that is the sole owner after several others begins
above all of their epochs, and its successors begin above that.
"""

from __future__ import annotations

from magnetar.metadata import ANY, MetadataStore, Put
from magnetar.metadata.ops import Stored

EPOCHS = "/magnetar/bundle-epochs"


async def highest_of_one(store: MetadataStore) -> int:
    """Return the last epoch in which one broker owned everything; 0 if none ever did after several others."""
    return _number(await store.get(EPOCHS))


async def outgrown(store: MetadataStore) -> int:
    """Store and return the epoch of a broker that owns everything; 0, not stored, if no other broker owned a part."""
    tree = await store.get_tree(EPOCHS)
    before = await store.get(EPOCHS)
    if before is None and not tree:
        return 0
    epoch = max(map(_number, (before, *tree.values()))) + 1
    await store.commit([Put(EPOCHS, b"%d" % epoch, ANY)])
    return epoch


def _number(stored: Stored | None) -> int:
    return int(stored.value or 0) if stored is not None else 0  # a parent that came into being is empty
