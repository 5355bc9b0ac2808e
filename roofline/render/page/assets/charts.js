// The charts, drawn from what the model decided; colours come from the page's own style.

const NARROW = 640;
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

/** An axis of draft lengths: every one named while there is room, and those past the graphs. */
function lengthAxis(lengths, past = []) {
  const longest = lengths[lengths.length - 1];
  const named = lengths.filter((length) => length % Math.ceil((longest + 1) / 12) === 0);
  return axis("draft length D", {
    range: [-0.6, longest + 0.6],
    tickvals: named,
    ticktext: named.map((length) => (past.includes(length) ? `${length}<br>\u00d7` : String(length))),
  });
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

function card(id) {
  return document.getElementById(id).closest("figure");
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
  const filled = positions.map((i) => (own.tie.includes(i) ? blue : colour("card")));
  const symbols = positions.map((i) => (own.kept[i] ? "circle" : "x-thin"));
  const quiet = { hoverinfo: "skip", showlegend: false, mode: "lines" };
  draw(
    "speedup",
    [
      { x, y: of(own.high), ...quiet, line: { width: 0 } },
      { x, y: of(own.low), ...quiet, line: { width: 0 }, fill: "tonexty", fillcolor: colour("band"), showlegend: true, name: "likely range" },
      {
        x, y: of(own.speedup), mode: "lines+markers", name: `batch ${batch}`,
        line: { color: blue, width: 2.5 },
        marker: { size: marks, color: filled, symbol: symbols, opacity: 1, line: { color: blue, width: 2 } },
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

function drawCosts({ data, own, batch }) {
  const positions = usable(own);
  const x = positions.map((i) => data.draft_lengths[i]);
  const tokens = positions.map((i) => own.tokens[i]);
  const ratio = positions.map((i) => own.cell.step[i] / own.cell.step[0]);
  const shown = [...tokens, ...positions.filter((i) => own.kept[i]).map((i) => 1 / own.cell.low[i])];
  const top = Math.max(...shown) * 1.08;
  const blue = colour("accent");
  const quiet = { hoverinfo: "skip", showlegend: false, mode: "lines", line: { width: 0 } };
  draw(
    "costs",
    [
      { x, y: tokens, ...quiet },
      { x, y: x.map(() => top), ...quiet, fill: "tonexty", fillcolor: colour("loss"), showlegend: true, name: "slower than plain" },
      { x, y: positions.map((i) => 1 / own.cell.low[i]), ...quiet },
      { x, y: positions.map((i) => 1 / own.cell.high[i]), ...quiet, fill: "tonexty", fillcolor: colour("band"), showlegend: true, name: "likely range" },
      {
        x, y: tokens, mode: "lines+markers", name: "AL(D)",
        line: { color: colour("ink"), width: 2.5 }, marker: { size: 7, symbol: "star", color: colour("ink") },
        hovertemplate: "AL(%{x}) = %{y:.3f}<extra></extra>",
      },
      {
        x, y: ratio, mode: "lines+markers", name: "cost ratio R(D)",
        line: { color: blue, width: 2.5, dash: "dash" },
        marker: {
          size: positions.map((i) => (i === own.best ? 13 : 7)), opacity: 1,
          symbol: positions.map((i) => (own.kept[i] ? "circle" : "x-thin")),
          color: positions.map((i) => (i === own.best ? blue : colour("card"))), line: { color: blue, width: 2 },
        },
        hovertemplate: "R(%{x}) = %{y:.3f}<extra></extra>",
      },
    ],
    { xaxis: lengthAxis(x), yaxis: axis("plain steps, tokens", { range: [0.8, top] }), legend: twoColumns() },
    `Cost ratio and tokens per step by draft length at batch ${batch}. The table of draft lengths has the numbers.`,
  );
}

function twoColumns() {
  return isNarrow() ? LEGEND : { ...LEGEND, entrywidth: 0.48, entrywidthmode: "fraction" };
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
      legend: twoColumns(),
      xaxis: lengthAxis(x, positions.filter((i) => !own.kept[i]).map((i) => data.draft_lengths[i])),
      yaxis: axis("one step (ms)", { rangemode: "tozero" }),
    },
    `Time of one step by draft length at batch ${batch}, split into verify, draft and overhead.`,
  );
}

function drawHeatmap({ data, state, cellNow }) {
  const grid = data.batches.map((_, b) => data.contexts.map((_, c) => cellNow(b, c)));
  const z = grid.map((line) => line.map((own) => own && data.draft_lengths[own.best]));
  const narrow = isNarrow();
  const text = grid.map((line) =>
    line.map((own) => {
      if (own === null) return "";
      const length = data.draft_lengths[own.best];
      const cause = data.words.cells[own.limit];
      if (cause && !narrow) return cause;
      return narrow || !length ? `${length}` : `${length}: ${fixed(own.speedup[own.best], 2)}x`;
    }),
  );
  const longest = Math.max(...data.draft_lengths);
  const steps = data.draft_lengths.map((d) => (d ? data.shades[d] : colour("grey")));
  const edge = (i) => (i <= 0 ? 0 : i >= steps.length ? 1 : (data.draft_lengths[i - 1] + data.draft_lengths[i] + 1) / 2 / (longest + 1));
  const scale = steps.flatMap((shade, i) => [[edge(i), shade], [edge(i + 1), shade]]);
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

function drawFrontier({ data, state, cellNow }) {
  const fits = data.batches
    .map((batch, b) => ({ batch, own: cellNow(b, state.context), here: b === state.batch }))
    .filter(({ own }) => own !== null);
  const curve = (members, position) =>
    fits.filter(members).map(({ batch, own, here }) => {
      const i = position(own);
      const x = own.tokens[i] / own.cell.step[i];
      return { batch, here, x, y: (x * batch) / data.gpus, length: data.draft_lengths[i] };
    });
  const plain = curve(({ own }) => own.cell.on_plain_curve, () => 0);
  const advised = curve(({ own }) => own.on_curve, (own) => own.best);
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
      ...(data.draft_lengths.length > 1
        ? [trace(advised, "at the advised draft length", colour("accent"), 7, { symbol: "circle", dash: "solid", place: "top right", text: (p) => (p.length ? `D = ${p.length}` : "") })]
        : []),
    ],
    {
      xaxis: logAxis("tokens/s of one user", ...span(all.map((p) => p.x))),
      yaxis: logAxis("tokens/s of one GPU", ...span(all.map((p) => p.y))),
    },
    "Throughput of one GPU against tokens per second of one user, by batch, without drafts and at the advised draft length.",
  );
}

/** One roof for each number format, and the track of each kernel; all are named beside the plot. */
function drawRoofline({ data }) {
  const xs = data.tracks.flatMap((track) => track.x);
  const ys = data.tracks.flatMap((track) => track.y);
  const from = Math.min(...xs) / 1.5;
  const to = Math.max(...data.roofs.map((roof) => 2 * roof.x), ...xs.map((x) => 1.5 * x));
  const highest = Math.max(...data.roofs.map((roof) => roof.y), ...ys);
  const roofs = data.roofs.map((roof, i) => ({
    x: [from, roof.x, to], y: [(roof.y * from) / roof.x, roof.y, roof.y], mode: "lines", name: roof.name,
    line: { color: colour("muted"), width: 2, dash: i ? "longdash" : "solid" }, hoverinfo: "skip",
  }));
  const tracks = data.tracks.map((track) => {
    const own = track.colour === "#000000" ? colour("ink") : track.colour;
    return {
      x: track.x, y: track.y, mode: "lines+markers", name: track.name,
      line: { color: own, width: 1.5, dash: track.dash },
      marker: {
        symbol: track.symbol, size: track.x.map((_, i) => (i ? 7 : 10)), opacity: 1,
        color: track.x.map((_, i) => (i ? own : colour("card"))), line: { color: own, width: 1.5 },
      },
      customdata: track.x.map((_, i) => `${track.name}, D = ${track.length[i]}, ${fixed(track.ms[i], 3)} ms`),
      hovertemplate: "%{customdata}<br>%{x:.3g} FLOP/B, %{y:.3g} TFLOP/s<extra></extra>",
    };
  });
  const beside = { orientation: "v", x: 1.02, xanchor: "left", y: 1, yanchor: "top", font: { size: 12 } };
  const below = { orientation: "h", x: 0, y: -0.17, yanchor: "top", font: { size: 11 } };
  const lines = roofs.length + tracks.length; // of the legend of a phone
  draw(
    "roofline", [...roofs, ...tracks],
    {
      height: isNarrow() ? 380 + 20 * lines : 460,
      legend: isNarrow() ? below : beside,
      xaxis: logAxis("FLOP for each byte moved", from, to),
      yaxis: logAxis("TFLOP/s of one GPU", Math.min(...ys) / 1.5, highest * 1.5),
    },
    "Attained rate against arithmetic intensity of every kernel as the draft length grows, under the datasheet's roofs.",
  );
}

/** Draw every chart that has something to show; the card of any other is hidden. */
function drawCharts(view) {
  const { data, state, cellNow } = view;
  const own = cellNow(state.batch, state.context);
  const whole = { ...view, own, batch: data.batches[state.batch] };
  const lengths = own === null ? 0 : usable(own).length;
  const drafts = data.draft_lengths.length > 1;
  const charts = {
    speedup: [drawSpeedup, lengths > 1],
    costs: [drawCosts, lengths > 1],
    breakdown: [drawBreakdown, lengths > 0],
    heatmap: [drawHeatmap, drafts],
    frontier: [drawFrontier, data.cells.some((line) => !line[state.context].refused)],
  };
  for (const [id, [, holds]] of Object.entries(charts)) card(id).hidden = !holds;
  for (const [paint, holds] of Object.values(charts)) if (holds) paint(whole);
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
