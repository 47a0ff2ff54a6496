"""Writes the functions that write a struct, as parts to be joined or sent."""

from __future__ import annotations

from message_importer.reader import flexible_or_not, form_name, runs, segment_versions, struct_format
from message_importer.schema import FIXED, Field, MessageSchema, StructSchema, Versions
from message_importer.source import Source


class WriterWriter:
    """Generates ``_write_<struct>(items, append, version)``."""

    def __init__(self, message: MessageSchema, formats: set[str]) -> None:
        self._message = message
        self._formats = formats

    def function(self, struct: StructSchema) -> list[str]:
        out = Source(struct.versions & self._message.versions)
        head = f"def _write_{struct.function}(items: Sequence[{struct.name}], append: Append, version: int)"
        with out.block(f"{head} -> None:"), out.block("for item in items:"):
            for fields in runs(struct.fields):
                if fields[0].fixed:
                    self._run(out, struct, fields)
                else:
                    self._present_or_not(out, struct, fields[0])
            self._tags(out, struct)
        return out.lines

    def _run(self, out: Source, struct: StructSchema, fields: list[Field]) -> None:
        segments = list(segment_versions(fields, out.reachable))
        for index, versions in enumerate(segments):
            if len(segments) == 1:
                self._pack(out, struct, fields, versions)
                continue
            word = "if" if index == 0 else "elif"
            last = index == len(segments) - 1
            with out.block("else:" if last else f"{word} version >= {versions.low}:"):
                self._pack(out, struct, fields, versions)

    def _pack(self, out: Source, struct: StructSchema, fields: list[Field], versions: Versions) -> None:
        present = [f for f in fields if f.versions.covers(versions)]
        for f in fields:
            if f not in present:
                self._refuse_lost(out, struct, f, None)
            elif f.kind == "uuid":
                with out.block(f"if len(item.{f.name}) != 16:"):
                    out(f'raise wrong_uuid("{struct.name}.{f.name}")')
        if present:
            form, _ = struct_format(present)
            self._formats.add(form)
            out(f"{out.sink}(_pack_{form_name(form)}({', '.join(f'item.{f.name}' for f in present)}))")

    def _refuse_lost(self, out: Source, struct: StructSchema, f: Field, condition: str | None) -> None:
        """A value that the version cannot carry is refused, unless Kafka says that it may be dropped."""
        if f.ignorable:
            return
        test = is_not_default(f)
        with out.block(f"if {condition} and ({test}):" if condition else f"if {test}:"):
            out(f'raise not_in_version("{struct.name}.{f.name}", version)')

    def _present_or_not(self, out: Source, struct: StructSchema, f: Field) -> None:
        absent = out.outside(f.versions)
        if absent == "True":
            self._refuse_lost(out, struct, f, None)
            return
        with out.when(f.versions):
            self._value(out, struct, f)
        if absent is not None and not f.ignorable:
            with out.block(f"elif {is_not_default(f)}:"):
                out(f'raise not_in_version("{struct.name}.{f.name}", version)')

    def _value(self, out: Source, struct: StructSchema, f: Field) -> None:
        if f.fixed:
            self._pack(out, struct, [f], out.reachable)
        elif f.is_struct:
            self._struct(out, struct, f)
        elif f.nullable & out.reachable or f.default == "None":
            with out.block(f"if item.{f.name} is None:"):
                self._null(out, struct, f)
            with out.block("else:"):
                self._body(out, struct, f)
        else:
            self._body(out, struct, f)

    def _struct(self, out: Source, struct: StructSchema, f: Field) -> None:
        assert f.struct is not None
        write = f"_write_{f.struct.function}((item.{f.name},), {out.sink}, version)"
        if not f.nullable:
            out(write)
            return
        null = "\\0" if f.tagged else "\\xff"
        with out.block(f"if item.{f.name} is None:"):
            out(f'{out.sink}(b"{null}")')
        with out.block("else:"):
            out(f'{out.sink}(b"\\x01")', write)

    def _null(self, out: Source, struct: StructSchema, f: Field) -> None:
        refused = out.outside(f.nullable)
        error = f'raise null_field("{struct.name}.{f.name}")'
        if refused == "True":
            out(error)
            return
        if refused is not None:
            with out.block(f"if {refused}:"):
                out(error)
        width = 2 if f.kind == "string" and not f.array else 4
        classic = "\\xff" * width
        flexible_or_not(
            out,
            self._message.flexible,
            lambda: out(f'{out.sink}(b"\\0")'),
            lambda: out(f'{out.sink}(b"{classic}")'),
        )

    def _body(self, out: Source, struct: StructSchema, f: Field) -> None:
        if not f.array and f.kind == "string":
            self._string(out, f"item.{f.name}")
            return
        if f.kind == "records" and self._message.in_pieces:
            self._records(out, f)
            return
        out(f"n = len(item.{f.name})")
        self._length(out, f)
        if not f.array:
            out(f"{out.sink}(item.{f.name})")
        elif f.struct is not None:
            out(f"_write_{f.struct.function}(item.{f.name}, {out.sink}, version)")
        elif f.kind == "string":
            with out.block(f"for each in item.{f.name}:"):
                self._string(out, "each")
        elif f.kind == "uuid":
            with out.block(f"for each in item.{f.name}:"):
                with out.block("if len(each) != 16:"):
                    out(f'raise wrong_uuid("{struct.name}.{f.name}")')
                out(f"{out.sink}(each)")
        else:
            out(f'{out.sink}(pack(f">{{n}}{FIXED[f.kind][0]}", *item.{f.name}))')

    def _records(self, out: Source, f: Field) -> None:
        with out.block(f"if isinstance(item.{f.name}, list):"):
            out(f"n = sum(map(len, item.{f.name}))")
            self._length(out, f)
            with out.block(f"for each in item.{f.name}:"):
                out(f"{out.sink}(each)")
        with out.block("else:"):
            out(f"n = len(item.{f.name})")
            self._length(out, f)
            out(f"{out.sink}(item.{f.name})")

    def _string(self, out: Source, value: str) -> None:
        out(f"text = {value}.encode()", "n = len(text)")
        flexible_or_not(
            out,
            self._message.flexible,
            lambda: out(f"{out.sink}(ONE_BYTE[n + 1] if n < 127 else compact_string_length(n))"),
            lambda: out(f"{out.sink}(pack_int16(n))"),
        )
        out(f"{out.sink}(text)")

    def _length(self, out: Source, f: Field) -> None:
        flexible_or_not(
            out,
            self._message.flexible,
            lambda: out(f"{out.sink}(ONE_BYTE[n + 1] if n < 127 else varint(n + 1))"),
            lambda: out(f"{out.sink}(pack_int32(n))"),
        )

    def _tags(self, out: Source, struct: StructSchema) -> None:
        tagged = [f for f in struct.fields if f.tagged]
        for f in tagged:
            absent = out.outside(f.tagged)
            if absent is not None:
                self._refuse_lost(out, struct, f, None if absent == "True" else absent)
        with out.when(self._message.flexible) as here:
            if not here:
                return
            known = [f for f in tagged if f.tagged & out.reachable]
            if not known:
                out(f'{out.sink}(b"\\0")')
                return
            with out.block(f"if {' or '.join(f'({is_not_default(f)})' for f in known)}:"):
                out("tags: list[tuple[int, bytes]] = []")
                for f in known:
                    self._tag(out, struct, f)
                out(f"{out.sink}(tagged_fields(tags))")
            with out.block("else:"):
                out(f'{out.sink}(b"\\0")')

    def _tag(self, out: Source, struct: StructSchema, f: Field) -> None:
        low = f"version >= {f.tagged.low} and " if f.tagged.low > out.reachable.low else ""
        test = is_not_default(f)
        with out.block(f"if {low}({test}):" if low else f"if {test}:"), out.within(f.tagged):
            value = f"value_{f.tag}"
            out(f"{value}: list[Buffer] = []")
            out.sink = f"{value}.append"
            self._value(out, struct, f)
            out.sink = "append"
            out(f'tags.append(({f.tag}, b"".join({value})))')


def is_not_default(f: Field) -> str:
    """Return the test for a value other than the default."""
    name = f"item.{f.name}"
    if f.default == "None":
        return f"{name} is not None"
    if f.default == "EMPTY":
        return f"{name} or {name} is None" if f.nullable else name
    if f.default == "True":
        return f"not {name}"
    if f.default in ("False", "0", "''", 'b""'):
        return f"{name} or {name} is None" if f.nullable else name
    return f"{name} != {f.default}"
