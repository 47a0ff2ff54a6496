"""What a broker keeps its facts and its messages in: found by the settings ``metadata.url`` and ``storage.url``."""
