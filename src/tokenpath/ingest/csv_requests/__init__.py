"""Requests in plain tables: CSV, TSV, JSON Lines."""
