"""Faults of the serving world; `catalogue.py` lists them."""
