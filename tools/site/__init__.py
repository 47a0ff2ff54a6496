"""Build the documentation as a site that needs no server: `make site`."""
