"""One client's commands in, frames out. It never touches a socket: the server hands it frames and takes bytes.

Commands are taken up in order. One that must wait (a topic to open, a cursor to read) goes on as a task, and the next
begins meanwhile, as in Pulsar. Receipts go out in the order of the messages, whatever becomes durable first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from magnetar.auth.authorization import Access
from magnetar.auth.proxied import OriginalProof
from magnetar.base.some_lines import SomeLines
from magnetar.ledger.port import when_done
from magnetar.pulsar.dispatch.base import AnySubscription
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.errors import BadCommand, NotAuthorized, PulsarError, code_for
from magnetar.pulsar.ids import Ids
from magnetar.pulsar.phase import Phase
from magnetar.pulsar.producers import Producer
from magnetar.pulsar.route import CommandRoute
from magnetar.pulsar.services import PulsarServices
from magnetar.pulsar.topics import AnyTopic
from magnetar.pulsar.watches import TopicListWatcher
from magnetar.records.compression import Buffer
from magnetar.serving.listeners import Listener
from magnetar.wire.pulsar import encode
from magnetar.wire.pulsar.frames import BadFrame, read_frame
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError

NO_REQUEST = (1 << 64) - 1
"""The request id of errors that answer no request: -1."""
ANSWERS_AT_ONCE_BYTES = 256 << 10
"""That are worked on before it is seen whether the client takes them."""
_AT_ONCE = 50
"""Of a connection's producers and consumers that leave in one turn of the event loop."""
_log = logging.getLogger("magnetar.pulsar")
_refusals = SomeLines(_log)


class Producing:
    """A producer and the topic it produces to."""

    __slots__ = ("producer", "topic")

    def __init__(self, producer: Producer, topic: AnyTopic) -> None:
        self.producer = producer
        self.topic = topic


class Consuming:
    """A consumer, its subscription and the topic of that."""

    __slots__ = ("consumer", "subscription", "topic")

    def __init__(self, consumer: Consumer, subscription: AnySubscription, topic: AnyTopic) -> None:
        self.consumer = consumer
        self.subscription = subscription
        self.topic = topic


class Receipt(NamedTuple):
    """What a producer is told of a message: ``frame`` gives it once ``done`` tells what became of it (None: it has).

    It is given the error for which the message was not kept; what it says of the message's place is known only then.
    """

    done: asyncio.Future[None] | None
    frame: Callable[[BaseException | None], bytes]
    held_bytes: int = 0
    """What is kept in memory until it is told."""


class PulsarConnection:
    """What goes on with one client. ``write`` takes frames in parts; ``end`` closes the connection."""

    def __init__(
        self,
        services: PulsarServices,
        routes: Mapping[BaseCommand.Type, CommandRoute],
        listener: Listener,
        address: str,
        write: Callable[[Sequence[Buffer]], None],
        end: Callable[[], None],
        certificate: Any = None,
        went_on: Callable[[], None] = lambda: None,
    ) -> None:
        self.services = services
        self._routes = routes
        self.listener = listener
        self.address = address
        self.certificate = certificate
        self.client_version = ""
        self.protocol_version = 0
        self.role = ""
        self.original_principal = ""
        """For whom the client says that it speaks, as Pulsar's proxies do."""
        self.original_proof: OriginalProof | None = None
        """What the client has shown to the proxy that speaks for it; None where that is not looked at."""
        self.proxy_role = ""
        """The proxy's, which speaks for ``role``; empty if that is the client itself."""
        self.access: Access | None = None
        """What the client may do; None for everything."""
        self.auth_method = ""
        self.expires_at_s: float | None = None
        """When what the client proved ends, since 1970; None is never."""
        self.answers_challenges = False
        self.is_challenged = False
        self.phase = Phase.STRANGER
        self.is_writable = True
        self.producers: dict[int, Producing] = {}
        self.consumers: dict[int, Consuming] = {}
        self.making_producers = Ids("Producer")
        self.making_consumers = Ids("Consumer")
        self.sent_away: set[int] = set()
        """Producers that were closed here, and of which the client may not know yet: what they send is not taken."""
        self.watchers: dict[int, TopicListWatcher] = {}
        """What watches over lists of topics."""
        self.under_way = 0
        """Commands that go on in tasks; those that wait for somebody else's turn to end do not count."""
        self.held_bytes = 0
        """Of commands under way."""
        self.answered_bytes = 0
        """Of answers since it was last seen that the client takes them."""
        self._throttled_until = 0.0
        self._write = write
        self._end = end
        self._went_on = went_on
        self._tasks: set[asyncio.Task[None]] = set()
        self._receipts: deque[Receipt] = deque()
        self.unsettled_bytes = 0
        """Of messages that wait to be stored."""
        self._placeless: asyncio.Future[None] | None = None
        self._outbox: list[Buffer] = []

    @property
    def is_connected(self) -> bool:
        """Whether it is known who the client is."""
        return self.phase is Phase.CONNECTED or self.phase is Phase.RENEWING

    # -- in

    def receive(self, frame: memoryview) -> None:
        """Take up one command. What breaks the protocol's rules ends the connection, with one line in the log."""
        phase = self.phase
        if phase is Phase.ENDED:
            return
        try:
            command, entry, _ = read_frame(frame)
            route = self._routes.get(command.type)
            if route is None:
                raise BadCommand(f"{BaseCommand.Type.Name(command.type)} is no command for a broker")
            if phase is Phase.STRANGER and command.type != BaseCommand.CONNECT:
                raise BadCommand(f"{BaseCommand.Type.Name(command.type)} before CONNECT")
            try:
                later = route.handle(self, getattr(command, route.field), entry)
            except BadCommand:
                raise
            except Exception as error:
                self._refuse(command, error)
                return
        except (BadFrame, BadCommand) as error:
            self.refuse(str(error))
            return
        if later is not None:
            self._begin(command, later, len(frame))

    def _begin(self, command: BaseCommand, work: Coroutine[Any, Any, None], size: int) -> None:
        self.under_way += 1
        self.held_bytes += size
        task = asyncio.get_running_loop().create_task(self._finish(command, work))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._finished(task, work, size))

    def _finished(self, task: asyncio.Task[None], work: Coroutine[Any, Any, None], size: int) -> None:
        self._tasks.discard(task)
        work.close()  # of a task that was cancelled before its first turn it is still to be ended
        self.under_way -= 1
        self.held_bytes -= size
        self._went_on()

    @contextmanager
    def parked(self) -> Iterator[None]:
        """While a command waits for what other clients do, it keeps none of this one's from being taken up."""
        self.under_way -= 1
        self._went_on()
        try:
            yield
        finally:
            self.under_way += 1

    async def _finish(self, command: BaseCommand, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except BadCommand as error:
            self.refuse(str(error))
        except Exception as error:
            self._refuse(command, error)

    def _refuse(self, command: BaseCommand, error: Exception) -> None:
        """Answer a command that failed in the form that its answers have."""
        code = code_for(error)
        if code == ServerError.UnknownError and not isinstance(error, PulsarError):
            _log.error("%s of %s failed", BaseCommand.Type.Name(command.type), self.address, exc_info=error)
        if isinstance(error, NotAuthorized):
            kind = BaseCommand.Type.Name(command.type)
            _refusals.warning(
                "%s of %s with role %s: %s: %s", kind, self.address, self.role, error, error.what
            )
        route = self._routes[command.type]
        answer = route.refusal(getattr(command, route.field), code, str(error))
        if answer is not None:
            self.answer(answer)

    # -- out

    def answer(self, command: BaseCommand) -> None:
        """Send a command."""
        self.send(encode.frame(command))

    def send(self, frame: Buffer) -> None:
        """Send a frame, together with all that comes up in this turn of the loop."""
        if self.phase is Phase.ENDED:
            return
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(frame)
        self.answered_bytes += len(frame)
        if self.answered_bytes > ANSWERS_AT_ONCE_BYTES:
            self._flush()  # the server sees whether they are taken
            if self.is_writable:
                self.answered_bytes = 0

    @property
    def is_behind(self) -> bool:
        """Whether the client does not take its answers: more are not worked on."""
        return not self.is_writable and self.answered_bytes > ANSWERS_AT_ONCE_BYTES

    def _flush(self) -> None:
        if self._outbox and self.phase is not Phase.ENDED:
            parts, self._outbox = self._outbox, []
            self._write(parts)

    def deliver(self, parts: Sequence[Buffer]) -> None:
        """Send messages."""
        if self.phase is Phase.ENDED:
            return
        self._flush()
        self._write(parts)

    def receipt(self, receipt: Receipt) -> None:
        """Tell a producer, in its turn, what became of an append."""
        last = self._receipts[-1].done if self._receipts else None
        self._receipts.append(receipt)
        self.unsettled_bytes += receipt.held_bytes
        done = receipt.done
        if done is None or done.done():
            self._settle()
        elif done is not last:
            when_done(done, self._settle)

    def _settle(self, _: object = None) -> None:
        receipts = self._receipts
        while receipts:
            done = receipts[0].done
            if done is not None and not done.done():
                break
            told = receipts.popleft()
            self.unsettled_bytes -= told.held_bytes
            self.send(told.frame(None if done is None else done.exception()))
        self._went_on()

    def wait_for_place(self, done: asyncio.Future[None] | None) -> None:
        """Have no more be read until an entry has a ledger to go to: what waits for that is kept in memory."""
        self._placeless = done

    @property
    def waits_for_place(self) -> bool:
        """Whether one of its messages has no ledger yet."""
        return self._placeless is not None and not self._placeless.done()

    @property
    def unsettled(self) -> int:
        """How many messages wait to be stored."""
        return len(self._receipts)

    def throttle(self, wait_s: float) -> None:
        """Its producers send faster than they may: it is not read for so long."""
        self._throttled_until = max(self._throttled_until, asyncio.get_running_loop().time() + wait_s)

    @property
    def throttled_s(self) -> float:
        """For how long it is not to be read."""
        return self._throttled_until - asyncio.get_running_loop().time() if self._throttled_until else 0.0

    # -- what subscriptions and topics tell it

    def consumer_closed(self, consumer_id: int) -> None:
        if self.consumers.pop(consumer_id, None) is not None:
            command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
            command.close_consumer.consumer_id = consumer_id
            command.close_consumer.request_id = NO_REQUEST
            self.answer(command)

    def producer_closed(self, producer_id: int) -> None:
        if self.producers.pop(producer_id, None) is not None:
            self.sent_away.add(producer_id)
            command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
            command.close_producer.producer_id = producer_id
            command.close_producer.request_id = NO_REQUEST
            frame = encode.frame(command)
            # Behind the receipts of what is on its way to the disk: the client sends again what it has none for.
            self.receipt(Receipt(None, lambda _: frame))

    def reached_end(self, consumer_id: int) -> None:
        command = BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC)
        command.reachedEndOfTopic.consumer_id = consumer_id
        self.answer(command)

    def active_changed(self, consumer_id: int, is_active: bool) -> None:
        command = BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE)
        command.active_consumer_change.consumer_id = consumer_id
        command.active_consumer_change.is_active = is_active
        self.answer(command)

    # -- what the server tells it

    def pause(self) -> None:
        """The client takes what it is sent slower than it comes."""
        self.is_writable = False

    def resume(self) -> None:
        """It has caught up."""
        self.is_writable = True
        self.answered_bytes = 0
        for consuming in list(self.consumers.values()):
            consuming.subscription.wake()
        for watch in list(self.watchers.values()):
            watch.go_on()

    def ping(self) -> None:
        """Ask the client whether it lives."""
        if self.is_connected:
            command = BaseCommand(type=BaseCommand.PING)
            command.ping.SetInParent()
            self.answer(command)

    def refuse(self, why: str) -> None:
        """End a connection whose client does not keep to the protocol."""
        if self.phase is not Phase.ENDED:
            _log.warning("closing the connection of %s: %.500s", self.address, why)
            self.end()

    def end(self) -> None:
        """Close the connection after what is to be sent."""
        self._flush()
        self._end()

    def hang_up(self) -> None:
        """The client is gone: so are its producers and consumers."""
        self.phase = Phase.ENDED
        for task in list(self._tasks):
            task.cancel()
        for watch in list(self.watchers.values()):
            watch.end()
        self.watchers.clear()
        # Of those that have thousands the others leave in later turns: behind them others wait.
        leaves = [partial(each.topic.producers.remove, each.producer) for each in self.producers.values()]
        leaves += [partial(_leave, each) for each in self.consumers.values()]
        self.producers.clear()
        self.consumers.clear()
        for number, leave in enumerate(leaves):
            if number < _AT_ONCE:
                leave()
            else:
                self.services.topics.turns.add(leave)


def _leave(consuming: Consuming) -> None:
    consuming.subscription.remove(consuming.consumer)
    consuming.topic.left(consuming.subscription)
