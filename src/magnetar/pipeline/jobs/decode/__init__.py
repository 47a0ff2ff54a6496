"""Decoding values: bytes of one Arrow column in; columns, the schema's id and an error per record out."""
