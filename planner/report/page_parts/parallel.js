// How do all figures of a design show at once? A line across one scale for each figure.

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

// Lines would run through the text, so that it stands on a piece of paper.
function label(context, paint, colour, text, x, y, align) {
  const { width } = context.measureText(text);
  context.fillStyle = paint.paper;
  context.fillRect(align === "right" ? x - width - 3 : x - 3, y - 12, width + 6, 16);
  context.textAlign = align;
  context.fillStyle = colour;
  context.fillText(text, x, y);
}
