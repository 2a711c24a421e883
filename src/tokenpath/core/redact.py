"""Masks secrets, people and hosts in the texts of a capture.

The rules are data: each names the literal text without which it cannot match (its markers), so that a
hundred thousand kernel names cost one search for each marker and no more. People and hosts become
pseudonyms that are stable within one capture: the same name is the same `user-0` in every table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

MASK = "[masked]"
"""Stands where a secret was."""

_SEPARATOR = "\x1e"


@dataclass(frozen=True)
class Rule:
    """One kind of secret."""

    name: str
    """What it is, in words."""
    markers: tuple[str, ...]
    """Lower-case texts; a text without any of them is not looked at."""
    pattern: re.Pattern[str]
    """What is replaced; with a group `keep`, that part stays in front of the mask."""
    kind: str = "secret"
    """`secret`, or whose pseudonym takes the place of group `name`: `user`, `host`, `address`."""


def _rule(name: str, markers: str, pattern: str, kind: str = "secret", flags: int = 0) -> Rule:
    return Rule(name, tuple(markers.split()), re.compile(pattern, flags), kind)


_WORD = r"(?<![A-Za-z0-9])"
_KEY_WORDS = (
    r"pass(?:word|wd|phrase)?|pwd|secret|token|api[_-]?key|apikey|access[_-]?key|account[_-]?key"
    r"|private[_-]?key|signing[_-]?key|credentials?|client[_-]?secret|session[_-]?id|cookie|signature|sig"
)
_KEY_MARKERS = (
    "pass pwd secret token key credential session cookie signature sig= sig%3d authorization"
)

RULES: tuple[Rule, ...] = (
    _rule(
        "private key block",
        "-----begin",
        r"-----BEGIN[A-Z ]*PRIVATE KEY-----.*?(?:-----END[A-Z ]*PRIVATE KEY-----|\Z)",
        flags=re.DOTALL,
    ),
    _rule(
        "SSH key", "ssh- ecdsa-", r"(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-\S+) +[A-Za-z0-9+/=]{20,}"
    ),
    _rule("URL with credentials", "://", r"(?P<keep>[a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@\"']+(?=@)"),
    _rule("JSON web token", "eyj", r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"),
    _rule(
        "authorization header",
        "bearer basic authorization",
        r"(?P<keep>\b(?:[Bb]earer|BEARER|Basic|[Aa]uthorization: *\w+)[ =:]+)[A-Za-z0-9._~+/=-]{8,}",
    ),
    _rule("Hugging Face token", "hf_ api_org_", _WORD + r"(?:hf_|api_org_)[A-Za-z0-9]{20,}"),
    _rule("OpenAI or Anthropic key", "sk-", _WORD + r"sk-[A-Za-z0-9_-]{16,}"),
    _rule(
        "GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        _WORD + r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    ),
    _rule("GitLab token", "glpat- gldt- glrt-", _WORD + r"gl(?:pat|dt|rt)-[A-Za-z0-9_-]{16,}"),
    _rule(
        "AWS key id",
        "akia asia aroa aida",
        r"(?<![A-Z0-9])(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}(?![a-z])",
    ),
    _rule("Google key", "aiza ya29. gocspx-", r"AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}"),
    _rule(
        "Slack token", "xox hooks.slack", r"xox[abeoprs]-[A-Za-z0-9-]{10,}|hooks\.slack\.com/\S+"
    ),
    _rule(
        "Stripe key", "_live_ _test_", _WORD + r"(?:sk|rk|pk|whsec)_(?:live|test)_[A-Za-z0-9]{12,}"
    ),
    _rule("NVIDIA key", "nvapi-", r"nvapi-[A-Za-z0-9_-]{16,}"),
    _rule("Databricks token", "dapi", _WORD + r"dapi[0-9a-f]{32}"),
    _rule(
        "package registry token",
        "npm_ pypi- dckr_pat_",
        _WORD + r"(?:npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{30,}|dckr_pat_[A-Za-z0-9_-]{16,})",
    ),
    _rule(
        "token with a prefix",
        "hvs. sg. gsk_ r8_ lin_api_ dop_v1_ shpat_ age-secret-key- pplx- xai- key- rpa_",
        _WORD
        + r"(?:hvs\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|gsk_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}"
        r"|lin_api_[A-Za-z0-9]{16,}|dop_v1_[0-9a-f]{20,}|shpat_[0-9a-f]{20,}"
        r"|AGE-SECRET-KEY-[A-Z0-9]{20,}|pplx-[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|key-[0-9a-f]{32}"
        r"|rpa_[A-Z0-9]{20,})",
    ),
    _rule("bot token", ":aa", _WORD + r"\d{8,10}:AA[A-Za-z0-9_-]{30,}"),
    _rule("Twilio key", "sk ac", _WORD + r"(?:SK|AC)[0-9a-f]{32}(?![0-9a-f])"),
    _rule(
        "option with a secret",
        "--",
        rf"(?P<keep>--[\w-]*(?:{_KEY_WORDS}|key)(?:=|\s+))(?!-)\S+",
        flags=re.IGNORECASE,
    ),
    _rule(
        "assigned secret",
        _KEY_MARKERS,
        # `Token::name` is C++, `token=128` a count.
        rf"(?P<keep>(?<![A-Za-z])(?:\w*[_.-])?(?:{_KEY_WORDS})\\*[\"']?\s*(?<!:)(?:=|:(?!:)|%3D)\s*\\*[\"']?)"
        r"(?!\d{1,8}(?:\W|\Z))(?!\[masked\])[^\s\"',;&)\]}]{4,}",
        flags=re.IGNORECASE,
    ),
    _rule(
        "email address",
        "@",
        r"(?<![\w.+-])[\w.+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}(?![\w])",
    ),
    _rule(
        "home folder",
        "home/ users/ users\\ home\\",
        r"(?P<keep>(?:/home/|[/\\]+[Uu]sers[/\\]+|/usr/home/))(?P<name>[^/\\\s\"':;,()<>|]+)",
        "user",
    ),
    _rule(
        "user name",
        "user login logname",
        r"(?P<keep>(?<![A-Za-z])(?:user(?:[_-]?name)?|login|logname)\\*[\"']?\s*(?:=|:(?!:))\s*\\*[\"']?)"
        r"(?P<name>[A-Za-z][\w.-]+)",
        "user",
        flags=re.IGNORECASE,
    ),
    _rule(
        "hardware address",
        ": -",
        r"(?<![0-9A-Fa-f:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:-])",
    ),
    _rule(
        "IPv6 address",
        ":",
        r"(?<![\w:.])(?P<name>(?:[0-9A-Fa-f]{1,4}:){5,7}[0-9A-Fa-f]{1,4}"
        r"|(?:[0-9A-Fa-f]{1,4}:){2,6}:(?:[0-9A-Fa-f]{1,4})?(?::[0-9A-Fa-f]{1,4}){0,4})(?![\w:])",
        "address",
    ),
    _rule(
        "IPv4 address",
        ".",
        r"(?<![\d.\w])(?P<name>(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d))"
        r"(?![\d.]*\w)",
        "address",
    ),
    _rule(
        "host name",
        "ip- .internal .local .lan .corp .cluster .intra",
        r"(?<![\w.-])(?P<name>ip-\d+-\d+-\d+-\d+(?:\.[\w.-]+)?"
        r"|(?=[\w-]*[\d-])[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.(?:internal|local|lan|corp|cluster|intra))"
        r"(?![\w-])",
        "host",
    ),
)
"""In the order in which they are applied: the narrow ones before those that would cut into them."""


class Redactor:
    """Masks the texts of one capture; pseudonyms are stable over all its calls."""

    def __init__(self, *, keep_hosts: bool = False) -> None:
        """`keep_hosts` leaves host names as they are; everything else is masked all the same."""
        self.keep_hosts = keep_hosts
        self._names: dict[str, dict[str, str]] = {"user": {}, "host": {}, "address": {}}
        self._known_hosts: dict[str, None] = {}

    def host(self, name: str) -> str:
        """The pseudonym of a host, or its name where hosts are kept.

        From now on the name is masked in every text, too.
        """
        if self.keep_hosts:
            return self.mask([name])[0]
        if len(name) > 3:
            self._known_hosts.setdefault(name)
        return self._pseudonym("host", name)

    def knows_only_words(self) -> bool:
        """Whether no host that is known by name looks like a number or an id in hexadecimal digits."""
        return not any(re.fullmatch(r"[0-9a-f.e+-]*", host.lower()) for host in self._known_hosts)

    def mask(self, texts: Sequence[str]) -> list[str]:
        """The texts with everything masked that a rule knows; the same length, in the same order."""
        masked = list(texts)
        index = _Index(masked)
        for host in self._known_hosts:
            pseudonym = self._pseudonym("host", host)
            pattern = re.compile(
                rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", re.IGNORECASE
            )
            for at in index.rows_with((host.lower(),)):
                masked[at] = pattern.sub(pseudonym, masked[at])
        for rule in RULES:
            if rule.kind == "host" and self.keep_hosts:
                continue
            replace = self._replacement(rule)
            # The index knows the texts as they came; masking takes markers away and adds none.
            for at in index.rows_with(rule.markers):
                masked[at] = rule.pattern.sub(replace, masked[at])
        return masked

    def mask_one(self, text: str | None) -> str | None:
        """One text, or None."""
        return None if text is None else self.mask([text])[0]

    def _replacement(self, rule: Rule) -> Callable[[re.Match[str]], str]:
        groups = rule.pattern.groupindex

        def replace(match: re.Match[str]) -> str:
            kept = match["keep"] if "keep" in groups else ""
            if rule.kind == "secret":
                return kept + MASK
            return kept + self._pseudonym(rule.kind, match["name"])

        return replace

    def _pseudonym(self, kind: str, name: str) -> str:
        if re.fullmatch(rf"{kind}-\d+", name):
            return name
        known = self._names[kind]
        return known.setdefault(name.lower(), f"{kind}-{len(known)}")


class _Index:
    """Finds the texts that hold a marker, by searching all of them as one."""

    def __init__(self, texts: Sequence[str]) -> None:
        joined = _SEPARATOR.join(texts)
        # bytes.lower changes ASCII letters only, so no text changes its length.
        self._bytes = joined.encode("utf-8", "surrogatepass").lower()
        ends = np.flatnonzero(np.frombuffer(self._bytes, np.uint8) == ord(_SEPARATOR))
        self._ends = ends if len(ends) == len(texts) - 1 else None
        """Where each text but the last ends; None if a text holds the separator itself."""
        self._num_texts = len(texts)

    def rows_with(self, markers: Iterable[str]) -> list[int]:
        """The texts with any of the markers, in order."""
        rows: set[int] = set()
        for marker in markers:
            wanted = marker.encode()
            if wanted not in self._bytes:
                continue
            if self._ends is None:
                return list(range(self._num_texts))
            found = re.finditer(re.escape(wanted), self._bytes)
            places = np.fromiter((match.start() for match in found), np.int64)
            rows.update(np.unique(np.searchsorted(self._ends, places)).tolist())
        return sorted(rows)
