"""The page in headless Chromium: its scripts run, tables sort, nothing overflows, nothing is requested."""

from __future__ import annotations

from dataclasses import replace

import browser
import pytest
import sample

from tokenpath.export import html
from tokenpath.export.numbers import scale_of

pytestmark = pytest.mark.slow

MEASURE = """
result.ready = document.documentElement.dataset.ready;
result.width = innerWidth;
result.scroll = document.documentElement.scrollWidth;
result.widest = [...document.querySelectorAll("main *")]
  .filter((node) => !node.closest("pre, svg, nav, .scroll") && node.getBoundingClientRect().right > innerWidth + 0.5)
  .map((node) => `${node.tagName}.${node.className}`).slice(0, 5);
result.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
result.title = document.title;
result.dark = getComputedStyle(document.body).backgroundColor;
const texts = (selector, root) => [...(root || document).querySelectorAll(selector)].map((node) => node.textContent);
"""
KERNELS = """
const table = document.querySelector("#table-kernels");
const names = () => texts("tbody td:first-child", table);
const click = (index) => table.querySelectorAll("thead button")[index].click();
const type = (text) => {
  const input = table.querySelector("input");
  input.value = text;
  input.dispatchEvent(new Event("input"));
};
result.first = names();
result.cells = [...table.querySelectorAll("tbody tr")].slice(0, 7).map((row) => texts("td", row));
click(0); result.ascending = names(); result.sorted = table.querySelector("[aria-sort]").getAttribute("aria-sort");
click(0); result.descending = names();
click(8); result.by_occupancy = texts("tbody td:nth-child(9)", table);
click(8); result.by_occupancy_up = texts("tbody td:nth-child(9)", table);
type("NCCL reduce"); result.filtered = names(); result.status = texts(".remark", table)[0];
type("no such kernel"); result.none = names();
type("");
[...table.querySelectorAll("button")].find((button) => button.textContent.startsWith("Show all")).click();
result.all = names().length;
const name = [...table.querySelectorAll(".name")].find((button) => button.textContent.includes("flash_fwd"));
const before = name.offsetHeight;
name.click(); result.grows = name.offsetHeight > before; result.full = name.textContent;
result.funnel = texts("#funnel li .num:nth-child(2)");
result.gains = texts(".gain");
result.sections = texts("#nav a");
const lane = document.querySelector(".lane svg");
const box = lane.getBoundingClientRect();
lane.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2 }));
result.readout = texts(".readout")[0];
"""


def check_frame(found: browser.Visit, width: int) -> None:
    assert found.console == []
    assert found.probe["ready"] == "true"
    assert found.probe["width"] == width
    assert found.probe["scroll"] <= width
    assert found.probe["widest"] == []
    assert found.probe["requests"] == []


def test_on_a_phone_the_page_works_and_fits(tmp_path) -> None:
    table = sample.kernel_table(60)
    report = replace(sample.with_devices(sample.report(), 8),
                     tables=[sample.idle_table(), table, sample.host_table()])  # fmt: skip
    found = browser.visit(html.render(report), tmp_path, 360, 800, MEASURE + KERNELS)
    check_frame(found, 360)
    probe = found.probe
    names = [row[0] for row in table.rows]
    assert probe["first"] == names[:10]
    assert probe["sorted"] == "ascending"
    assert probe["ascending"] == sorted(probe["ascending"], key=str.casefold)
    assert probe["descending"] != probe["ascending"]
    known = [float(cell) for cell in probe["by_occupancy"] if cell != "-"]
    assert known == sorted(known, reverse=True)
    rising = [float(cell) for cell in probe["by_occupancy_up"] if cell != "-"]
    assert rising == sorted(rising)
    assert rising != known
    assert len(probe["filtered"]) == 9
    assert all("ncclDevKernel_AllReduce" in name for name in probe["filtered"])
    assert probe["status"].startswith("9 of 9 rows")
    assert probe["none"] == []
    assert probe["all"] == 60
    assert probe["grows"]
    assert probe["full"].startswith(sample.ATTENTION_NAME)
    assert probe["sections"] == [
        "Where the time went", "Devices", "Findings", "Notes on the capture", "Idle causes", "Kernels",
        "Host calls", "Timeline", "Facts",
    ]  # fmt: skip
    assert probe["readout"].startswith("GPU 0, 150.00 ms: compute ")
    assert probe["funnel"][:3] == ["261.90ms", "233.41ms", "96.02ms"]
    assert probe["gains"][0] == "21.40 ms +- 1.10 (replayed) of 21.87 ms (8.4 %)"


def test_the_script_writes_numbers_as_the_terminal_does(tmp_path) -> None:
    table = sample.kernel_table()
    report = replace(sample.report(), tables=[table])
    script = (
        MEASURE
        + "result.rows = [...document.querySelectorAll('tbody tr')].map((row) => texts('td', row));"
    )
    found = browser.visit(html.render(report), tmp_path, 1280, 900, script, dark=True)
    check_frame(found, 1280)
    assert found.probe["dark"] == "rgb(19, 21, 25)"
    scales = [
        scale_of(column.unit, [row[i] for row in table.rows])
        for i, column in enumerate(table.columns)
    ]
    expected = [
        [scale.write(cell) for scale, cell in zip(scales, row, strict=True)] for row in table.rows
    ]
    assert found.probe["rows"] == expected


def test_hostile_names_are_text_and_fit_a_phone(tmp_path) -> None:
    script = MEASURE + "result.answers = texts('.answer'); result.images = document.images.length;"
    found = browser.visit(html.render(sample.hostile_report()), tmp_path, 360, 800, script)
    check_frame(found, 360)
    assert found.probe["title"] != "owned"
    assert found.probe["images"] == 0
    assert found.probe["answers"][0] == "<script>document.title='owned'</script>"


def test_the_policy_stops_a_script_that_got_in(tmp_path) -> None:
    page = html.render(sample.unusable_report())
    attack = "<script>document.title='owned'</script><img src='http://example.invalid/x.png'>"
    found = browser.visit(page.replace("</main>", f"{attack}</main>"), tmp_path, 360, 800, MEASURE)
    assert found.probe["title"] != "owned"
    assert any("Content Security Policy" in line for line in found.console)
    assert found.probe["ready"] == "true"
