"""Bytes at rest: record batches, entries and their conversions. Pure functions that broker and Spark share."""
