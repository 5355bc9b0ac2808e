// Controls, words and tables; the charts follow.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const asked = { ...data.asked, mode: "given", scale: 100, rate: data.rate ?? 0 };
const drafts = data.draft_lengths.length > 1;
let state = { ...asked };
document.documentElement.dataset.scripts = "true"; // show what needs them

function say(id, text) {
  at(id).textContent = text;
  at(id).hidden = text === "";
}

/** Look up one cell of the grid for the acceptance that the controls hold. */
function cellNow(batch, context) {
  return decided(data, state, batch, context);
}

function isAsked() {
  const same = state.batch === asked.batch && state.context === asked.context;
  return same && isGiven(state);
}

function acceptanceWords() {
  if (state.mode === "rate") return fill(data.words.rate, { rate: state.rate / 100 });
  return isGiven(state) ? data.words.given : scaleWords();
}

function scaleWords() {
  return fill(data.words.scaled, { scale: state.scale / 100 });
}

function showControls() {
  const batch = at("batch");
  batch.value = state.batch;
  batch.setAttribute("aria-valuetext", String(data.batches[state.batch]));
  say("batch-value", String(data.batches[state.batch]));
  at("context").value = state.context;
  say("where-batch", String(data.batches[state.batch]));
  say("where-context", data.context_names[state.context]);
  if (drafts) {
    at("mode-given").checked = state.mode === "given";
    at("mode-rate").checked = state.mode === "rate";
    at("scale").value = state.scale;
    at("rate").value = state.rate;
    say("scale-value", `x ${fixed(state.scale / 100, 2)}`);
    say("rate-value", fixed(state.rate / 100, 2));
    at("scale").setAttribute("aria-valuetext", scaleWords());
    at("rate").setAttribute("aria-valuetext", fill(data.words.rate, { rate: state.rate / 100 }));
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
  at("numbers").hidden = !fits;
  if (!fits) {
    say("headline", fill(data.words.unfit, { reason: data.cells[state.batch][state.context].refused }));
    return;
  }
  const rows = data.draft_lengths.map((_, i) => (own.usable[i] ? row(data, batch, own, i) : null));
  const best = rows[own.best];
  const lengths = own.tie.map((i) => data.draft_lengths[i]);
  say("headline", headline(data, own));
  say("ties", lengths.length > 1 ? fill(data.words.tie, { lengths: lengths.join(", ") }) : "");
  say("reason", reason(data, own));
  const length = data.draft_lengths[own.best];
  at("likely").hidden = !isAsked();
  say("edge", own.at_the_end ? fill(data.words.edge, { length }) : "");
  say("sampling", data.counted && !isGiven(state) ? data.words.sampling : "");
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
  say("flag", data.flags[data.flags_of[state.batch][own.best]]);
  say("command", command(data, state, own.tokens));
}

function headings(names) {
  const line = document.createElement("tr");
  for (const name of names) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    line.append(cell);
  }
  return line;
}

/** Speedup by batch and draft length at the chosen context, of the batches that fit. */
function showGrid() {
  const all = data.batches.map((_, b) => cellNow(b, state.context));
  // a draft length that no batch can run has no column
  const shown = data.draft_lengths.map((_, i) => i).filter((i) => all.some((own) => own?.usable[i]));
  const lines = data.batches.map((batch, b) => {
    const own = all[b];
    if (own === null) return null;
    const speedups = shown.map((i) => {
      if (own.speedup[i] === null) return { text: "-", mark: "none" };
      const mark = i === own.best ? "best" : own.tie.includes(i) ? "tie" : own.kept[i] ? "" : "past";
      return { text: `${fixed(own.speedup[i], 2)}x`, mark };
    });
    return cells([String(batch), ...speedups], b === state.batch ? "here" : "");
  });
  at("grid-head").replaceChildren(headings(["batch", ...shown.map((i) => `D = ${data.draft_lengths[i]}`)]));
  at("grid-body").replaceChildren(...lines.filter(Boolean));
  const left = data.batches.filter((_, b) => lines[b] === null);
  say("grid-left", left.length ? fill(data.words.left_out, { batches: left.join(", ") }) : "");
  say("grid-context", data.context_names[state.context]);
}

/** Show what the controls say; "still" redraws also what does not follow them. */
function show(still = false) {
  showControls();
  showAnswer(cellNow(state.batch, state.context));
  showGrid();
  drawCharts({ data, state, cellNow, still });
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
if (drafts) {
  at("mode-given").addEventListener("change", () => change({ mode: "given" }));
  at("mode-rate").addEventListener("change", () => change({ mode: "rate" }));
  at("scale").addEventListener("input", (e) => change({ mode: "given", scale: Number(e.target.value) }));
  at("rate").addEventListener("input", (e) => change({ mode: "rate", rate: Number(e.target.value) }));
}
at("grid").hidden = !drafts;
document.querySelectorAll("[data-batch]").forEach((button) => {
  button.addEventListener("click", () => change({ ...asked, batch: Number(button.dataset.batch) }));
});
at("reset").addEventListener("click", () => change(asked));
document.querySelectorAll("[data-copies]").forEach((button) => {
  button.addEventListener("click", () => copy(button));
});
whenLooksChange(() => show(true));
if (drafts) onCell((batch, context) => change({ batch, context }));
show(true);
document.documentElement.dataset.ready = "true";
