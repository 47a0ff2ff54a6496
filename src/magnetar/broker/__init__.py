"""Tenants, namespaces, topics and policies, and the port through which protocols serve them."""
