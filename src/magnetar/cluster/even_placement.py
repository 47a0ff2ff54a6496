"""The intended owner of each bundle of a namespace: as evenly as possible, with as few moves as that takes.

Every broker computes this on its own from what all of them see: which brokers live, which bundles they own, and, while
a namespace has few topics, how many partitions of each lie in a bundle. So all get the same result without a message.
No broker should own more bundles than ceil(bundles / brokers). A bundle whose owner may keep it stays: creating or
deleting a topic never moves a bundle that has an owner, since its clients would have to look for it again. A bundle
without an owner goes to the broker with the fewest partitions of its topics, then with the fewest bundles; among
several a hash of bundle and broker decides, which spreads namespaces that have few bundles each. Where bundles have to
move, because brokers came or went, those go first of whose topics the one broker has more than the other.

Bundles that were placed by load, or by an operator, stay where they were placed, and each allows for a difference of
two: without that, what was decided by load would be undone by count. Functions of their arguments: no clock, no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

from magnetar.cluster.ownership import Bundle
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic

FEW_TOPICS = 16
"""With more topics of several partitions only bundles are counted, not the partitions in each: load decides then."""

FEW_PARTITIONS = 512
FEW_TOPICS_IN_ALL = 256
"""In clusters with more topics, namespaces are not looked into."""

BundleOf = Callable[[TopicName, int], Bundle]
Partitions = Mapping[Bundle, Mapping[str, int]]
"""How many partitions of each topic lie in a bundle; bundles with none may be left out."""


def partitions_in(topics: Iterable[Topic], namespace: str, bundle_of: BundleOf) -> Partitions:
    """Return the partitions in a namespace's bundles, of topics with several; nothing if there are many such topics."""
    several = [each for each in topics if each.partitions > 1 and each.name.namespace_name == namespace]
    if len(several) > FEW_TOPICS or sum(each.partitions for each in several) > FEW_PARTITIONS:
        return {}
    found: dict[Bundle, Counter[str]] = {}
    for topic in several:
        for index in range(topic.partitions):
            found.setdefault(bundle_of(topic.name, index), Counter())[topic.kafka_name] += 1
    return found


def weight(bundle: Bundle, node_id: int) -> bytes:
    """Return a bundle's rank for a broker, which decides where all else is equal."""
    return blake2b(f"{bundle}@{node_id}".encode(), digest_size=8).digest()


def evenly(
    bundles: Sequence[Bundle],
    nodes: Iterable[int],
    owners: Mapping[Bundle, int],
    placed: Mapping[Bundle, int],
    partitions: Partitions,
) -> dict[Bundle, int]:
    """Return the intended owner of each bundle.

    ``nodes`` live, at least one; ``owners`` and ``placed`` may name others, which count as no owner.
    """
    plan = _Plan(sorted(nodes), partitions)
    fixed = {each: placed[each] for each in bundles if placed.get(each) in plan.bundles}
    free = [each for each in bundles if each not in fixed]
    for bundle, node in fixed.items():
        plan.give(bundle, node)
    homeless = []
    for bundle in free:
        owner = owners.get(bundle)
        if owner is not None and owner in plan.bundles:
            plan.give(bundle, owner)
        else:
            homeless.append(bundle)
    # Bundles with most partitions first: the others fill up what is left.
    for bundle in sorted(homeless, key=lambda each: (-sum(partitions.get(each, {}).values()), each.first)):
        plan.give(bundle, plan.least(bundle))
    slack = 2 * len(fixed)  # one more for the broker that got it, and one less for the one that had it
    plan.even_topics(homeless, slack)
    plan.even_bundles(free, slack)
    return plan.owners


class _Plan:
    """The plan while it is being computed."""

    def __init__(self, nodes: Sequence[int], partitions: Partitions) -> None:
        self.owners: dict[Bundle, int] = {}
        self.bundles = Counter(dict.fromkeys(nodes, 0))
        self._nodes = nodes
        self._partitions = partitions
        self._topics = {node: Counter[str]() for node in nodes}
        self._total = Counter(dict.fromkeys(nodes, 0))

    def give(self, bundle: Bundle, node: int) -> None:
        self.owners[bundle] = node
        self._count(bundle, node, 1)

    def move(self, bundle: Bundle, node: int) -> None:
        self._count(bundle, self.owners[bundle], -1)
        self.give(bundle, node)

    def _count(self, bundle: Bundle, node: int, sign: int) -> None:
        self.bundles[node] += sign
        for topic, count in self._partitions.get(bundle, {}).items():
            self._topics[node][topic] += sign * count
            self._total[node] += sign * count

    def least(self, bundle: Bundle) -> int:
        """Return the broker that has the fewest partitions of a bundle's topics."""
        topics = self._partitions.get(bundle, {})

        def has(node: int) -> tuple[int, int, int]:
            share = sum(self._topics[node][topic] * count for topic, count in topics.items())
            return share, self._total[node] if topics else 0, self.bundles[node]

        least = min(map(has, self._nodes))
        return max(
            (node for node in self._nodes if has(node) == least), key=lambda node: weight(bundle, node)
        )

    def even_topics(self, bundles: Sequence[Bundle], slack: int) -> None:
        """Move bundles from brokers with too many partitions of a topic to those with few, while that helps."""
        full = [each for each in bundles if self._partitions.get(each)]
        while (best := max(self._moves(full, slack), default=None)) is not None:
            _, _, bundle, node = best
            self.move(bundle, node)

    def _moves(self, bundles: Sequence[Bundle], slack: int) -> Iterable[tuple[int, bytes, Bundle, int]]:
        """Yield moves that spread the partitions of topics more evenly, with the gain of each."""
        for bundle in bundles:
            owner, topics = self.owners[bundle], self._partitions[bundle]
            for node in self._nodes:
                if node == owner or self.bundles[owner] == 0:
                    continue
                # The decrease of the sum, over brokers and topics, of squared numbers of partitions.
                gain = sum(
                    count * (self._topics[owner][topic] - self._topics[node][topic] - count - slack)
                    for topic, count in topics.items()
                )
                # A bundle is not moved for a small gain: the difference has to fall by half of what the bundle brings.
                if 2 * gain >= sum(count * count for count in topics.values()):
                    yield gain, weight(bundle, node), bundle, node

    def even_bundles(self, bundles: Sequence[Bundle], slack: int) -> None:
        """Move bundles from the broker with most to the one with fewest, until none has more than its share."""
        while True:
            fewest = min(self._nodes, key=lambda node: (self.bundles[node], node))
            having = {self.owners[each] for each in bundles}
            most = max(having, key=lambda node: (self.bundles[node], node), default=fewest)
            if self.bundles[most] - self.bundles[fewest] <= 1 + slack:
                return
            going = [each for each in bundles if self.owners[each] == most]
            self.move(
                max(going, key=lambda each: (self._excess(each, most, fewest), weight(each, fewest))), fewest
            )

    def _excess(self, bundle: Bundle, here: int, there: int) -> int:
        """Return how many more partitions of a bundle's topics one broker has than another."""
        return sum(
            count * (self._topics[here][topic] - self._topics[there][topic])
            for topic, count in self._partitions.get(bundle, {}).items()
        )
