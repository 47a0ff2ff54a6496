"""A schema registry with Confluent's REST API, and what Fetch needs of it to frame what Pulsar's clients wrote."""
