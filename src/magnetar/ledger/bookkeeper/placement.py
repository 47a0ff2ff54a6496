"""The choice of a ledger's bookies: by BookKeeper's own policies, which get racks and the bookies to exclude.

Pulsar has its own Java classes for that. Magnetar has no Java code, and no Java thread calls Python: a policy looks up
racks at a `java.lang.reflect.Proxy` whose method handles read a map, and other handles add the bookies that it may not
choose to the set of those to exclude. Both are filled from here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jpype

from magnetar.ledger.bookie_racks import BookiePlacement, Groups

_CLIENT = "org.apache.bookkeeper.client"
_DEFAULT_RACK, _DEFAULT_REGION = "/default-rack", "/default-region/default-rack"


def _class(name: str) -> Any:
    loader = jpype.JClass("java.lang.ClassLoader").getSystemClassLoader()
    return jpype.JClass("java.lang.Class").forName(name, True, loader)


def _classes(*classes: Any) -> Any:
    return jpype.JArray(jpype.JClass("java.lang.Class"))(list(classes))


class _Handles:
    """Java's method handles, in short. Those that take a method's arguments take them as one array."""

    def __init__(self) -> None:
        self.all = jpype.JClass("java.lang.invoke.MethodHandles")
        self.type = jpype.JClass("java.lang.invoke.MethodType")
        self.lookup = self.all.publicLookup()
        self.object, self.objects = _class("java.lang.Object"), _class("[Ljava.lang.Object;")
        self.method, self.string = _class("java.lang.reflect.Method"), _class("java.lang.String")
        self.boolean, self.void = jpype.JClass("java.lang.Boolean").TYPE, jpype.JClass("java.lang.Void").TYPE

    def virtual(self, of: str, name: str, result: Any, *given: Any) -> Any:
        return self.lookup.findVirtual(_class(of), name, self.type.methodType(result, _classes(*given)))

    def filtered(self, handle: Any, by: Any) -> Any:
        """Return a handle whose first argument is passed through another one first."""
        filters = jpype.JArray(jpype.JClass("java.lang.invoke.MethodHandle"))([by])
        return self.all.filterArguments(handle, 0, filters)

    def of_argument(self, handle: Any, at: int) -> Any:
        """Return a handle that applies a handle of one argument to one of a method's arguments."""
        getter = self.all.insertArguments(
            self.all.arrayElementGetter(self.objects), 1, jpype.JArray(jpype.JObject)([jpype.JInt(at)])
        )
        (given,) = handle.type().parameterList()
        return self.filtered(handle, getter.asType(self.type.methodType(given, _classes(self.objects))))

    def constant(self, value: Any) -> Any:
        made = self.all.constant(self.object, value)
        return self.all.dropArguments(made, 0, _classes(self.objects))

    def by_name(self, methods: Mapping[str, Any]) -> Any:
        """Return an invocation handler's handle: it handles methods of these names, others return null."""
        handled = self.type.methodType(self.object, _classes(self.object, self.method, self.objects))

        def of_invocation(handle: Any) -> Any:
            return self.all.dropArguments(handle, 0, _classes(self.object, self.method)).asType(handled)

        get_name = self.virtual("java.lang.reflect.Method", "getName", self.string)
        equals = self.virtual("java.lang.String", "equals", self.boolean, self.object)
        chosen = of_invocation(self.constant(None))
        for name, handle in methods.items():
            is_it = equals.bindTo(jpype.JString(name)).asType(
                self.type.methodType(self.boolean, _classes(self.string))
            )
            test = self.all.dropArguments(self.filtered(is_it, get_name), 0, _classes(self.object))
            chosen = self.all.guardWithTest(test, of_invocation(handle), chosen)
        return chosen

    def proxy(self, methods: Mapping[str, Any], *interfaces: str) -> Any:
        handler = jpype.JClass("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(
            _class("java.lang.reflect.InvocationHandler"), self.by_name(methods)
        )
        loader = jpype.JClass("java.lang.ClassLoader").getSystemClassLoader()
        return jpype.JClass("java.lang.reflect.Proxy").newProxyInstance(
            loader, _classes(*map(_class, interfaces)), handler
        )


def _listed(text: str) -> Any:
    return jpype.JClass("java.util.List").of(jpype.JString(text))


def _host(bookie: str) -> str:
    return bookie.rpartition(":")[0]


class JavaRacks:
    """The rack lookup for BookKeeper's policies: ``resolver`` is for its client's builder."""

    def __init__(self, *, with_regions: bool) -> None:
        handles = _Handles()
        # Policies ask for one name at a time, in a list, and want one rack in a list: the map has lists of both.
        self._racks = jpype.JClass("java.util.concurrent.ConcurrentHashMap")()
        self._default = _DEFAULT_REGION if with_regions else _DEFAULT_RACK
        self.policy: Any = None
        """The policy in which bookies move when their racks change; set once there is one."""
        get = handles.virtual(
            "java.util.concurrent.ConcurrentHashMap",
            "getOrDefault",
            handles.object,
            handles.object,
            handles.object,
        ).bindTo(self._racks)
        default = jpype.JArray(jpype.JObject)([_listed(self._default)])
        self.resolver = handles.proxy(
            {
                "resolve": handles.of_argument(handles.all.insertArguments(get, 1, default), 0),
                "useHostName": handles.constant(jpype.JBoolean(True)),
            },
            "org.apache.bookkeeper.net.DNSToSwitchMapping",
        )

    def tell(self, groups: Groups, known: Collection[str]) -> None:
        """Set the racks from now on. Bookies that are ``known`` move in the policy, which takes its locks."""
        racks: dict[str, str] = {}
        for bookie, info in (pair for bookies in groups.values() for pair in bookies.items()):
            # Bookies with ids of their own are known by their host alone.
            racks |= {host: info.location for host in (info.hostname, _host(bookie)) if host}
        before = {str(each.get(0)): str(self._racks.get(each).get(0)) for each in self._racks.keySet()}
        for host in before.keys() - racks.keys():
            self._racks.remove(_listed(host))
        for host, rack in racks.items():
            self._racks.put(_listed(host), _listed(rack))
        moved = [each for each in known if before.get(_host(each)) != racks.get(_host(each))]
        if self.policy is not None and moved:
            ids = jpype.JClass("java.util.ArrayList")()
            for bookie in moved:
                ids.add(jpype.JClass("org.apache.bookkeeper.net.BookieId").parse(bookie))
            self.policy.onBookieRackChange(ids)


def policy_of(client: Any) -> Any:
    """Return the placement policy of a client."""
    return _field(client, "placementPolicy").get(client)


class LeftOut:
    """Makes a client exclude some bookies, whatever its policy would choose."""

    def __init__(self, client: Any) -> None:
        watcher = _field(client, "bookieWatcher").get(client)
        self._bookies = jpype.JClass("java.util.concurrent.ConcurrentHashMap").newKeySet()
        field = _field(watcher, "placementPolicy")
        field.set(watcher, leaving_out(field.get(watcher), self._bookies))

    def set(self, bookies: Collection[str]) -> None:
        """Exclude exactly these from now on."""
        parse = jpype.JClass("org.apache.bookkeeper.net.BookieId").parse
        ids = jpype.JClass("java.util.HashSet")()
        for bookie in bookies:
            ids.add(parse(bookie))
        self._bookies.addAll(ids)
        self._bookies.retainAll(ids)


def writable_bookies(client: Any) -> set[str]:
    """Return the bookies that take entries, as the client last knew."""
    watcher = _field(client, "bookieWatcher").get(client)
    return {str(each) for each in _field(watcher, "writableBookies").get(watcher)}


def all_bookies(client: Any) -> list[str]:
    """Return the bookies that have a cookie in the metadata: those that are there, and those that are gone."""
    return sorted(str(each) for each in _field(client, "bookieWatcher").get(client).getAllBookies())


def leaving_out(policy: Any, bookies: Any) -> Any:
    """Return a policy that excludes, in addition to its argument, the current content of a Java set."""
    handles = _Handles()
    add_all = handles.virtual("java.util.Set", "addAll", handles.boolean, _class("java.util.Collection"))
    add = handles.all.insertArguments(add_all, 1, jpype.JArray(jpype.JObject)([bookies]))
    methods: dict[str, Any] = {}
    for method in _class(f"{_CLIENT}.EnsemblePlacementPolicy").getMethods():
        name, count = str(method.getName()), int(method.getParameterCount())
        spread = handles.lookup.unreflect(method).bindTo(policy).asSpreader(handles.objects, count)
        if name in ("newEnsemble", "replaceBookie"):  # the last argument is the set of those to exclude
            spread = spread.asType(handles.type.methodType(handles.object, _classes(handles.objects)))
            adds = handles.of_argument(add, count - 1)
            adds = adds.asType(handles.type.methodType(handles.void, _classes(handles.objects)))
            spread = handles.all.foldArguments(spread, adds)
        methods[name] = spread
    return handles.proxy(methods, f"{_CLIENT}.EnsemblePlacementPolicy")


def _field(of: Any, name: str) -> Any:
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def set_policy(conf: Any, placement: BookiePlacement) -> None:
    """Set the placement policy in a client's configuration."""
    name = "RegionAware" if placement.region_aware else "Rackaware"
    conf.setEnsemblePlacementPolicy(_class(f"{_CLIENT}.{name}EnsemblePlacementPolicy"))
    conf.setMinNumRacksPerWriteQuorum(placement.min_racks)
    conf.setEnforceMinNumRacksPerWriteQuorum(placement.enforce_min_racks)
