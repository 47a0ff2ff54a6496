"""Pulsar's transactions in its topics and subscriptions.

Who decides about them is the coordinator (`magnetar.coordination.transactions`).
"""
