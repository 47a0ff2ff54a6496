"""What an administrator does with pulsarctl, and what must come of it."""

from __future__ import annotations

from waiting import same, until

from admin.checks import MESSAGES, Addresses, fresh, refused, sent
from admin.tools import PulsarAdmin, Pulsarctl, parsed

Tool = Pulsarctl | PulsarAdmin


def tenants(tool: Tool, addresses: Addresses) -> None:
    """tenants and namespaces: create, list, delete; one that exists"""
    tenant = fresh("ctl")
    tool("tenants", "create", tenant, "--allowed-clusters", "standalone")
    assert tenant in tool("tenants", "list")
    refused(lambda: tool("tenants", "create", tenant, "--allowed-clusters", "standalone"), "already exist")
    tool("namespaces", "create", f"{tenant}/ns")
    assert f"{tenant}/ns" in tool("namespaces", "list", tenant)
    tool("namespaces", "delete", f"{tenant}/ns")
    tool("tenants", "delete", tenant)
    assert tenant not in tool("tenants", "list")


def topics(tool: Tool, addresses: Addresses) -> None:
    """topics: create, list, partitions, stats, delete"""
    tenant = fresh("ctl")
    tool("tenants", "create", tenant, "--allowed-clusters", "standalone")
    tool("namespaces", "create", f"{tenant}/ns")
    topic = f"persistent://{tenant}/ns/topic"
    tool("topics", "create", topic, "0")
    tool("topics", "create", f"persistent://{tenant}/ns/parts", "3")
    listed = tool("topics", "list", f"{tenant}/ns")
    assert topic in listed, listed
    same(parsed(tool("topics", "get", f"persistent://{tenant}/ns/parts"))["partitions"], 3, "partitions")
    sent(addresses, topic)
    same(parsed(tool("topics", "stats", topic))["msgInCounter"], MESSAGES, "messages")
    tool("topics", "delete", f"persistent://{tenant}/ns/parts")
    tool("topics", "delete", "--non-partitioned", topic)
    assert topic not in tool("topics", "list", f"{tenant}/ns")


def subscriptions(tool: Tool, addresses: Addresses) -> None:
    """subscriptions: create, list, backlog, skip, seek, delete"""
    topic = f"persistent://public/default/{fresh('ctl')}"
    tool("topics", "create", topic, "0")
    sent(addresses, topic)

    def backlog() -> int:
        return int(parsed(tool("topics", "stats", topic))["subscriptions"]["sub"]["msgBacklog"])

    tool("subscriptions", "create", topic, "sub", "--messageId", "earliest")
    assert "sub" in tool("subscriptions", "list", topic)
    same(backlog(), MESSAGES, "backlog")
    tool("subscriptions", "skip", topic, "sub", "--count", "4")
    same(backlog(), MESSAGES - 4, "after skipping 4")
    tool("subscriptions", "seek", topic, "sub", "--time", "1h")
    until("the seek", lambda: backlog() == MESSAGES)
    tool("subscriptions", "delete", topic, "sub")
    assert "sub" not in tool("subscriptions", "list", topic).split()


CHECKS = (tenants, topics, subscriptions)
ONLY_OURS = ()
