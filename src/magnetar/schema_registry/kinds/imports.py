"""Files that schemas import without a reference to them, and that neither they nor protoc bring.

Confluent's serializers and registry know ``confluent/*.proto``, and Connect's converter has its schemas import them.
``google/type/*.proto`` (dates, money, places) come with googleapis-common-protos where that is installed.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

_META = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_DECIMAL = """
syntax = "proto3";
package confluent.type;
// A number's digits, in two's complement and big-endian, and how many of them stand behind the point.
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""

CONFLUENT = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    "confluent/types/decimal.proto": _DECIMAL,
}


def is_brought(name: str) -> bool:
    """Return whether a file need not be given by a reference, though Google's library does not have it."""
    return name in CONFLUENT or name.startswith("google/type/")


@cache
def google_types() -> Path | None:
    """Return the directory of ``google/type``, or None where it is not installed."""
    try:
        found = importlib.util.find_spec("google.type")
    except ModuleNotFoundError:
        return None
    places = [] if found is None else list(found.submodule_search_locations or ())
    return next((Path(each) for each in places if Path(each, "date.proto").exists()), None)
