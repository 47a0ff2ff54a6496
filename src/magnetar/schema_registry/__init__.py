"""A schema registry with Confluent's REST API, which also frames messages of Pulsar clients for Fetch."""
