"""Writes the functions that read a struct: straight-line code, with a struct.Struct for fixed neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from message_importer.schema import FIXED, Field, MessageSchema, StructSchema, Versions
from message_importer.source import Source


class ReaderWriter:
    """Generates ``_read_<struct>(data, at, version, count, budget) -> (list of structs, at)``.

    Reading many at once saves a call per element; a lone struct is a list of one. ``budget`` holds how many more
    elements the message may have in all its arrays together: a few bytes of input each become a Python object.
    """

    def __init__(self, message: MessageSchema, formats: set[str]) -> None:
        self._message = message
        self._formats = formats

    def function(self, struct: StructSchema) -> list[str]:
        out = Source(struct.versions & self._message.versions)
        out(f"def _read_{struct.function}(")
        out("    data: Any, at: int, version: int, count: int, budget: list[int]")
        with out.block(f") -> tuple[list[{struct.name}], int]:"):
            out("items = []")
            with out.block("for _ in range(count):"):
                out(f"item = _new({struct.name})")
                for fields in runs(struct.fields):
                    if fields[0].fixed:
                        self._run(out, fields)
                    else:
                        self._present_or_default(out, struct, fields[0])
                self._tags(out, struct)
                out("items.append(item)")
            out("return items, at")
        return out.lines

    def _run(self, out: Source, fields: list[Field]) -> None:
        segments = list(segment_versions(fields, out.reachable))
        for index, versions in enumerate(segments):
            if len(segments) == 1:
                self._unpack(out, fields, versions)
                continue
            word = "if" if index == 0 else "elif"
            last = index == len(segments) - 1
            with out.block("else:" if last else f"{word} version >= {versions.low}:"):
                self._unpack(out, fields, versions)

    def _unpack(self, out: Source, fields: list[Field], versions: Versions) -> None:
        present = [f for f in fields if f.versions.covers(versions)]
        if present:
            form, size = struct_format(present)
            self._formats.add(form)
            targets = ", ".join(f"item.{f.name}" for f in present)
            comma = "," if len(present) == 1 else ""
            out(f"({targets}{comma}) = _unpack_{form_name(form)}(data, at)", f"at += {size}")
        for f in fields:
            if f not in present:
                out(f"item.{f.name} = {f.default}")

    def _present_or_default(self, out: Source, struct: StructSchema, f: Field) -> None:
        default = "[]" if f.default == "EMPTY" else f.default
        absent = out.outside(f.versions)
        if absent == "True":
            out(f"item.{f.name} = {default}")
            return
        with out.when(f.versions):
            self._value(out, struct, f)
        if absent is not None:
            with out.block("else:"):
                out(f"item.{f.name} = {default}")

    def _value(self, out: Source, struct: StructSchema, f: Field) -> None:
        """Read one value that is there, be it in line or in a tag."""
        if f.fixed:
            self._unpack(out, [f], out.reachable)
        elif f.is_struct:
            self._struct(out, struct, f)
        else:
            self._length(out, f)
            with out.block("if n < 0:"):
                self._null(out, struct, f)
            with out.block("else:"):
                self._body(out, struct, f)

    def _struct(self, out: Source, struct: StructSchema, f: Field) -> None:
        assert f.struct is not None
        read = f"(item.{f.name},), at = _read_{f.struct.function}(data, at, version, 1, budget)"
        if not f.nullable:
            out(read)
            return
        assert f.nullable.covers(out.reachable), "a struct that becomes nullable is not foreseen"
        out("n = data[at]", "at += 1")
        # The byte before a nullable struct says whether there is one: -1 for none in line, but 0 in a tag.
        with out.block("if n == 0:" if f.tagged else "if n > 127:"):
            out(f"item.{f.name} = None")
        with out.block("else:"):
            out(read)

    def _length(self, out: Source, f: Field) -> None:
        def compact() -> None:
            out("n = data[at] - 1", "at += 1")
            function = "read_long_string_length" if f.kind == "string" and not f.array else "read_long_length"
            with out.block("if n > 126:"):
                out(f"n, at = {function}(data, at - 1)")

        def classic() -> None:
            bits, size = (16, 2) if f.kind == "string" and not f.array else (32, 4)
            out(f"(n,) = unpack_int{bits}(data, at)", f"at += {size}")

        flexible_or_not(out, self._message.flexible, compact, classic)

    def _null(self, out: Source, struct: StructSchema, f: Field) -> None:
        refused = out.outside(f.nullable)
        error = f'raise null_field("{struct.name}.{f.name}")'
        if refused == "True":
            out(error)
            return
        if refused is not None:
            with out.block(f"if {refused}:"):
                out(error)
        out(f"item.{f.name} = None")

    def _body(self, out: Source, struct: StructSchema, f: Field) -> None:
        if not f.array:
            out(f"item.{f.name} = {self._slice(f.kind, 'at', 'at + n')}", "at += n")
            return
        out("budget[0] -= n")
        with out.block("if n > len(data) - at or budget[0] < 0:"):
            out(f'raise too_many("{struct.name}.{f.name}", n)')
        if f.struct is not None:
            out(f"item.{f.name}, at = _read_{f.struct.function}(data, at, version, n, budget)")
        elif f.kind == "string":
            self._strings(out, struct, f)
        elif f.kind == "uuid":
            part = self._slice("uuid", "i", "i + 16")
            out(f"item.{f.name} = [{part} for i in range(at, at + n * 16, 16)]", "at += n * 16")
        else:
            code, size, _ = FIXED[f.kind]
            out(f'item.{f.name}, at = read_numbers(data, at, "{code}", {size}, n)')

    def _strings(self, out: Source, struct: StructSchema, f: Field) -> None:
        element = Field(f.name, "string", False, f.versions, Versions(1, 0), f.tagged, -1, "", False)
        texts = f"{f.name}_texts"
        out(f"{texts}: list[str] = []")
        with out.block("for _ in range(n):"):
            self._length(out, element)
            with out.block("if n < 0:"):
                out(f'raise null_field("{struct.name}.{f.name}")')
            out(f"{texts}.append({self._slice('string', 'at', 'at + n')})", "at += n")
        out(f"item.{f.name} = {texts}")

    def _slice(self, kind: str, start: str, stop: str) -> str:
        """Return the expression for a part of the data, which is bytes unless it is read in place."""
        part = f"data[{start}:{stop}]"
        if self._message.in_place:
            return {"string": f'str({part}, "utf-8")', "uuid": f"bytes({part})"}.get(kind, part)
        return {"string": f"{part}.decode()", "uuid": part}.get(kind, f"memoryview(data)[{start}:{stop}]")

    def _tags(self, out: Source, struct: StructSchema) -> None:
        tagged = [f for f in struct.fields if f.tagged]
        for f in tagged:
            out(f"item.{f.name} = {'[]' if f.default == 'EMPTY' else f.default}")
        with out.when(self._message.flexible) as here:
            if not here:
                return
            known = [f for f in tagged if f.tagged & out.reachable]
            with out.block("if data[at]:"):
                if known:
                    self._known_tags(out, struct, known)
                else:
                    out("at = skip_tags(data, at)")
            with out.block("else:"):
                out("at += 1")

    def _known_tags(self, out: Source, struct: StructSchema, known: list[Field]) -> None:
        out("tags, at = read_tag_count(data, at)")
        with out.block("for _ in range(tags):"):
            out("tag, at = read_varint(data, at)", "size, at = read_varint(data, at)", "stop = at + size")
            for index, f in enumerate(known):
                low = f" and version >= {f.tagged.low}" if f.tagged.low > out.reachable.low else ""
                with out.block(f"{'elif' if index else 'if'} tag == {f.tag}{low}:"), out.within(f.tagged):
                    self._value(out, struct, f)
                    with out.block("if at != stop:"):
                        out(f'raise bad_tag("{struct.name}.{f.name}")')
            with out.block("else:"):
                out("at = stop")


def runs(fields: list[Field]) -> Iterator[list[Field]]:
    """Yield the untagged fields in order, neighbours of fixed size together and others alone."""
    run: list[Field] = []
    for f in fields:
        if f.tagged:
            continue
        if f.fixed:
            run.append(f)
            continue
        if run:
            yield run
        yield [f]
        run = []
    if run:
        yield run


def segment_versions(fields: list[Field], reachable: Versions) -> Iterator[Versions]:
    """Give, newest first, the ranges of versions in which the same of these fields are present."""
    edges = {f.versions.low for f in fields if f.versions} | {
        f.versions.high + 1 for f in fields if f.versions
    }
    starts = sorted({reachable.low} | {e for e in edges if reachable.low < e <= reachable.high}, reverse=True)
    high = reachable.high
    for low in starts:
        yield Versions(low, high)
        high = low - 1


def struct_format(fields: list[Field]) -> tuple[str, int]:
    kinds = [FIXED[f.kind] for f in fields]
    return "".join(kind[0] for kind in kinds), sum(kind[1] for kind in kinds)


def form_name(form: str) -> str:
    """Return the name of a struct format: ``16s`` (uuid) is u, ``?`` is t (for truth)."""
    return form.replace("16s", "u").replace("?", "t")


def flexible_or_not(
    out: Source, flexible: Versions, compact: Callable[[], None], classic: Callable[[], None]
) -> None:
    """Write both, under a test, or only the one that can be reached."""
    if flexible.covers(out.reachable):
        compact()
    elif not flexible & out.reachable:
        classic()
    else:
        with out.block(f"if {out.test(flexible)}:"), out.within(flexible):
            compact()
        with out.block("else:"), out.within(Versions(0, flexible.low - 1)):
            classic()
