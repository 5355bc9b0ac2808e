// The charts, drawn from what the model decided; colours come from the page's own style.

const NARROW = 640;
const BLUES = ["#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b"];
const LEGEND = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } };
let paper = false; // printing

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function isNarrow() {
  return document.documentElement.clientWidth < NARROW && !paper;
}

function axis(title, more = {}) {
  return {
    title: { text: title, standoff: 8, font: { size: 13 } },
    gridcolor: colour("line"),
    linecolor: colour("muted"),
    zerolinecolor: colour("line"),
    fixedrange: true,
    automargin: true,
    ...more,
  };
}

/** An axis of draft lengths: every one named while there is room. */
function lengthAxis(lengths) {
  const longest = lengths[lengths.length - 1];
  const range = [-0.6, longest + 0.6];
  return axis("draft length D", { range, tick0: 0, dtick: Math.ceil((longest + 1) / 12) });
}

/** A logarithmic axis from low to high, labelled in plain numbers: 1, 2, 5, 10, ... */
function logAxis(title, low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    ticks.push(...[1, 2, 5].map((step) => step * 10 ** power));
  }
  const shown = ticks.filter((tick) => tick >= low && tick <= high);
  const many = shown.length > (isNarrow() ? 6 : 9) ? shown.filter((tick) => Number.isInteger(Math.log10(tick))) : shown;
  return axis(title, {
    type: "log",
    range: [Math.log10(low), Math.log10(high)],
    tickvals: many,
    ticktext: many.map((tick) => (tick >= 1 ? tick.toLocaleString("en") : String(tick))),
  });
}

function draw(id, traces, layout, alternative) {
  const place = document.getElementById(id);
  place.setAttribute("aria-label", alternative);
  const whole = {
    font: { family: "system-ui, sans-serif", size: 13, color: colour("ink") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 52, r: 12, t: 12, b: 44 },
    height: 400,
    width: paper ? 660 : undefined,
    autosize: !paper,
    dragmode: false,
    hoverlabel: { font: { family: "system-ui, sans-serif" } },
    legend: LEGEND,
    ...layout,
  };
  return Plotly.react(place, traces, whole, { displayModeBar: false, responsive: !paper });
}

/** Positions of the draft lengths that can be run. */
function usable(own) {
  return own.usable.map((ok, i) => (ok ? i : -1)).filter((i) => i >= 0);
}

function drawSpeedup({ data, own, batch }) {
  const positions = usable(own);
  const x = positions.map((i) => data.draft_lengths[i]);
  const of = (values) => positions.map((i) => values[i]);
  const blue = colour("accent");
  const marks = positions.map((i) => (i === own.best ? 13 : 7));
  const filled = positions.map((i) => (own.tie[i] ? blue : colour("card")));
  const quiet = { hoverinfo: "skip", showlegend: false, mode: "lines" };
  draw(
    "speedup",
    [
      { x, y: of(own.high), ...quiet, line: { width: 0 } },
      { x, y: of(own.low), ...quiet, line: { width: 0 }, fill: "tonexty", fillcolor: colour("band"), showlegend: true, name: "model error" },
      {
        x, y: of(own.speedup), mode: "lines+markers", name: `batch ${batch}`,
        line: { color: blue, width: 2.5 },
        marker: { size: marks, color: filled, opacity: 1, line: { color: blue, width: 2 } },
        hovertemplate: "D = %{x}: %{y:.3f}x<extra></extra>",
      },
      { x: [x[0], x[x.length - 1]], y: [1, 1], ...quiet, line: { color: colour("muted"), width: 1, dash: "dash" } },
    ],
    {
      xaxis: lengthAxis(x),
      yaxis: axis("speedup over plain decoding", { ticksuffix: "x" }),
    },
    `Speedup by draft length at batch ${batch}: best ${fixed(own.speedup[own.best], 2)} times at D = ${data.draft_lengths[own.best]}. The table of draft lengths has the numbers.`,
  );
}

function drawBreakdown({ data, own, batch }) {
  const positions = usable(own);
  const x = positions.map((i) => data.draft_lengths[i]);
  const traces = data.slices
    .filter(({ key }) => own.cell.slices[key])
    .map(({ key, name, colour: own_colour }) => ({
      type: "bar", x, y: positions.map((i) => own.cell.slices[key][i]), name,
      marker: { color: own_colour, line: { color: colour("ink"), width: 0.5 } },
      hovertemplate: `${name}: %{y:.3f} ms<extra>D = %{x}</extra>`,
    }));
  traces.push({
    x, y: positions.map((i) => (1e3 * own.cell.step[i]) / own.tokens[i]),
    mode: "lines+markers", name: "time per token",
    line: { color: colour("ink"), width: 1.5 },
    marker: { symbol: "diamond", size: 9, color: colour("card"), line: { color: colour("ink"), width: 1.5 } },
    hovertemplate: "time per token: %{y:.3f} ms<extra>D = %{x}</extra>",
  });
  draw(
    "breakdown", traces,
    {
      barmode: "stack",
      height: isNarrow() ? 480 : 400,
      legend: isNarrow() ? LEGEND : { ...LEGEND, entrywidth: 0.48, entrywidthmode: "fraction" },
      xaxis: lengthAxis(x),
      yaxis: axis("one step (ms)", { rangemode: "tozero" }),
    },
    `Time of one step by draft length at batch ${batch}, split into verify, draft and overhead.`,
  );
}

function drawHeatmap({ data, state, decided }) {
  const grid = data.batches.map((_, b) => data.contexts.map((_, c) => decided(b, c)));
  const z = grid.map((line) => line.map((own) => own && data.draft_lengths[own.best]));
  const narrow = isNarrow();
  const text = grid.map((line) =>
    line.map((own) => {
      if (own === null) return "";
      const length = data.draft_lengths[own.best];
      if (!length && !own.usable.some((usable, i) => usable && data.draft_lengths[i])) return "no room";
      return narrow || !length ? `${length}` : `${length}: ${fixed(own.speedup[own.best], 2)}x`;
    }),
  );
  const longest = Math.max(...data.draft_lengths);
  const steps = data.draft_lengths.map((d) => (d ? BLUES[Math.ceil(((BLUES.length - 1) * d) / longest)] : colour("grey")));
  const scale = data.draft_lengths.flatMap((_, i) => [[i / steps.length, steps[i]], [(i + 1) / steps.length, steps[i]]]);
  draw(
    "heatmap",
    [{
      type: "heatmap", z, text, x: data.context_names, y: data.batches.map(String),
      colorscale: scale, zmin: -0.5, zmax: longest + 0.5, showscale: false, xgap: 1, ygap: 1,
      texttemplate: "%{text}", textfont: { size: narrow ? 12 : 11 }, hoverongaps: false,
      hovertemplate: "batch %{y}, context %{x}<br>D = %{text}<extra></extra>",
    }],
    {
      height: 120 + 24 * data.batches.length,
      xaxis: axis("context (tokens)", { type: "category", showgrid: false }),
      yaxis: axis("batch", { type: "category", showgrid: false }),
      shapes: [{
        type: "rect", x0: state.context - 0.5, x1: state.context + 0.5,
        y0: state.batch - 0.5, y1: state.batch + 0.5, line: { color: colour("strong"), width: 3 },
      }],
    },
    "Best draft length by batch and context. The table of the grid has the numbers of one context.",
  );
}

/** Keep the points that no other beats in one respect without losing in the other. */
function undominated(points) {
  const beats = (p, q) => p.x >= q.x && p.y >= q.y && (p.x > q.x || p.y > q.y);
  return points.filter((q) => !points.some((p) => beats(p, q)));
}

function drawFrontier({ data, state, decided }) {
  const fits = data.batches
    .map((batch, b) => ({ batch, own: decided(b, state.context), here: b === state.batch }))
    .filter(({ own }) => own !== null);
  const curve = (position) =>
    undominated(
      fits.map(({ batch, own, here }) => {
        const i = position(own);
        const x = own.tokens[i] / own.cell.step[i];
        return { batch, here, x, y: (x * batch) / data.gpus, length: data.draft_lengths[i] };
      }),
    );
  const plain = curve(() => 0);
  const advised = curve((own) => own.best);
  const power = ({ batch }) => !(batch & (batch - 1));
  const trace = (points, name, shade, small, look) => ({
    x: points.map((p) => p.x), y: points.map((p) => p.y), name,
    mode: "lines+markers+text", textfont: { size: 11 }, cliponaxis: false,
    marker: { size: points.map((p) => (p.here ? 13 : small)), color: shade, opacity: 1, symbol: look.symbol },
    line: { color: shade, width: 2, dash: look.dash },
    text: points.map((p) => (power(p) ? look.text(p) : "")), textposition: look.place,
    customdata: points.map((p) => `batch ${p.batch}, D = ${p.length}`),
    hovertemplate: "%{customdata}: %{x:.1f} tokens/s of one user, %{y:.0f} of one GPU<extra></extra>",
  });
  const all = [...plain, ...advised];
  const span = (values) => [Math.min(...values) / 1.5, Math.max(...values) * 1.5];
  draw(
    "frontier",
    [
      trace(plain, "plain decoding", colour("ink"), 6, { symbol: "square", dash: "dash", place: "bottom left", text: (p) => `B = ${p.batch}` }),
      trace(advised, "at the advised draft length", colour("accent"), 7, { symbol: "circle", dash: "solid", place: "top right", text: (p) => (p.length ? `D = ${p.length}` : "") }),
    ],
    {
      xaxis: logAxis("tokens/s of one user", ...span(all.map((p) => p.x))),
      yaxis: logAxis("tokens/s of one GPU", ...span(all.map((p) => p.y))),
    },
    "Throughput of one GPU against tokens per second of one user, by batch, without drafts and at the advised draft length.",
  );
}

function drawRoofline({ data }) {
  const tracks = new Map();
  for (const kernel of data.kernels) {
    const key = `${kernel.group}/${kernel.op}`;
    if (!tracks.has(key)) tracks.set(key, []);
    tracks.get(key).push(kernel);
  }
  const all = data.kernels.filter((k) => k.group !== "roof" && k.intensity_flop_per_byte > 0);
  const shares = (track) => Math.max(...track.map((k) => k.share_of_step ?? 0));
  const from = Math.min(...all.map((k) => k.intensity_flop_per_byte)) / 1.5;
  const roofs = data.kernels.filter((k) => k.group === "roof");
  const to = Math.max(...roofs.map((k) => 4 * k.intensity_flop_per_byte), ...all.map((k) => 1.5 * k.intensity_flop_per_byte));
  const lowest = Math.min(...all.map((k) => k.attained_tflop_per_s));
  const highest = Math.max(...roofs.map((k) => k.attained_tflop_per_s));
  const named = new Set();
  const traces = roofs.map((roof) => {
    const ridge = roof.intensity_flop_per_byte;
    const peak = roof.attained_tflop_per_s;
    const sheet = roof.op.endsWith("datasheet");
    return {
      x: [from, ridge, to], y: [(peak * from) / ridge, peak, peak], mode: "lines", name: `roof: ${roof.op}`,
      line: { color: colour("muted"), width: 1.5, dash: sheet ? "dash" : "solid" }, hoverinfo: "skip",
    };
  });
  for (const track of tracks.values()) {
    const { group, op } = track[0];
    if (group === "roof" || shares(track) < 0.01) continue;
    const look = data.groups[group];
    const own = look.colour === "#000000" ? colour("ink") : look.colour;
    traces.push({
      x: track.map((k) => k.intensity_flop_per_byte), y: track.map((k) => k.attained_tflop_per_s),
      mode: "lines+markers", name: look.name, legendgroup: group, showlegend: !named.has(group),
      line: { color: own, width: 1.5 },
      marker: { size: track.map((_, i) => (i ? 6 : 9)), opacity: 1, color: track.map((_, i) => (i ? own : colour("card"))), line: { color: own, width: 1.5 } },
      customdata: track.map((k) => `${op}, D = ${k.draft_length}, ${fixed(k.time_ms, 3)} ms`),
      hovertemplate: "%{customdata}<br>%{x:.3g} FLOP/B, %{y:.3g} TFLOP/s<extra></extra>",
    });
    named.add(group);
  }
  draw(
    "roofline", traces,
    {
      xaxis: logAxis("FLOP for each byte moved", from, to),
      yaxis: logAxis("TFLOP/s of one GPU", lowest / 1.5, highest * 1.5),
    },
    "Attained rate against arithmetic intensity of every kernel as the draft length grows, under the roofs of datasheet and law.",
  );
}

function drawCharts(view) {
  const { data, state, decided } = view;
  const own = decided(state.batch, state.context);
  const whole = { ...view, own, batch: data.batches[state.batch] };
  for (const id of ["speedup", "breakdown"]) document.getElementById(id).hidden = own === null;
  if (own !== null) {
    drawSpeedup(whole);
    drawBreakdown(whole);
  }
  drawHeatmap(whole);
  drawFrontier(whole);
  if (view.still) drawRoofline(whole); // it does not follow the sliders
}

/** Call back when light turns dark, and before and after printing. */
function whenLooksChange(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia(`(max-width: ${NARROW}px)`).addEventListener("change", redraw);
  const print = (now) => () => {
    if (paper === now) return;
    paper = now;
    redraw();
  };
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
  matchMedia("print").addEventListener("change", (e) => print(e.matches)());
}

/** Call back with the batch and context of a clicked cell of the heatmap. */
function onCell(choose) {
  queueMicrotask(() => {
    const place = document.getElementById("heatmap");
    place.on("plotly_click", ({ points }) => choose(points[0].pointIndex[0], points[0].pointIndex[1]));
  });
}
