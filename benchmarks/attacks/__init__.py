"""Clients that mean harm, one at a time, and what an innocent one notices of it."""
