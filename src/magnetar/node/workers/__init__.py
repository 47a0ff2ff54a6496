"""Several processes that serve one data directory: what each of them is told, and who looks after them."""
