"""Numbers, names and errors that every other package stands on.

Standard library and NumPy only. Start with `errors` (what can go wrong), `finding` (what is claimed)
and `report` (what is shown, independent of how).
"""
