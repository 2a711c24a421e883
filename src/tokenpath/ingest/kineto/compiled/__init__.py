"""The fast scanner as compiled code; imports numba, so nothing but `machine_code` may import it."""
