"""Keys and values of records by their schemas: bytes as JSON, and JSON as bytes."""
