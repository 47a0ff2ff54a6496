"""Subscriptions: who gets which entry when, and what becomes of those that nobody acknowledged."""
