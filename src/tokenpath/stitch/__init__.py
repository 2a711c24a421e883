"""Links between the layers of a capture: launch -> kernel, op -> kernel, step -> kernel.

Start with `link`, which fills every link column of a freshly read capture.
"""

from tokenpath.stitch.link import link

__all__ = ["link"]
