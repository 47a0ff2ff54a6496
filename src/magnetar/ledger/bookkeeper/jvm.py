"""A JVM in this process, and one way back from its threads: a queue that a Python thread empties, many at a time.

No Java code of our own is needed, and no Java thread ever calls Python, which would take the interpreter's lock for
each answer: one `java.lang.reflect.Proxy` implements all of BookKeeper's callbacks by a method handle that puts their
arguments into a `LinkedBlockingQueue`. The last argument is the number of the request.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import jpype
import jpype.config

from magnetar.ledger.errors import StorageNotReady

_OPENS = ("java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.misc")
_AT_ONCE = 1000  # answers with one turn of the loop
_starting = Lock()
_EXTRA = "PULSAR_EXTRA_OPTS"

OPTIONS = (
    "-Xrs",  # signals are Python's
    "-XX:+UseSerialGC",
    # The optimizing compiler takes what is hot for long. By Java's own thresholds, a tenth of these, it compiled what a
    # thousand openings go through while they were opened, and took more of the processor than anything else.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Dio.netty.tryReflectionSetAccessible=true",
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
    *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENS),
)


def start_jvm(jars: Sequence[Path], heap_bytes: int, direct_bytes: int) -> None:
    """Start the one JVM that this process may have, unless it runs; raise ``StorageNotReady`` if that cannot be.

    Options in the environment variable PULSAR_EXTRA_OPTS, as Pulsar's own scripts have it, come after ours.
    """
    with _starting:
        if jpype.isJVMStarted():
            return
        # At its end the process does not wait for Java threads: without its ZooKeeper, BookKeeper's client starts one
        # after the other forever.
        jpype.config.destroy_jvm = False
        sizes = (f"-Xmx{heap_bytes}", f"-XX:MaxDirectMemorySize={direct_bytes}")
        said = os.environ.get(_EXTRA, "")
        try:
            options = (*OPTIONS, *sizes, *shlex.split(said))
            jpype.startJVM(*options, classpath=[str(jar) for jar in jars], convertStrings=False)
        except (jpype.JVMNotFoundException, OSError) as error:
            raise StorageNotReady(
                f"no Java 17 or newer was found for BookKeeper's client: {error}",
                "Install a JRE (Debian: apt-get install openjdk-17-jre-headless), or have JAVA_HOME name one.",
            ) from error
        except (RuntimeError, ValueError) as error:
            raise StorageNotReady(
                f"Java does not start: {error}; is {_EXTRA}={said!r} right?",
                f"Look at {_EXTRA}, and at the sizes bookkeeper.heap.bytes and bookkeeper.direct.bytes.",
            ) from error


def end_jvm_in_order() -> None:
    """Make the process end its JVM, too, as a command does: Java threads that go on may abort it."""
    jpype.config.destroy_jvm = True


_ENDS_S = 5.0
_COMMAND_BYTES = 256 << 20
"""Java's heap, and its direct memory, in a command: it moves a ledger at a time."""


def quiet_jvm(jars: Sequence[Path]) -> None:
    """Start the JVM for a command: BookKeeper's client logs errors only, since the command reports the rest.

    Raises ``StorageNotReady`` as `start_jvm` does.
    """
    start_jvm(jars, _COMMAND_BYTES, _COMMAND_BYTES)
    levels = jpype.JClass("org.apache.logging.log4j.Level")
    configurator = jpype.JClass("org.apache.logging.log4j.core.config.Configurator")
    configurator.setRootLevel(levels.ERROR)
    # A read past the last entry, which the command asks for on purpose, is logged as an error by these.
    for name in ("LedgerHandle", "PendingReadOp"):
        configurator.setLevel(f"org.apache.bookkeeper.client.{name}", levels.OFF)


class JavaAnswers:
    """Sends requests to Java, and passes their results to the event loop."""

    def __init__(self, interfaces: Sequence[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: dict[int, tuple[Callable[[Any], Any] | None, Callable[[int, Any], None]]] = {}
        self._last = 0
        self._queue = jpype.JClass("java.util.concurrent.LinkedBlockingQueue")()
        self.callback = self._proxy(interfaces)
        self._thread = Thread(target=self._drain, name="bookkeeper-answers", daemon=True)
        self._thread.start()

    def _proxy(self, interfaces: Sequence[str]) -> Any:
        handles = jpype.JPackage("java.lang.invoke")
        types = handles.MethodType
        class_of = jpype.JClass("java.lang.Class")
        object_ = class_of.forName("java.lang.Object")
        boolean = jpype.JClass("java.lang.Boolean").TYPE
        offer = handles.MethodHandles.publicLookup().findVirtual(
            class_of.forName("java.util.concurrent.LinkedBlockingQueue"),
            "offer",
            types.methodType(boolean, object_),
        )
        method = class_of.forName("java.lang.reflect.Method")
        objects = class_of.forName("[Ljava.lang.Object;")
        put = handles.MethodHandles.dropArguments(
            offer.bindTo(self._queue), 0, jpype.JArray(jpype.JClass("java.lang.Class"))([object_, method])
        )
        put = put.asType(
            types.methodType(
                object_, jpype.JArray(jpype.JClass("java.lang.Class"))([object_, method, objects])
            )
        )
        invocation = class_of.forName("java.lang.reflect.InvocationHandler")
        handler = handles.MethodHandleProxies.asInterfaceInstance(invocation, put)
        loader = jpype.JClass("java.lang.ClassLoader").getSystemClassLoader()
        wanted = [class_of.forName(each, True, loader) for each in interfaces]
        return jpype.JClass("java.lang.reflect.Proxy").newProxyInstance(
            loader, jpype.JArray(jpype.JClass("java.lang.Class"))(wanted), handler
        )

    def number(self, told: Callable[[int, Any], None], read: Callable[[Any], Any] | None = None) -> int:
        """Return what to hand over as context. ``told`` is called on the loop with the return code, and with what

        ``read`` has made of the callback's arguments, in the thread that empties the queue.
        """
        self._last += 1
        self._asked[self._last] = (read, told)
        return self._last

    def ask(
        self, call: Callable[[Any, int], None], read: Callable[[Any], Any] | None = None
    ) -> asyncio.Future[tuple[int, Any]]:
        """Call with callback and context; the future has the return code and the result of ``read``."""
        future: asyncio.Future[tuple[int, Any]] = self._loop.create_future()

        def told(code: int, found: Any) -> None:
            if not future.done():
                future.set_result((code, found))

        call(self.callback, self.number(told, read))
        return future

    def _drain(self) -> None:
        some = jpype.JClass("java.util.ArrayList")()
        while True:
            some.add(self._queue.take())
            self._queue.drainTo(some, _AT_ONCE)
            told: list[tuple[Callable[[int, Any], None], int, Any]] = []
            for arguments in some:
                number = int(arguments[len(arguments) - 1])
                if number == 0:
                    self._tell(told)
                    return
                read, answer = self._asked.pop(number)
                code = int(arguments[0])
                try:
                    told.append((answer, code, read(arguments) if read is not None and code == 0 else None))
                except Exception as error:
                    told.append((answer, code, error))
            some.clear()
            self._tell(told)

    def _tell(self, told: list[tuple[Callable[[int, Any], None], int, Any]]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and its listeners with it
            self._loop.call_soon_threadsafe(_tell_all, told)

    def close(self) -> None:
        """Stop waiting for answers."""
        self._queue.offer(jpype.JArray(jpype.JObject)([jpype.JLong(0)]))
        # A command that ends while this thread is about to return from Java is aborted by the C library.
        self._thread.join(_ENDS_S)


def _tell_all(told: list[tuple[Callable[[int, Any], None], int, Any]]) -> None:
    for answer, code, found in told:
        answer(code, found)
