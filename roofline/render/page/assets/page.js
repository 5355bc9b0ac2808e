// Controls, words and tables; the charts follow.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const asked = { ...data.asked, mode: "given", scale: 1, rate: data.rate ?? 0 };
let state = { ...asked };

function say(id, text) {
  at(id).textContent = text;
  at(id).hidden = text === "";
}

/** Decide one cell of the grid for the acceptance that the controls hold. */
function decided(batch, context) {
  const cell = data.cells[batch][context];
  const share = state.mode === "rate" ? shareIfFalling(data, state.rate) : null;
  return decide(data, cell, tokensPerStep(data, { ...state, context }), isGiven() ? cell.counted : null, share);
}

function isGiven() {
  return state.mode === "given" && state.scale === 1;
}

function isAsked() {
  const same = state.batch === asked.batch && state.context === asked.context;
  return same && isGiven();
}

function acceptanceWords() {
  if (state.mode === "rate") return fill(data.words.rate, state);
  return state.scale === 1 ? data.words.given : fill(data.words.scaled, state);
}

function showControls() {
  const batch = at("batch");
  batch.value = state.batch;
  batch.setAttribute("aria-valuetext", String(data.batches[state.batch]));
  say("batch-value", String(data.batches[state.batch]));
  at("context").value = state.context;
  if (data.rate !== null) {
    at("mode-given").checked = state.mode === "given";
    at("mode-rate").checked = state.mode === "rate";
    at("scale").value = Math.round(100 * state.scale);
    at("rate").value = Math.round(100 * state.rate);
    say("scale-value", `x ${fixed(state.scale, 2)}`);
    say("rate-value", fixed(state.rate, 2));
    at("scale").setAttribute("aria-valuetext", fill(data.words.scaled, state));
    at("rate").setAttribute("aria-valuetext", fill(data.words.rate, state));
    say("acceptance-words", acceptanceWords());
  }
  at("reset").disabled = isAsked();
}

function cells(values, mark) {
  const line = document.createElement("tr");
  if (mark) line.className = mark;
  values.forEach((value, i) => {
    const cell = document.createElement(i ? "td" : "th");
    if (!i) cell.scope = "row";
    if (value instanceof Object) {
      cell.textContent = value.text;
      if (value.mark) cell.className = value.mark;
    } else {
      cell.textContent = value;
    }
    line.append(cell);
  });
  return line;
}

function showAnswer(own) {
  const batch = data.batches[state.batch];
  const fits = own !== null;
  at("answer-numbers").hidden = !fits;
  if (!fits) {
    say("headline", fill(data.words.unfit, { reason: data.cells[state.batch][state.context].refused }));
    for (const id of ["ties", "reason", "likely", "edge", "sampling"]) say(id, "");
    return;
  }
  const rows = data.draft_lengths.map((_, i) => (own.usable[i] ? row(data, batch, own, i) : null));
  const best = rows[own.best];
  const lengths = data.draft_lengths.filter((_, i) => own.tie[i]);
  const last = own.tokens.findLastIndex((al) => al !== null);
  say("headline", headline(data, own));
  say("ties", lengths.length > 1 ? fill(data.words.tie, { lengths: lengths.join(", ") }) : "");
  say("reason", reason(data, own));
  const length = data.draft_lengths[own.best];
  at("likely").hidden = !isAsked();
  say("edge", own.best && own.best === last ? fill(data.words.edge, { length }) : "");
  say("sampling", data.given.counted && !isGiven() ? data.words.sampling : "");
  const shown = {
    ...best,
    flag_name: own.best ? data.flag_name : data.words.undrafted,
    per_user: 1e3 / best.tpot_ms,
    plain_per_user: 1e3 / rows[0].tpot_ms,
    plain_tokens_per_s: rows[0].tokens_per_s,
  };
  document.querySelectorAll(".tile").forEach((tile, i) => {
    tile.querySelector(".value").textContent = fill(data.tiles[i].value, shown);
    tile.querySelector(".below").textContent = fill(data.tiles[i].below, shown);
  });
  at("by-draft-length").replaceChildren(
    ...rows.flatMap((r, i) =>
      r === null
        ? []
        : cells(
            data.columns.map(({ key, form }) => fill(form, { value: r[key] })),
            r === best ? "best" : own.kept[i] ? "" : "past",
          ),
    ),
  );
  say("flag", data.flags[own.best]);
  say("command", command(data, state, own.tokens));
}

/** Speedup by batch and draft length at the chosen context, of the batches that fit. */
function showGrid() {
  const lines = data.batches.map((batch, b) => {
    const own = decided(b, state.context);
    if (own === null) return null;
    const speedups = data.draft_lengths.map((_, i) => {
      if (own.speedup[i] === null) return { text: "-", mark: "none" };
      const mark = i === own.best ? "best" : own.tie[i] ? "tie" : own.kept[i] ? "" : "past";
      return { text: `${fixed(own.speedup[i], 2)}x`, mark };
    });
    return cells([String(batch), ...speedups], b === state.batch ? "here" : "");
  });
  at("grid-body").replaceChildren(...lines.filter(Boolean));
  const left = data.batches.filter((_, b) => lines[b] === null);
  say("grid-left", left.length ? fill(data.words.left_out, { batches: left.join(", ") }) : "");
  say("grid-context", data.context_names[state.context]);
}

/** Show what the controls say; "still" redraws also what does not follow them. */
function show(still = false) {
  showControls();
  showAnswer(decided(state.batch, state.context));
  showGrid();
  drawCharts({ data, state, decided, still });
}

let waiting = 0;
function change(next) {
  state = { ...state, ...next };
  showControls();
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => show());
}

async function copy(button) {
  const source = at(button.dataset.copies);
  let done = true;
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(source);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    done = document.execCommand("copy");
  }
  say("copied", done ? data.words.copied : data.words.not_copied);
  const label = button.textContent;
  button.textContent = done ? data.words.copied : data.words.not_copied;
  button.disabled = false;
  setTimeout(() => {
    button.textContent = label;
    say("copied", "");
  }, 1500);
}

at("batch").addEventListener("input", (e) => change({ batch: Number(e.target.value) }));
at("context").addEventListener("change", (e) => change({ context: Number(e.target.value) }));
if (data.rate !== null) {
  at("mode-given").addEventListener("change", () => change({ mode: "given" }));
  at("mode-rate").addEventListener("change", () => change({ mode: "rate" }));
  at("scale").addEventListener("input", (e) => change({ mode: "given", scale: e.target.value / 100 }));
  at("rate").addEventListener("input", (e) => change({ mode: "rate", rate: e.target.value / 100 }));
}
at("reset").addEventListener("click", () => change(asked));
document.querySelectorAll("[data-copies]").forEach((button) => {
  button.addEventListener("click", () => copy(button));
});
whenLooksChange(() => show(true));
onCell((batch, context) => change({ batch, context }));
show(true);
document.documentElement.dataset.ready = "true";
