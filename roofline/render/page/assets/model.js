// The page's only arithmetic: speedup = AL(D) t(0) / t(D). Every t(D) was priced by the tool.

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
  return template.replace(/\{(\w+)(?::(?:d|\.(\d)([f%])))?\}/g, (_, name, digits, kind) => {
    const value = values[name];
    if (kind === "%") return `${fixed(100 * value, digits)}%`;
    return kind === "f" ? fixed(value, digits) : String(value);
  });
}

/** Tokens per step by draft length; null where the acceptance says nothing. */
function tokensPerStep(data, state) {
  if (state.mode === "rate") {
    let survival = 1;
    let total = 1;
    let last = 0;
    return data.draft_lengths.map((length) => {
      for (; last < length; last += 1) {
        survival *= state.rate;
        total += survival;
      }
      return total;
    });
  }
  const rows = data.given.tokens;
  return rows[state.context % rows.length].map((known, i) =>
    known === null || state.scale === 1
      ? known
      : Math.min(1 + data.draft_lengths[i], 1 + state.scale * (known - 1)),
  );
}

/** Tokens per step where one rate falls from position to position, as a share of where it holds. */
function shareIfFalling(data, rate) {
  const sums = { falls: 1, holds: 1 };
  let falls = 1;
  let holds = 1;
  let last = 0;
  return data.draft_lengths.map((length) => {
    for (; last < length; last += 1) {
      falls *= rate * data.fall ** last;
      holds *= rate;
      sums.falls += falls;
      sums.holds += holds;
    }
    return sums.falls / sums.holds;
  });
}

/** Decide one batch and context; null where it does not fit. Arrays run over draft lengths. */
function decide(data, cell, tokens, ends, share) {
  if (cell.refused) return null;
  const known = tokens.map((al) => al !== null);
  const usable = tokens.map((al, i) => al !== null && cell.step[i] !== null);
  const by = (value) => tokens.map((_, i) => (usable[i] ? value(i) : null));
  const speed = by((i) => tokens[i] / cell.step[i]);
  const kept = tokens.map((_, i) => usable[i] && !cell.past?.[i]);
  const within = (1 - data.tie) * Math.max(...speed.filter((_, i) => kept[i]));
  const tie = speed.map((v, i) => kept[i] && v >= within);
  const best = tie.indexOf(true);
  const speedup = by((i) => (tokens[i] * cell.step[0]) / cell.step[i]);
  const low = by((i) => ends?.low[i] ?? tokens[i] * cell.low[i] * (share?.[i] ?? 1));
  const high = by((i) => ends?.high[i] ?? tokens[i] * cell.high[i]);
  const drafts = data.draft_lengths.map((_, i) => i).filter((i) => i > 0 && kept[i]);
  const shown = best || drafts.reduce((a, i) => (a && speedup[a] >= speedup[i] ? a : i), 0);
  let confidence = drafts.some((i) => high[i] > 1) ? "inside_error" : "loss";
  if (best) confidence = low[best] > 1 ? "win" : "inside_error";
  const alone = known.filter(Boolean).length === 1;
  return { cell, tokens, usable, kept, speedup, low, high, tie, best, shown, confidence, alone };
}

/** The same fields as a row of "recommend --format json". */
function row(data, batch, decided, i) {
  const { cell, tokens, speedup, low, high } = decided;
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
  };
}

/** Whether any draft length fits, advised or not. */
function drafted({ usable }) {
  return usable.some((fits, i) => i > 0 && fits);
}

/** What the best draft length past the captured graphs would give, where it would be the best. */
function beyond(data, { cell, tokens, usable, kept, speedup, best }) {
  const gains = tokens.map((al, i) =>
    usable[i] && !kept[i] ? (al * cell.step[0]) / cell.past[i].captured_step : null,
  );
  const most = Math.max(...gains.filter((gain) => gain !== null));
  const at = gains.findIndex((gain) => gain !== null && gain >= (1 - data.tie) * most);
  if (at < 0 || gains[at] * (1 - data.tie) <= speedup[best]) return "";
  const { rows, flag } = cell.past[at];
  const said = {
    length: data.draft_lengths[at],
    speedup: gains[at],
    rows,
    engine: data.engine,
    largest: data.largest,
    flag: flag ? `: add ${flag}` : "",
  };
  return ` ${fill(data.words.beyond, said)}`;
}

function headline(data, decided) {
  const { cell, tokens, best, shown } = decided;
  const words = data.words;
  const plain = 1 / cell.step[0];
  if (decided.alone) return fill(words.headlines.alone, { plain });
  if (!shown) return fill(words.headlines[drafted(decided) ? "past_graphs" : "no_room"], { plain });
  const kind = best ? "drafts" : "plain";
  const verdict = words.verdicts[kind][decided.confidence];
  return fill(words.headlines[kind], {
    length: data.draft_lengths[shown],
    flag: data.flag_name,
    speedup: decided.speedup[shown],
    plain,
    fast: 1 / (cell.step[best] / tokens[best]),
    verdict: fill(verdict, { low: decided.low[shown], high: decided.high[shown] }),
  });
}

function reason(data, decided) {
  const { cell, shown } = decided;
  if (!shown && drafted(decided)) return data.words.nothing_kept + beyond(data, decided);
  if (!shown) return decided.alone ? data.words.nothing : cell.no_room;
  const told = fill(data.words.reason, {
    opening: cell.opening[shown % cell.opening.length],
    rows: data.draft_lengths[shown] + 1,
    growth: cell.verify[shown] / cell.verify[0],
    drafting: cell.draft[shown] / cell.step[0],
    engine: (cell.overhead[shown] - cell.overhead[0]) / cell.step[0],
    length: data.draft_lengths[shown],
    break_even: cell.step[shown] / cell.step[0],
    tokens: decided.tokens[shown],
  });
  return told + beyond(data, decided);
}

/** How one would ask the tool for what the page shows. */
function command(data, state, tokens) {
  const words = [...data.command, "--batch", String(data.batches[state.batch])];
  words.push("--context", String(data.contexts[state.context]));
  if (state.mode === "rate") {
    words.push("--acceptance", String(state.rate));
  } else if (state.scale !== 1) {
    const known = data.draft_lengths.map((d, i) => [d, tokens[i]]);
    const given = known.filter(([d, al]) => d > 0 && al !== null);
    words.push("--acceptance", `al:${given.map(([d, al]) => `${d}=${al}`).join(",")}`);
  } else {
    if (data.acceptance !== null) words.push("--acceptance", data.acceptance);
    if (data.rounds !== null) words.push("--acceptance-rounds", String(data.rounds));
  }
  return words.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", `'"'"'`)}'`)).join(" ");
}
