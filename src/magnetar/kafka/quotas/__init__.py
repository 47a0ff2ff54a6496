"""Quotas of Kafka's clients (KIP-13, KIP-55, KIP-124, KIP-219, KIP-599): how much they may, and how long they wait."""
