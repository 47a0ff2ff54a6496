"""Topics to tables: Spark reads the ledgers where they lie. It needs the extra ``spark``."""
