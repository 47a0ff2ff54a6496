"""Metrics that clients push (KIP-714): which are asked for, and of whom."""
