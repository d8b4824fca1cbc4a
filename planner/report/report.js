// How is the front explored? Designs are dots on a canvas and lines across scales; both show what is within the filters.
"use strict";

(async () => {
  const byId = (id) => document.getElementById(id);
  const report = JSON.parse(byId("report-data").textContent);
  const answer = report.answer;

  // ---- Numbers as people write them: three digits, a familiar prefix, the unit. ----

  function digits(value) {
    const rounded = Number(value.toPrecision(3));
    const exponent = rounded ? Math.floor(Math.log10(Math.abs(rounded))) : 2;
    const decimals = Math.min(15, Math.max(0, 2 - exponent));
    return rounded.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  }

  function scaled(value, scale) {
    const rounded = Math.abs(Number(value.toPrecision(3)));
    const [size, unit] = scale.find((entry) => rounded >= entry[0]) || scale[scale.length - 1];
    return digits(value / size) + unit;
  }

  const GIB = 2 ** 30;
  const inScale = (...scale) => (value) => scaled(value, scale);
  const money = inScale([1e9, " B"], [1e6, " M"], [1e3, " k"], [1, ""]);
  const duration = inScale([86400, " days"], [3600, " h"], [60, " min"], [1, " s"]);
  const formats = {
    days: (value) => (value >= 730.5 ? `${digits(value / 365.25)} years` : duration(value * 86400)),
    usd: (value) => `$${money(value)}`,
    kwh: inScale([1e9, " TWh"], [1e6, " GWh"], [1e3, " MWh"], [1, " kWh"]),
    kgco2e: inScale([1e6, " kt CO2e"], [1e3, " t CO2e"], [1, " kg CO2e"]),
    w: inScale([1e9, " GW"], [1e6, " MW"], [1e3, " kW"], [1, " W"]),
    bytes: (value) => `${(value / GIB).toFixed(1)} GiB`,
    fraction: (value) => `${(value * 100).toFixed(1)} %`,
    count: (value) => Math.round(value).toLocaleString("en-US"),
  };
  const metrics = {
    time_to_train_days: { name: "time to train", unit: "days", format: formats.days, hasError: true },
    cost_usd: { name: "cost", unit: "USD", format: formats.usd, hasError: true },
    energy_kwh: { name: "energy", unit: "kWh", format: formats.kwh, hasError: true },
    carbon_kgco2e: { name: "carbon", unit: "kg CO2e", format: formats.kgco2e, hasError: true },
    num_gpus: { name: "accelerators", unit: "count", format: formats.count },
    peak_power_w: { name: "peak power", unit: "W", format: formats.w },
    peak_memory_bytes: { name: "memory of an accelerator", unit: "bytes", format: formats.bytes },
    mfu_fraction: { name: "MFU", unit: "share", format: formats.fraction },
    goodput_fraction: { name: "goodput", unit: "share", format: formats.fraction },
  };
  const objectiveKeys = {
    time_to_train: "time_to_train_days", cost: "cost_usd", energy: "energy_kwh", carbon: "carbon_kgco2e",
  };
  const parallelKeys = Object.keys(metrics).filter((key) => key !== "peak_memory_bytes");

  // ---- The designs: the front exactly as the answer has it, all others as columns. ----

  const recommendedId = answer.recommendation ? answer.recommendation.design_id : -1;
  const tiedIds = new Set(answer.uncertainty ? answer.uncertainty.tied_designs : []);
  const front = answer.front.map((design) => ({
    id: design.design_id,
    role: design.design_id === recommendedId ? "recommended" : tiedIds.has(design.design_id) ? "tied" : "front",
    error: report.errors[design.design_id],
    values: { ...design, num_gpus: design.plan.num_gpus },
    accelerator: design.accelerator,
    plan: design.plan,
  }));
  const frontById = new Map(front.map((design) => [design.id, design]));

  async function unzipped(text) {
    const letters = atob(text), bytes = new Uint8Array(letters.length);
    for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  // Bytes of equal weight lie together; see `packed` in report_designs.py.
  function column(bytes, start, rows, kind) {
    const width = Number(kind[1]);
    const joined = new Uint8Array(rows * width);
    for (let place = 0; place < width; place += 1) {
      const plane = start + place * rows;
      for (let row = 0; row < rows; row += 1) joined[row * width + place] = bytes[plane + row];
    }
    const kinds = { f4: Float32Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
    return new kinds[kind](joined.buffer);
  }

  async function readCloud() {
    const layout = JSON.parse(byId("design-layout").textContent);
    const cloud = { rows: layout.rows, columns: {}, words: layout.words, limits: layout.limits };
    const bytes = await unzipped(byId("design-columns").textContent);
    let start = 0;
    for (const { name, type } of layout.columns) {
      cloud.columns[name] = column(bytes, start, layout.rows, type);
      start += layout.rows * Number(type[1]);
    }
    return cloud;
  }

  const empty = { rows: 0, columns: { design_id: [], broken: [] }, words: {}, limits: [] };
  const cloud = typeof DecompressionStream === "function" ? await readCloud() : empty;
  const isOnFront = Uint8Array.from(cloud.columns.design_id, (id) => (frontById.has(id) ? 1 : 0));

  function word(name, row) {
    return cloud.words[name][cloud.columns[name][row]];
  }

  function cloudDesign(row) {
    const columns = cloud.columns;
    const values = Object.fromEntries(Object.keys(metrics).map((key) => [key, columns[key][row]]));
    const plan = Object.fromEntries(Object.keys(columns).map((key) => [key, columns[key][row]]));
    for (const name of Object.keys(cloud.words)) plan[name] = word(name, row);
    const broken = cloud.limits.filter((_, bit) => columns.broken[row] & (1 << bit));
    const role = broken.length ? "broken" : "beaten";
    return { id: columns.design_id[row], role, broken, values, plan, accelerator: word("accelerator", row) };
  }

  function layoutWords(plan) {
    const degrees = [["TP", plan.tensor_parallel], ["PP", plan.pipeline_parallel], ["VPP", plan.virtual_pipeline],
      ["CP", plan.context_parallel], ["EP", plan.expert_parallel]];
    const splits = degrees.filter((entry) => entry[1] > 1).map((entry) => entry.join(""));
    return [...splits, `DP${plan.data_parallel}`].join(" ");
  }

  function roleWords(design) {
    if (design.role === "broken") return `breaks ${design.broken.map((name) => name.replace(/_/g, " ")).join(", ")}`;
    return {
      recommended: "recommended", tied: "on the front; cannot be told from the recommended one",
      front: "on the front", beaten: "beaten by another design",
    }[design.role];
  }

  function describe(design) {
    const plan = design.plan;
    return {
      title: `Design ${design.id}: ${roleWords(design)}`,
      lines: [
        `${formats.count(plan.num_gpus)} x ${design.accelerator}, ${layoutWords(plan)}, micro-batch ` +
          `${plan.micro_batch_size}, recompute ${plan.recompute}, ZeRO ${plan.zero_stage}, ${plan.precision}, ` +
          `saves ${plan.checkpoint_scheme}, ${plan.num_spare_nodes} spare nodes`,
        Object.entries(metrics).filter(([key]) => key !== "num_gpus")
          .map(([key, metric]) => `${metric.name} ${metric.format(design.values[key])}`).join("; "),
      ],
    };
  }

  function fill(place, design) {
    const told = describe(design);
    const strong = document.createElement("strong");
    strong.textContent = told.title;
    const lines = told.lines.map((text) => Object.assign(document.createElement("p"), { textContent: text }));
    place.replaceChildren(strong, ...lines);
    place.dataset.design = design.id;
  }

  // ---- State: axes, filters, and the design that is looked at. ----

  const wanted = answer.objectives.map((name) => objectiveKeys[name]).filter(Boolean);
  const axisOrder = [...new Set([...wanted, "time_to_train_days", "cost_usd"])];
  const state = { x: axisOrder[0], y: axisOrder[1], isLog: true, filters: {}, pointed: null, picked: null };
  const kept = new Uint8Array(cloud.rows);

  function isWithin(values) {
    return Object.entries(state.filters).every(([key, [low, high]]) => values[key] >= low && values[key] <= high);
  }

  function applyFilters() {
    kept.fill(1);
    for (const [key, [low, high]] of Object.entries(state.filters)) {
      const values = cloud.columns[key];
      for (let row = 0; row < cloud.rows; row += 1) if (!(values[row] >= low && values[row] <= high)) kept[row] = 0;
    }
    const total = kept.reduce((sum, value) => sum + value, 0);
    const onFront = front.filter((design) => isWithin(design.values)).length;
    const active = Object.keys(state.filters).length;
    byId("num-kept").textContent = active
      ? `${formats.count(total)} of ${formats.count(cloud.rows)} designs are within the filters, ${onFront} of them on the front.`
      : "No filters.";
    byId("clear-filters").disabled = !active;
  }

  // ---- Scales. ----

  // Simulated over measured is 1 +- error, so the truth is the figure over that; without reach, the figure itself.
  function errorEnds(design, key, reach) {
    const error = reach * design.error;
    return [design.values[key] / (1 + error), design.values[key] / Math.max(0.1, 1 - error)];
  }

  function extent(key) {
    let low = Infinity, high = -Infinity;
    const take = (value) => { if (value < low) low = value; if (value > high) high = value; };
    const reach = byId("show-errors").checked && metrics[key].hasError ? 1 : 0;
    for (const design of front) errorEnds(design, key, reach).forEach(take);
    if (byId("show-beaten").checked) {
      const values = cloud.columns[key];
      for (let row = 0; row < cloud.rows; row += 1) if (!cloud.columns.broken[row]) take(values[row]);
    }
    return [low, high];
  }

  function scale([low, high], isLog, from, to) {
    const usesLog = isLog && low > 0;
    const warp = usesLog ? Math.log : (value) => value;
    let start = warp(low), end = warp(high);
    const room = 0.06 * (end - start) || Math.abs(start) * 0.1 || 1;
    start -= room; end += room;
    const place = (value) => from + ((warp(value) - start) / (end - start)) * (to - from);
    const back = (pixel) => {
      const value = start + ((pixel - from) / (to - from)) * (end - start);
      return usesLog ? Math.exp(value) : value;
    };
    return { place, back, usesLog, low: usesLog ? Math.exp(start) : start, high: usesLog ? Math.exp(end) : end };
  }

  // A round number does without the zeros behind its point.
  function tickText(key, value) {
    return metrics[key].format(value).replace(/(\.\d*?)0+(?= |$)/, "$1").replace(/\.(?= |$)/, "");
  }

  function ticks(axis, most) {
    const { low, high, usesLog } = axis;
    if (usesLog && high / low > 4) {
      for (const steps of [[1, 2, 5], [1, 3], [1]]) {
        const found = [];
        for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
          for (const step of steps) found.push(step * 10 ** power);
        }
        const inside = found.filter((value) => value >= low && value <= high);
        if (inside.length <= most && inside.length > 1) return inside;
      }
    }
    const rough = (high - low) / most;
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = size * ([1, 2, 5, 10].find((factor) => size * factor >= rough) || 10);
    const found = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
    return found;
  }

  // ---- Canvases. ----

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const names = ["paper", "ink", "soft", "line", "accent", "warm", "faint", "broken"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  function fitted(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  }

  const font = "13px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  const scatter = byId("scatter"), tip = byId("tip");
  const margin = { left: 70, right: 16, top: 26, bottom: 44 };
  const plot = { width: 0, height: 0, x: null, y: null, cells: null };
  const px = new Float32Array(cloud.rows), py = new Float32Array(cloud.rows);

  function isShown(row) {
    if (isOnFront[row]) return false;
    return byId(cloud.columns.broken[row] ? "show-broken" : "show-beaten").checked;
  }

  function drawCloud() {
    const { width, height } = scatter.getBoundingClientRect();
    Object.assign(plot, { width, height });
    const paint = colours();
    const context = fitted(byId("cloud"), width, height);
    plot.x = scale(extent(state.x), state.isLog, margin.left, width - margin.right);
    plot.y = scale(extent(state.y), state.isLog, height - margin.bottom, margin.top);
    drawAxes(context, paint, width, height);
    const xs = cloud.columns[state.x], ys = cloud.columns[state.y];
    for (let row = 0; row < cloud.rows; row += 1) {
      px[row] = plot.x.place(xs[row]);
      py[row] = plot.y.place(ys[row]);
    }
    context.save();
    context.beginPath();
    context.rect(margin.left, margin.top, width - margin.left - margin.right, height - margin.top - margin.bottom);
    context.clip();
    const size = cloud.rows > 20000 ? 2 : 3;
    const shows = { broken: byId("show-broken").checked, beaten: byId("show-beaten").checked };
    for (const [kind, isKept] of [["broken", 0], ["beaten", 0], ["broken", 1], ["beaten", 1]]) {
      if (!shows[kind]) continue;
      context.fillStyle = paint[kind === "broken" ? "broken" : "faint"];
      context.globalAlpha = isKept ? 0.9 : 0.15;
      for (let row = 0; row < cloud.rows; row += 1) {
        if (kept[row] !== isKept || isOnFront[row] || (cloud.columns.broken[row] > 0) !== (kind === "broken")) continue;
        if (!(px[row] > 0 && px[row] < width && py[row] > 0 && py[row] < height)) continue;
        context.fillRect(px[row] - size / 2, py[row] - size / 2, size, size);
      }
    }
    context.globalAlpha = 1;
    drawFront(context, paint);
    context.restore();
    indexCells();
  }

  function drawAxes(context, paint, width, height) {
    context.font = font;
    context.strokeStyle = paint.line;
    context.fillStyle = paint.soft;
    context.lineWidth = 1;
    const bottom = height - margin.bottom, right = width - margin.right;
    context.textAlign = "center";
    for (const value of ticks(plot.x, Math.max(2, Math.floor((right - margin.left) / 95)))) {
      const x = Math.round(plot.x.place(value)) + 0.5;
      context.beginPath(); context.moveTo(x, margin.top); context.lineTo(x, bottom); context.stroke();
      context.fillText(tickText(state.x, value), Math.min(x, width - 34), bottom + 17);
    }
    context.textAlign = "right";
    for (const value of ticks(plot.y, Math.max(2, Math.floor((bottom - margin.top) / 45)))) {
      const y = Math.round(plot.y.place(value)) + 0.5;
      context.beginPath(); context.moveTo(margin.left, y); context.lineTo(right, y); context.stroke();
      context.fillText(tickText(state.y, value), margin.left - 6, y + 4);
    }
    context.fillStyle = paint.ink;
    context.textAlign = "right";
    context.fillText(`${metrics[state.x].name} →`, right, height - 8);
    context.textAlign = "left";
    context.fillText(`↑ ${metrics[state.y].name}`, 4, 14);
  }

  function symbol(context, paint, design, x, y) {
    context.beginPath();
    if (design.role === "recommended") {
      context.moveTo(x, y - 8); context.lineTo(x + 8, y); context.lineTo(x, y + 8); context.lineTo(x - 8, y);
      context.closePath();
      context.fillStyle = paint.warm;
    } else {
      context.arc(x, y, 5, 0, 2 * Math.PI);
      context.fillStyle = design.role === "tied" ? paint.paper : paint.accent;
    }
    context.fill();
    context.lineWidth = design.role === "tied" ? 3 : 1.5;
    context.strokeStyle = design.role === "tied" ? paint.warm : paint.paper;
    context.stroke();
  }

  function errorBar(context, design, key, axis, from, across) {
    if (!metrics[key].hasError || !(design.error > 0)) return;
    const ends = errorEnds(design, key, 1).map(axis.place);
    context.beginPath();
    if (across) { context.moveTo(ends[0], from); context.lineTo(ends[1], from); }
    else { context.moveTo(from, ends[0]); context.lineTo(from, ends[1]); }
    context.stroke();
  }

  function drawFront(context, paint) {
    const order = { front: 0, tied: 1, recommended: 2 };
    const sorted = [...front].sort((one, other) => order[one.role] - order[other.role]);
    for (const design of sorted) {
      const x = plot.x.place(design.values[state.x]), y = plot.y.place(design.values[state.y]);
      context.globalAlpha = isWithin(design.values) ? 1 : 0.15;
      if (byId("show-errors").checked) {
        context.strokeStyle = design.role === "front" ? paint.accent : paint.warm;
        context.lineWidth = 1.2;
        errorBar(context, design, state.x, plot.x, y, true);
        errorBar(context, design, state.y, plot.y, x, false);
      }
      symbol(context, paint, design, x, y);
    }
    context.globalAlpha = 1;
  }

  // Every cell of 16 pixels knows its designs, so that pointing at one of many thousands takes no time.
  const CELL = 16;
  function indexCells() {
    const across = Math.ceil(plot.width / CELL) + 1, down = Math.ceil(plot.height / CELL) + 1;
    const starts = new Int32Array(across * down + 1), cellOf = new Int32Array(cloud.rows).fill(-1);
    for (let row = 0; row < cloud.rows; row += 1) {
      const x = px[row], y = py[row];
      if (!kept[row] || !isShown(row) || !(x >= 0 && y >= 0 && x < plot.width && y < plot.height)) continue;
      cellOf[row] = Math.floor(y / CELL) * across + Math.floor(x / CELL);
      starts[cellOf[row] + 1] += 1;
    }
    for (let cell = 0; cell < across * down; cell += 1) starts[cell + 1] += starts[cell];
    const next = starts.slice(), rows = new Int32Array(starts[across * down]);
    for (let row = 0; row < cloud.rows; row += 1) if (cellOf[row] >= 0) rows[next[cellOf[row]]++] = row;
    plot.cells = { across, down, starts, rows };
  }

  function designAt(x, y) {
    let found = null, best = 14 * 14;
    for (const design of front) {
      const dx = plot.x.place(design.values[state.x]) - x, dy = plot.y.place(design.values[state.y]) - y;
      if (dx * dx + dy * dy < best) { best = dx * dx + dy * dy; found = design; }
    }
    if (found) return found;
    best = 9 * 9;
    let row = -1;
    const { across, down, starts, rows } = plot.cells;
    const column = Math.floor(x / CELL), line = Math.floor(y / CELL);
    for (let v = Math.max(0, line - 1); v <= Math.min(down - 1, line + 1); v += 1) {
      for (let u = Math.max(0, column - 1); u <= Math.min(across - 1, column + 1); u += 1) {
        for (let k = starts[v * across + u]; k < starts[v * across + u + 1]; k += 1) {
          const dx = px[rows[k]] - x, dy = py[rows[k]] - y;
          if (dx * dx + dy * dy < best) { best = dx * dx + dy * dy; row = rows[k]; }
        }
      }
    }
    return row >= 0 ? cloudDesign(row) : null;
  }

  function drawOverlay(box) {
    const paint = colours();
    const context = fitted(byId("overlay"), plot.width, plot.height);
    const looked = state.pointed || state.picked;
    if (box) {
      context.fillStyle = paint.accent;
      context.globalAlpha = 0.15;
      context.fillRect(box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0);
      context.globalAlpha = 1;
    }
    if (!looked) return;
    const x = plot.x.place(looked.values[state.x]), y = plot.y.place(looked.values[state.y]);
    context.strokeStyle = paint.ink;
    context.lineWidth = 2;
    context.beginPath(); context.arc(x, y, 11, 0, 2 * Math.PI); context.stroke();
  }

  // ---- One line for each design of the front, across one scale for each figure. ----

  const parallel = byId("parallel"), lines = { width: 0, scales: {} };
  const ROW = 58, TOP = 26, SIDE = 12, GUTTER = 150, NARROW = 640;

  function drawParallel() {
    const width = parallel.getBoundingClientRect().width;
    const height = TOP + ROW * (parallelKeys.length - 1) + 34;
    byId("parallel-lines").style.height = `${height}px`;
    const context = fitted(byId("parallel-lines"), width, height), paint = colours();
    lines.width = width;
    lines.start = width > NARROW ? GUTTER : SIDE;
    lines.scales = Object.fromEntries(parallelKeys.map((key) => {
      const values = front.map((design) => design.values[key]);
      const ends = [Math.min(...values), Math.max(...values)];
      return [key, { ...scale(ends, ends[1] > 4 * ends[0], lines.start, width - SIDE), ends }];
    }));
    const looked = state.pointed || state.picked;
    const shown = front.filter((design) => design.role !== "recommended");
    for (const design of shown) {
      const alpha = isWithin(design.values) ? Math.max(0.25, Math.min(0.8, 12 / front.length)) : 0.05;
      drawLine(context, design, design.role === "tied" ? paint.warm : paint.accent, 1.3, alpha);
    }
    const best = front.find((design) => design.role === "recommended");
    if (best) drawLine(context, best, paint.warm, 3, isWithin(best.values) ? 1 : 0.2);
    if (looked) drawLine(context, looked, paint.ink, 2, 1);
    parallelKeys.forEach((key, row) => drawScale(context, paint, key, TOP + row * ROW, width));
  }

  function drawLine(context, design, colour, thickness, alpha) {
    context.strokeStyle = colour;
    context.lineWidth = thickness;
    context.globalAlpha = alpha;
    context.beginPath();
    parallelKeys.forEach((key, row) => {
      const place = lines.scales[key].place(design.values[key]);
      const x = Math.min(lines.width - 2, Math.max(lines.start - 10, place)), y = TOP + row * ROW;
      if (row) context.lineTo(x, y); else context.moveTo(x, y);
    });
    context.stroke();
    context.globalAlpha = 1;
  }

  function drawScale(context, paint, key, y, width) {
    const { ends, place } = lines.scales[key];
    const metric = metrics[key], filter = state.filters[key];
    context.strokeStyle = paint.soft;
    context.lineWidth = 1.5;
    context.beginPath(); context.moveTo(lines.start, y); context.lineTo(width - SIDE, y); context.stroke();
    if (filter) {
      const [start, end] = filter.map((value) => Math.min(width - SIDE, Math.max(lines.start, place(value))));
      context.strokeStyle = paint.ink;
      context.lineWidth = 6;
      context.beginPath(); context.moveTo(start, y); context.lineTo(end, y); context.stroke();
    }
    context.font = font;
    label(context, paint, paint.soft, metric.format(ends[0]), lines.start, y + 17, "left");
    const last = metric.format(ends[1]);
    if (ends[1] > ends[0]) label(context, paint, paint.soft, last, width - SIDE, y + 17, "right");
    const isBeside = lines.start === GUTTER;
    label(context, paint, paint.ink, metric.name, isBeside ? 0 : SIDE, isBeside ? y + 4 : y - 8, "left");
  }

  function label(context, paint, colour, text, x, y, align) {
    context.textAlign = align;
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.strokeStyle = paint.paper;
    context.strokeText(text, x, y);
    context.fillStyle = colour;
    context.fillText(text, x, y);
  }

  // ---- Drawing all, once a frame at most. ----

  let isWaiting = false;
  function drawAll() {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => { isWaiting = false; drawCloud(); drawOverlay(); drawParallel(); });
  }

  function look(design) {
    const before = state.pointed;
    state.pointed = design;
    if (before === design || (before && design && before.id === design.id)) return;
    drawOverlay();
    drawParallel();
  }

  function pick(design) {
    state.picked = design;
    state.pointed = null;
    if (design) fill(byId("chosen"), design);
    else { byId("chosen").replaceChildren(); delete byId("chosen").dataset.design; }
    drawOverlay();
    drawParallel();
  }

  function showTip(design, x, y) {
    tip.hidden = !design;
    if (!design) return;
    fill(tip, design);
    const { width, height } = tip.getBoundingClientRect();
    const left = x + 16 + width > plot.width ? Math.max(0, x - width - 16) : x + 16;
    tip.style.left = `${Math.min(left, plot.width - width)}px`;
    tip.style.top = `${Math.max(0, Math.min(y - height / 2, plot.height - height))}px`;
  }

  function setFilter(key, low, high) {
    if (low === null && high === null) delete state.filters[key];
    else state.filters[key] = [low ?? -Infinity, high ?? Infinity];
    filtersChanged();
  }

  function filtersChanged() {
    applyFilters();
    showTyped();
    drawAll();
  }

  // ---- Pointer and keys on the scatter plot. ----

  function placed(event, element) {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  let pressed = null;
  const LEAST_DRAG = 6;

  scatter.addEventListener("pointerdown", (event) => { pressed = placed(event, scatter); });
  scatter.addEventListener("pointermove", (event) => {
    const at = placed(event, scatter);
    if (pressed && Math.hypot(at.x - pressed.x, at.y - pressed.y) > LEAST_DRAG) {
      showTip(null);
      scatter.setPointerCapture(event.pointerId);
      drawOverlay({ x0: pressed.x, y0: pressed.y, x1: at.x, y1: at.y });
      return;
    }
    const design = designAt(at.x, at.y);
    look(design);
    showTip(design, at.x, at.y);
  });
  scatter.addEventListener("pointerup", (event) => {
    const at = placed(event, scatter);
    if (pressed && Math.hypot(at.x - pressed.x, at.y - pressed.y) > LEAST_DRAG) {
      const between = (axis, one, other) => [axis.back(one), axis.back(other)].sort((a, b) => a - b);
      state.filters[state.x] = between(plot.x, pressed.x, at.x);
      state.filters[state.y] = between(plot.y, pressed.y, at.y);
      filtersChanged();
    } else {
      pick(designAt(at.x, at.y));
    }
    pressed = null;
  });
  scatter.addEventListener("pointercancel", () => { pressed = null; drawOverlay(); });
  scatter.addEventListener("pointerleave", () => { if (!pressed) { look(null); showTip(null); } });

  scatter.addEventListener("keydown", (event) => {
    const sorted = [...front].sort((one, other) => one.values[state.x] - other.values[state.x]);
    const now = sorted.findIndex((design) => state.picked && design.id === state.picked.id);
    const best = sorted.findIndex((design) => design.role === "recommended");
    const places = {
      ArrowRight: now < 0 ? best : now + 1, ArrowUp: now < 0 ? best : now + 1,
      ArrowLeft: now < 0 ? best : now - 1, ArrowDown: now < 0 ? best : now - 1,
      Home: 0, End: sorted.length - 1,
    };
    if (event.key === "Escape") { clearAll(); return; }
    if (!(event.key in places)) return;
    event.preventDefault();
    pick(sorted[Math.max(0, Math.min(sorted.length - 1, places[event.key]))]);
  });

  function clearAll() {
    state.filters = {};
    pick(null);
    showTip(null);
    filtersChanged();
  }

  // ---- Filters along the lines, typed ones, and the controls. ----

  let dragged = null;
  parallel.addEventListener("pointerdown", (event) => {
    const at = placed(event, parallel);
    const row = Math.round((at.y - TOP) / ROW);
    if (row < 0 || row >= parallelKeys.length) return;
    dragged = { key: parallelKeys[row], x: at.x };
    parallel.setPointerCapture(event.pointerId);
  });
  parallel.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    const axis = lines.scales[dragged.key];
    const ends = [axis.back(dragged.x), axis.back(placed(event, parallel).x)].sort((a, b) => a - b);
    state.filters[dragged.key] = ends;
    filtersChanged();
  });
  parallel.addEventListener("pointerup", (event) => {
    if (dragged && Math.abs(placed(event, parallel).x - dragged.x) < LEAST_DRAG) setFilter(dragged.key, null, null);
    dragged = null;
  });
  parallel.addEventListener("pointercancel", () => { dragged = null; });

  function typedInput(key, end, text) {
    const input = Object.assign(document.createElement("input"), { type: "number", step: "any", id: `${end}-${key}` });
    const holder = document.createElement("label");
    holder.append(`${text} `, input);
    input.addEventListener("change", () => {
      const [low, high] = ["low", "high"].map((side) => byId(`${side}-${key}`).value);
      setFilter(key, low === "" ? null : Number(low), high === "" ? null : Number(high));
    });
    return holder;
  }

  function makeTyped() {
    for (const key of parallelKeys) {
      const set = document.createElement("fieldset"), legend = document.createElement("legend");
      legend.textContent = `${metrics[key].name} (${metrics[key].unit})`;
      set.append(legend, typedInput(key, "low", "from"), typedInput(key, "high", "to"));
      byId("typed-filters").append(set);
    }
  }

  function showTyped() {
    for (const key of parallelKeys) {
      const ends = state.filters[key] || [-Infinity, Infinity];
      ["low", "high"].forEach((side, place) => {
        const value = Number.isFinite(ends[place]) ? String(Number(ends[place].toPrecision(6))) : "";
        if (document.activeElement !== byId(`${side}-${key}`)) byId(`${side}-${key}`).value = value;
      });
    }
  }

  function makeControls() {
    for (const axis of ["x", "y"]) {
      const select = byId(`axis-${axis}`);
      for (const [key, metric] of Object.entries(metrics)) {
        select.append(new Option(metric.name, key, false, key === state[axis]));
      }
      select.addEventListener("change", () => { state[axis] = select.value; drawAll(); });
    }
    const [low, high] = extent(state.x);
    state.isLog = high > 10 * low;
    byId("log-scale").checked = state.isLog;
    byId("log-scale").addEventListener("change", (event) => { state.isLog = event.target.checked; drawAll(); });
    for (const id of ["show-beaten", "show-broken", "show-errors"]) byId(id).addEventListener("change", drawAll);
    byId("clear-filters").addEventListener("click", clearAll);
    for (const button of document.querySelectorAll(".pick")) {
      button.addEventListener("click", () => {
        pick(frontById.get(Number(button.dataset.design)));
        scatter.scrollIntoView({ block: "center" });
      });
    }
  }

  function saveJob() {
    const blob = new Blob([`${JSON.stringify(report.job, null, 2)}\n`], { type: "application/json" });
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "job.json" });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  document.documentElement.classList.add("has-script");
  byId("save-job").addEventListener("click", saveJob);
  if (!front.length) { document.documentElement.dataset.ready = "true"; return; }
  makeControls();
  makeTyped();
  filtersChanged();
  new ResizeObserver(drawAll).observe(scatter);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  const drawNow = () => { drawCloud(); drawOverlay(); drawParallel(); };
  window.addEventListener("beforeprint", drawNow);
  window.addEventListener("afterprint", drawNow);
  if (answer.recommendation) pickLater();

  function pickLater() {
    requestAnimationFrame(() => {
      pick(frontById.get(recommendedId) || null);
      document.documentElement.dataset.ready = "true";
    });
  }

  // For scripts and tests: where a design of the front lies in the picture.
  window.capplanReport = {
    placeOf: (id) => {
      const design = frontById.get(id);
      return { x: plot.x.place(design.values[state.x]), y: plot.y.place(design.values[state.y]) };
    },
  };
})();
