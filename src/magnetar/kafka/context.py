"""What a handler is given beside the request: who asks, and the broker's services."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.auth import Access, Right, may
from magnetar.kafka.services import KafkaServices
from magnetar.serving.listeners import Listener
from magnetar.serving.memory import Account
from magnetar.settings.security import ANONYMOUS
from magnetar.topics.names import TopicName

if TYPE_CHECKING:
    from magnetar.kafka.login import Login
    from magnetar.kafka.quotas.meters import Who


@dataclass(slots=True)
class Software:
    """What a connection's client says it is, in ApiVersions (KIP-511); empty if it says nothing."""

    name: str = ""
    version: str = ""


@dataclass(slots=True)
class RequestContext:
    """One request's circumstances. ``client_host`` begins with a slash, as Kafka shows it."""

    kafka: KafkaServices
    api_version: int
    client_id: str
    client_host: str
    listener: Listener
    login: Login | None = None
    """How the client authenticated; None where nobody needs to."""
    access: Access | None = None
    """What the client may do; None if that is everything."""
    software: Software = field(default_factory=Software)
    """The same for all requests of a connection."""
    account: Account | None = None
    """What the connection makes the broker keep; None where there is no connection."""
    has_many_rows: bool = False
    """Set where the answer has very many rows though it took no time: a thread writes it down."""
    looked_up: int = 0
    """How many names of topics that are not known here metadata were asked for."""
    begun_s: float = 0.0
    """When its handler was begun, by ``perf_counter``; 0 for those that are begun as soon as they are read."""
    waited_s: float = 0.0
    """How long it waited for what its client wanted to wait for."""
    placed_s: float = 0.0
    """When `placed` became so, by ``perf_counter``; from then on Produce waits for the disk."""
    door: str = "kafka"
    """How the request came in, as audit lines name it."""
    placed: bool = False
    """Set by Produce once all its batches have their place in the logs: then the next request may begin."""

    @property
    def is_stranger(self) -> bool:
        """Whether the client has yet to say who it is."""
        return self.login is not None and not self.login.is_done

    @property
    def who(self) -> Who:
        """Whom the request counts for in quotas."""
        from magnetar.kafka.quotas.meters import Who  # loaded where there are some

        principal = None if self.login is None else self.login.principal
        return Who(ANONYMOUS if principal is None else principal.role, self.client_id)

    def shows(self, topic: TopicName) -> bool:
        """Return whether a list of all topics names this one: whoever asks may see it, and is at home in its tenant."""
        home = self.kafka.home.partition("/")[0]
        return home in ("", topic.tenant) and may(self.access, Right.see, topic)
