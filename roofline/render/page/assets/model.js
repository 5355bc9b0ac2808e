// What the tool decided, looked up; the numbers of its sentences are products of priced steps and
// tokens per step: speedup = AL(D) t(0) / t(D). Nothing is chosen here.

/** Round half to even, as the tool does; toFixed rounds a half away from zero. */
function fixed(value, digits) {
  const scale = 10 ** digits;
  const exact = Number.isInteger(value * 2 ** 20);
  if (exact && (value * scale) % 1 === 0.5 && Math.floor(value * scale) % 2 === 0) {
    return (Math.floor(value * scale) / scale).toFixed(digits);
  }
  return value.toFixed(digits);
}

/** Fill in "{name}", "{name:d}", "{name:.2f}" and "{name:.0%}". */
function fill(template, values) {
  return template.replace(/\{(\w+)(?::(?:d|(#?)\.(\d)([fg%])))?\}/g, (_, name, whole, digits, kind) => {
    const value = values[name];
    if (kind === "%") return `${fixed(100 * value, digits)}%`;
    if (kind === "g" && whole) return value.toPrecision(Number(digits));
    if (kind === "g") return String(Number(value.toPrecision(Number(digits))));
    return kind === "f" ? fixed(value, digits) : String(value);
  });
}

/** The position of an acceptance among the stops: scaled ones first, then single rates. */
function stopOf(data, { mode, scale, rate }) {
  return mode === "rate" ? data.scales.length + data.rates.indexOf(rate) : data.scales.indexOf(scale);
}

function isGiven({ mode, scale }) {
  return mode === "given" && scale === 100;
}

/** Look up one batch and context; null where it does not fit. Arrays run over draft lengths. */
function decided(data, state, batch, context) {
  const cell = data.cells[batch][context];
  if (cell.refused) return null;
  const stop = stopOf(data, state);
  const rows = data.tokens[stop];
  const tokens = rows[context % rows.length];
  const share = data.shares[stop];
  const ends = isGiven(state) ? cell.counted : null;
  const usable = tokens.map((al, i) => al !== null && cell.step[i] !== null);
  const by = (value) => tokens.map((_, i) => (usable[i] ? value(i) : null));
  return {
    ...data.decisions[cell.decided[stop]],
    cell,
    tokens,
    usable,
    kept: tokens.map((_, i) => usable[i] && !cell.past?.[i]),
    speedup: by((i) => (tokens[i] * cell.step[0]) / cell.step[i]),
    low: by((i) => ends?.low[i] ?? tokens[i] * cell.low[i] * share[i]),
    high: by((i) => ends?.high[i] ?? tokens[i] * cell.high[i]),
  };
}

/** The same fields as a row of "recommend --format json". */
function row(data, batch, own, i) {
  const { cell, tokens, speedup, low, high } = own;
  const step = cell.step[i];
  const perToken = step / tokens[i];
  return {
    draft_length: data.draft_lengths[i],
    tokens_per_step: tokens[i],
    step_ms: 1e3 * step,
    verify_ms: 1e3 * cell.verify[i],
    draft_ms: 1e3 * cell.draft[i],
    overhead_ms: 1e3 * cell.overhead[i],
    cost_ratio: step / cell.step[0],
    speedup: speedup[i],
    speedup_low: low[i],
    speedup_high: high[i],
    tpot_ms: 1e3 * perToken,
    tokens_per_s: batch / perToken,
    dollars_per_million_tokens: ((data.gpu_hour * data.gpus) / 3600 / (batch / perToken)) * 1e6,
  };
}

/** What the best draft length past the captured graphs would give, where it would be the best. */
function beyond(data, { cell, tokens, beyond: at }) {
  if (at < 0) return "";
  const { rows, captured_step: step, flag } = cell.past[at];
  const said = {
    length: data.draft_lengths[at],
    speedup: (tokens[at] * cell.step[0]) / step,
    rows,
    engine: data.engine,
    largest: data.largest,
    flag: flag ? `: add ${flag}` : "",
  };
  return ` ${fill(data.words.beyond, said)}`;
}

function headline(data, own) {
  const { cell, tokens, best, shown } = own;
  return fill(data.words.headlines[own.headline], {
    length: data.draft_lengths[shown],
    flag: data.flag_name,
    speedup: own.speedup[shown],
    plain: 1 / cell.step[0],
    fast: 1 / (cell.step[best] / tokens[best]),
    low: own.low[shown],
    high: own.high[shown],
  });
}

function reason(data, own) {
  const { cell, shown } = own;
  const template = data.words.reasons[own.outcome];
  const noGain = own.limit === null ? data.words.no_gain[own.outcome] : undefined;
  const added = beyond(data, own) + (noGain === undefined ? "" : ` ${noGain}`);
  if (template === undefined) return cell.reasons[own.outcome] + added;
  const told = fill(template, {
    opening: cell.opening[shown % cell.opening.length],
    rows: data.verify_rows[shown],
    growth: cell.verify[shown] / cell.verify[0],
    drafting: cell.draft[shown] / cell.step[0],
    engine: (cell.overhead[shown] - cell.overhead[0]) / cell.step[0],
    length: data.draft_lengths[shown],
    break_even: cell.step[shown] / cell.step[0],
    tokens: own.tokens[shown],
  });
  return told + added;
}

/** How one would ask the tool for what the page shows. */
function command(data, state, tokens) {
  const words = [...data.command, "--batch", String(data.batches[state.batch])];
  words.push("--context", String(data.contexts[state.context]));
  if (state.mode === "rate") {
    words.push("--acceptance", String(state.rate / 100));
  } else if (!isGiven(state)) {
    const known = data.draft_lengths.map((d, i) => [d, tokens[i]]);
    const given = known.filter(([d, al]) => d > 0 && al !== null);
    words.push("--acceptance", `al:${given.map(([d, al]) => `${d}=${al}`).join(",")}`);
  } else {
    if (data.acceptance !== null) words.push("--acceptance", data.acceptance);
    if (data.rounds !== null) words.push("--acceptance-rounds", String(data.rounds));
  }
  return words.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", `'"'"'`)}'`)).join(" ");
}
