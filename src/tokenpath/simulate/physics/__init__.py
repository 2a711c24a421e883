"""Step latency from first principles: a roofline per operator, links, host overhead, fitted efficiencies.

Read first: `deployment` (what is served on what), `terms` (its work, per rank), `curve` (work to time).
"""
