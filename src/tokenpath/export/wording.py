"""Phrases that every medium for people shares, so that they cannot say different things."""

from __future__ import annotations

from tokenpath.core.finding import Evidence, Finding, Kind, Status
from tokenpath.core.report import Note, Report, Severity, Trust, Window
from tokenpath.core.units import format_duration
from tokenpath.export.numbers import Scale, duration_scale

_STATE_SENTENCES = {
    "synthetic": "SYNTHETIC: the input was generated; no number below was measured on hardware.",
    "simulated": "SIMULATED: every number below comes from a model, none was measured.",
}

NOT_IN_SUM = "beside the sum"
"""Remark on a funnel row that is no part of its parent."""


def state_sentence(report: Report) -> str:
    """What a report that is not measured says at its top; empty for one that is."""
    if report.state == "measured":
        return ""
    return _STATE_SENTENCES.get(report.state, f"{report.state.upper()}: not measured.")


def trust_sentence(report: Report) -> str:
    """What a capture that cannot support everything says at the top; empty for a good one."""
    if report.trust is Trust.GOOD:
        return ""
    codes = [note.code for note in report.notes if note.severity is not Severity.INFO]
    reason = f": {', '.join(codes)}; see the notes" if codes else ""
    return f"This capture is {report.trust}{reason}."


def withheld_reason(report: Report) -> str:
    """Why there is no funnel; empty when no note says so."""
    reasons = [note.sentence for note in report.notes if note.severity is Severity.WITHHELD]
    return f"withheld: {'; '.join(reasons)}" if reasons else ""


def window_text(window: Window) -> str:
    """The window, its length and why it was chosen."""
    length = format_duration(window.end_ns - window.start_ns)
    return f"{window.name}, {length}" + (f" ({window.reason})" if window.reason else "")


def gain(finding: Finding) -> str:
    """What fixing it would bring, how that was found, and the state of the number."""
    if finding.gain_ns is None:
        if finding.kind is Kind.ABSTENTION:
            return "cannot tell"
        return "about the capture" if finding.kind is Kind.QUALITY else "gain unknown"
    scale = duration_scale(abs(finding.gain_ns))
    text = f"{scale.write(finding.gain_ns)} {scale.unit}"
    remarks = []
    if finding.gain_interval_ns is not None:
        low, high = finding.gain_interval_ns
        half = (high - low) / 2
        if abs((high + low) / 2 - finding.gain_ns) <= half / 100:
            text += f" +- {scale.write(half)}"
        else:
            text += f", {scale.write(low)} to {scale.write(high)}"
    if finding.gain_method == "ceiling":
        text += " ceiling"
    elif finding.gain_method:
        remarks.append(finding.gain_method)
    if finding.status is not Status.MEASURED and finding.status != finding.gain_method:
        remarks.append(str(finding.status))
    return f"{text} ({', '.join(remarks)})" if remarks else text


def explained(finding: Finding) -> str:
    """The time that the gain is a part of, and its share; empty for a finding without one.

    A fix may bring more than the time it was seen by: what waited for that time moves up too.
    """
    if finding.duration_ns is None:
        return ""
    scale = duration_scale(abs(finding.duration_ns))
    relation = "of" if (finding.gain_ns or 0) <= finding.duration_ns else "beyond its"
    text = f"{relation} {scale.write(finding.duration_ns)} {scale.unit}"
    return text if finding.share is None else f"{text} ({percent(finding.share, 1)} %)"


def percent(part: float, whole: float) -> str:
    """`part` of `whole` in per cent with one decimal; `<0.1` for little, `n/a` of nothing."""
    return Scale(1, "%", 1).write(100 * part / whole) if whole else "n/a"


def support(finding: Finding) -> list[tuple[str, str]]:
    """What stands below the claim, as pairs of label and text: where, fix, check, evidence, more."""
    lines = [
        ("where", where(finding)),
        ("fix", finding.fix),
        ("check", finding.falsifier),
        *(("evidence", evidence_text(evidence)) for evidence in finding.evidence),
        ("more", f"tokenpath explain --about {finding.code}"),
    ]
    return [(label, text) for label, text in lines if text]


def where(finding: Finding) -> str:
    """Scope and place of a finding in one phrase; empty when it is about everything."""
    parts = [finding.scope] if finding.scope else []
    parts += [f"{key.replace('_', ' ')} {value}" for key, value in finding.place.items()]
    return ", ".join(parts)


def evidence_text(evidence: Evidence) -> str:
    """How many rows of which table, and the worst of them."""
    text = f"{evidence.num_rows:,} row{'s' if evidence.num_rows != 1 else ''} of {evidence.table}"
    return f"{text}, worst: {', '.join(map(str, evidence.rows))}" if evidence.rows else text


def note_label(note: Note) -> str:
    """What stands before a note."""
    return "withheld:" if note.severity is Severity.WITHHELD else str(note.severity)
