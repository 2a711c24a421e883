"""One page a finding code: what it measures, why it matters, how, an example, known problems."""

from tokenpath.explain.pages.pages import about, codes

__all__ = ["about", "codes"]
