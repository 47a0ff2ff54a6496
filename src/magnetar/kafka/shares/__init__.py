"""Share groups (KIP-932): what members hold of each partition, and how that outlives a crash."""
