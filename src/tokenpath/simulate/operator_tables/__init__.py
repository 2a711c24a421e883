"""Step latency from measured operator times: the tables of `aiconfigurator-core`, an optional extra.

Read `curve`: how the tables' step estimates become a `StepCurve`; nothing else of the package is used, and
above all not the end-to-end results that it carries.
"""
