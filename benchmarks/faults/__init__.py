"""A cluster under load that is hurt again and again, with a book of what was acknowledged and what came out."""
