"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("top");
  const FIRST_ROWS = matchMedia("(max-width: 700px)").matches ? 10 : 25;
  const TONE_WORDS = { busy: "computing", communication: "communicating", memcpy: "copying", idle: "waiting", unknown: "unattributed" };

  // Text only ever enters the page as a text node or an attribute value.
  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    fill(node, attributes, children);
    return node;
  }
  function draw(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    fill(node, attributes, children);
    return node;
  }
  function fill(node, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "onclick") node.addEventListener("click", value);
      else if (value !== null && value !== false) node.setAttribute(key, value);
    }
    node.append(...children.flat(2).filter((child) => child !== null && child !== ""));
  }
  const count = (number) => number.toLocaleString("en-US");
  const percent = (share) => `${100 * share}%`;
  const leftOut = (number, what) => number ? make("p", { class: "soft remark" }, `${count(number)} more ${what} not shown; --json has them.`) : null;

  function section(id, title, ...children) {
    const heading = make("h2", {}, title);
    main.append(make("section", { id }, heading, children));
    document.getElementById("nav").append(make("a", { href: `#${id}` }, title));
    return heading;
  }
  function place(node, left, width) {
    node.style.left = percent(left);
    node.style.width = percent(width);
    return node;
  }
  function stack(segments) {
    const parts = segments.map(([tone, share, text]) => {
      const part = make("i", { class: tone, title: `${TONE_WORDS[tone]} ${text}` });
      part.style.width = percent(share);
      return part;
    });
    return make("div", { class: "stack" }, parts);
  }

  function showHero() {
    const isBad = data.trust_word === "unusable";
    const hero = make("section", { class: "hero" },
      make(data.answer.length ? "p" : "h1", { class: data.answer.length ? "headline" : "answer first" }, data.headline),
      data.state ? make("p", { class: "banner" }, data.state) : null,
      data.trust ? make("p", { class: isBad ? "banner bad" : "banner" }, data.trust) : null,
      data.answer.map((sentence, index) => make(index ? "p" : "h1", { class: index ? "answer" : "answer first" }, sentence)));
    if (data.spent) {
      const segments = data.spent.lines[0].segments;
      hero.append(make("div", { class: "spent" }, stack(segments), make("div", { class: "legend" },
        segments.map(([tone, , text]) => make("span", {}, make("i", { class: `dot ${tone}` }), TONE_WORDS[tone], make("b", {}, text))))));
    }
    if (data.window) hero.append(make("p", { class: "soft window" }, `Window: ${data.window}`));
    main.append(hero);
  }

  function funnelList(funnel) {
    const hasNotes = funnel.rows.some((row) => row.note);
    return make("ol", { class: hasNotes ? "funnel with-notes" : "funnel" }, funnel.rows.map((row) => make("li",
      { class: `depth${row.depth}${row.is_part ? "" : " beside"}` },
      make("span", { class: `indent${Math.min(row.depth, 4)}` }, row.label),
      make("span", { class: "num" }, row.number, make("small", {}, funnel.unit)),
      make("span", { class: "num" }, row.percent, make("small", {}, "%")),
      make("div", { class: "track" }, row.width ? place(make("i", { class: row.tone }), row.left, row.width) : null),
      row.note ? make("span", { class: "note" }, row.note) : null)));
  }
  function showFunnel() {
    if (data.funnel) section("funnel", "Where the time went", funnelList(data.funnel));
    else if (data.withheld) section("funnel", "Where the time went", make("p", {}, data.withheld));
  }
  function showOverview(id, title, overview, what) {
    if (!overview) return;
    const lines = overview.lines.map((line) => {
      const worst = line.segments.find(([tone]) => tone === "idle");
      const cells = [make("span", {}, line.title), make("span", { class: "num" }, line.wall), stack(line.segments),
        make("span", { class: "num soft" }, worst ? worst[2] : "0.0 %")];
      return line.funnel
        ? make("details", { class: "device" }, make("summary", { class: "line" }, cells), funnelList(line.funnel))
        : make("div", { class: "line" }, cells);
    });
    section(id, title, make("div", { class: "lines" }, lines), leftOut(overview.left_out, what))
      .append(make("small", {}, "wall, and the share of it spent waiting"));
  }

  function copyButton(text) {
    const button = make("button", { class: "copy", type: "button", title: "Copy" }, text);
    button.addEventListener("click", () => {
      if (navigator.clipboard) navigator.clipboard.writeText(text).catch(() => {});
      getSelection().selectAllChildren(button);
    });
    return button;
  }
  function pairs(list, className) {
    return make("dl", { class: "support" }, list.map(([label, value]) => [
      make("dt", {}, label),
      make("dd", { class: className || (label === "fix" ? "fix" : "") }, label === "more" ? copyButton(value) : value)]));
  }
  function more(title, list) {
    return list.length ? make("details", { class: "more" }, make("summary", {}, title), pairs(list, "mono")) : null;
  }
  function worth(finding) {
    if (!finding.explained_share && !finding.gain_share) return null;
    const between = finding.interval;
    return make("div", { class: "worth", title: `${finding.gain} ${finding.explained}` },
      place(make("i", { class: "explained" }), 0, finding.explained_share),
      finding.gain_share ? place(make("i", { class: "gained" }), 0, finding.gain_share) : null,
      between ? place(make("i", { class: "between" }), between[0], between[1] - between[0]) : null);
  }
  function showFindings() {
    if (!data.findings.length) return;
    const cards = data.findings.map((finding, index) => make("li", { class: `card ${finding.kind}` },
      make("header", {}, make("span", { class: "rank" }, String(index + 1)), make("h3", { class: "code" }, finding.code),
        make("span", { class: finding.gain_share ? "gain" : "gain none" }, finding.gain,
          finding.explained ? make("small", {}, ` ${finding.explained}`) : null)),
      worth(finding),
      make("p", { class: "claim" }, finding.sentence),
      pairs(finding.support),
      more("Numbers", [...finding.queries.map((query) => ["query", query]), ...finding.details])));
    section("findings", "Findings", make("ol", { class: "cards" }, cards), leftOut(data.findings_left_out, "findings"))
      .append(make("small", {}, "by what fixing them would bring"));
  }
  function showDismissed() {
    if (!data.dismissed.length) return;
    main.append(make("section", { id: "dismissed" }, make("h2", {}, "Not worth it"),
      make("p", {}, data.dismissed.join(", ")), leftOut(data.dismissed_left_out, "phrases")));
  }
  function showNotes() {
    if (!data.notes.length) return;
    section("notes", "Notes on the capture", make("ul", { class: "notes" }, data.notes.map((note) => make("li",
      { class: note.severity }, make("span", { class: "tag" }, note.label),
      make("div", {}, note.sentence, more(note.code, note.details))))), leftOut(data.notes_left_out, "notes"));
  }

  function written(value, column) {
    if (value === null) return "-";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (typeof value === "string") return value;
    const text = (value / column.divisor).toLocaleString("en-US",
      { minimumFractionDigits: column.decimals, maximumFractionDigits: column.decimals });
    const isLost = value !== 0 && !/[1-9]/.test(text);
    return isLost ? `${value > 0 ? "<" : ">-"}${(10 ** -column.decimals).toFixed(column.decimals)}` : text;
  }
  function compare(a, b) {
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    return typeof a === "string" || typeof b === "string" ? -String(a).localeCompare(String(b), "en") : b - a;
  }
  function nameButton(text, isCode) {
    const button = make("button", { class: isCode ? "name code-name" : "name", type: "button", title: text }, text);
    button.addEventListener("click", () => button.classList.toggle("open"));
    return button;
  }
  function tableRow(row, index, table) {
    return make("tr", {}, row.map((value, position) => {
      const column = table.columns[position];
      const minor = (column.is_key_figure ? "" : " minor") + (value === null && position ? " none" : "");
      if (column.is_text) {
        const tone = column.tones && column.tones[index];
        const cell = make("td", { class: `t${minor}`, "data-label": position ? column.label : null });
        if (tone) cell.append(make("span", {}, make("i", { class: `dot ${tone}` }), written(value, column)));
        else cell.append(nameButton(written(value, column), column.key === "name"));
        return cell;
      }
      const unit = column.unit ? ` ${column.unit}` : "";
      const cell = make("td", { class: `n${column.is_share ? " share" : ""}${minor}`, "data-label": column.label + unit }, written(value, column));
      if (column.is_share && value > 0) cell.style.setProperty("--part", String(Math.min(value, 1)));
      return cell;
    }));
  }
  const NAME_WIDTH = 16;
  // In rem; a heading of two words breaks between them.
  function columnWidth(column, position) {
    if (position === 0) return NAME_WIDTH;
    if (column.is_text) return 9.5;
    return Math.min(Math.max(column.label.length * 0.5 + 1.6, 4.9), 6.5);
  }
  function tableWidth(columns, withMinor) {
    const widths = columns.map((column, position) => (withMinor || column.is_key_figure ? columnWidth(column, position) : 0));
    return `${widths.reduce((sum, width) => sum + width, 0)}rem`;
  }

  function showTable(table) {
    // Positions in table.rows, so that a row keeps its colour and its place in the report.
    const order = table.rows.map((_, index) => index);
    const haystack = table.rows.map((row) => row.filter((cell) => typeof cell === "string").join("\n").toLowerCase());
    const state = { column: null, sign: 1, words: [], shown: FIRST_ROWS };
    const body = make("tbody", {});
    const status = make("p", { class: "soft remark" });
    const showAll = make("button", { class: "plainly", type: "button", onclick: () => { state.shown = Infinity; update(); } });
    const heads = table.columns.map((column, position) => {
      const button = make("button", { type: "button" }, column.label + (column.unit ? ` ${column.unit}` : ""));
      const head = make("th", { scope: "col", class: `${column.is_text ? "t" : "n"}${column.is_key_figure ? "" : " minor"}` }, button);
      if (position) head.style.width = `${columnWidth(column, position)}rem`;
      button.addEventListener("click", () => {
        state.sign = state.column === position ? -state.sign : column.is_text ? -1 : 1;
        state.column = position;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", state.sign > 0 ? "descending" : "ascending");
        update();
      });
      return head;
    });
    function update() {
      const found = order.filter((index) => state.words.every((word) => haystack[index].includes(word)));
      if (state.column !== null) {
        const at = (index) => table.rows[index][state.column];
        // Unknown cells stay last either way.
        found.sort((a, b) => (at(a) === null || at(b) === null ? compare(at(a), at(b)) : state.sign * compare(at(a), at(b))) || a - b);
      }
      const visible = found.slice(0, state.shown);
      body.replaceChildren(...visible.map((index) => tableRow(table.rows[index], index, table)));
      showAll.textContent = `Show all ${count(found.length)}`;
      showAll.hidden = visible.length === found.length;
      const absent = table.num_rows_in_all - table.rows.length;
      status.textContent = [
        found.length < table.rows.length || visible.length < found.length ? `${count(visible.length)} of ${count(found.length)} rows` : "",
        absent ? `${count(absent)} smaller rows are not in this page` : "", table.note || "",
      ].filter(Boolean).join(". ");
    }
    const filter = make("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${table.title}`, autocomplete: "off" });
    filter.addEventListener("input", () => {
      state.words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      update();
    });
    const hasMinor = table.columns.some((column) => !column.is_key_figure);
    const isCrowded = hasMinor && table.columns.length > 7;
    const grid = make("table", { class: isCrowded ? "crowded" : "" }, make("thead", {}, make("tr", {}, heads)), body);
    grid.style.setProperty("--all", tableWidth(table.columns, true));
    grid.style.setProperty("--key", tableWidth(table.columns, !isCrowded));
    const wider = make("button", { class: isCrowded ? "plainly" : "plainly wider", type: "button", onclick: () => grid.classList.toggle("all") }, "All columns");
    const tools = [table.rows.length > 8 ? filter : null, hasMinor ? wider : null].filter(Boolean);
    update();
    section(`table-${table.key}`, table.title[0].toUpperCase() + table.title.slice(1),
      tools.length ? make("div", { class: "tools" }, tools) : null, make("div", { class: "scroll" }, grid), status, showAll)
      .append(make("small", {}, `${count(table.num_rows_in_all)} rows`));
  }

  function lanePath(bins, base) {
    // Up the steps of this category, and back along the top of the one below it.
    let up = "", down = "";
    bins.forEach((value, index) => {
      up += `L${index} ${1000 - base[index] - value}H${index + 1}`;
      down = `H${index}V${index ? 1000 - base[index - 1] : 1000 - base[0]}${down}`;
    });
    return `M0 ${1000 - (base[0] || 0)}${up}L${bins.length} ${1000 - (base[bins.length - 1] || 0)}${down}Z`;
  }
  function showLane(lane, timeline, readout) {
    const num = Math.max(1, ...lane.categories.map((category) => category.bins.length));
    const base = new Array(num).fill(0);
    const paths = lane.categories.map((category) => {
      const path = draw("path", { class: category.tone, d: lanePath(category.bins, base) });
      category.bins.forEach((value, index) => { base[index] += value; });
      return path;
    });
    const [from, to] = timeline.window.map((share) => share * num);
    const cursor = draw("line", { class: "cursor", y1: 0, y2: 1000, x1: -1, x2: -1 });
    const picture = draw("svg", { viewBox: `0 0 ${num} 1000`, preserveAspectRatio: "none", role: "img", "aria-label": lane.label }, paths,
      draw("rect", { class: "outside", x: 0, y: 0, width: from, height: 1000 }),
      draw("rect", { class: "outside", x: to, y: 0, width: num - to, height: 1000 }),
      [from, to].map((x) => draw("line", { class: "edge", x1: x, x2: x, y1: 0, y2: 1000 })), cursor);
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const bin = Math.min(num - 1, Math.max(0, Math.floor(num * (event.clientX - box.left) / box.width)));
      cursor.setAttribute("x1", bin + 0.5);
      cursor.setAttribute("x2", bin + 0.5);
      const parts = lane.categories.filter((category) => category.bins[bin]).map((category) => `${category.name} ${(category.bins[bin] / 10).toFixed(1)} %`);
      parts.push(`idle ${(Math.max(0, 1000 - base[bin]) / 10).toFixed(1)} %`);
      readout.textContent = `${lane.label}, ${(timeline.length * bin / num).toFixed(2)} ${timeline.unit}: ${parts.join(", ")}`;
    });
    return make("div", { class: "lane" }, make("div", { class: "soft" }, lane.label), picture);
  }
  function showTimeline() {
    const timeline = data.timeline;
    if (!timeline) return;
    const readout = make("p", { class: "soft readout", "aria-live": "polite" }, "Point at or tap a lane to read it.");
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => {
      const tick = make("span", {}, `${(timeline.length * share).toLocaleString("en-US", { maximumFractionDigits: 1 })} ${timeline.unit}`);
      tick.style.left = percent(share);
      return tick;
    });
    const names = new Map(timeline.lanes.flatMap((lane) => lane.categories.map((category) => [category.name, category.tone])));
    section("timeline", "Timeline",
      make("div", { class: "legend" }, [...names].map(([name, tone]) => make("span", {}, make("i", { class: `dot ${tone}` }), name))),
      timeline.lanes.map((lane) => showLane(lane, timeline, readout)), make("div", { class: "axis" }, ticks), readout,
      leftOut(timeline.left_out, "lanes"))
      .append(make("small", {}, `share of each ${timeline.bin}; outside the window is faded`));
  }
  function showFacts() {
    if (!data.facts) return;
    section("facts", "Facts", make("details", { class: "more" }, make("summary", {}, "Sources, devices and what was skipped"),
      make("pre", {}, data.facts)), leftOut(data.facts_left_out, "characters"));
  }

  showHero();
  data.tables.filter((table) => table.is_lead).forEach(showTable);
  showFunnel();
  showOverview("devices", "Devices", data.devices, "devices");
  showOverview("requests", "Requests", data.requests, "latencies");
  showFindings();
  showDismissed();
  showNotes();
  showOverview("steps", "Steps", data.steps, "steps");
  data.tables.filter((table) => !table.is_lead).forEach(showTable);
  showTimeline();
  showFacts();
  document.documentElement.dataset.ready = "true";
})();
