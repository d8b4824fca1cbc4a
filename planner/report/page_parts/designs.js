// Which designs are there? The front exactly as the answer has it, all others as columns; and what they are in words.

const recommendedId = answer.recommendation ? answer.recommendation.design_id : -1;
const tiedIds = new Set(answer.uncertainty ? answer.uncertainty.tied_designs : []);
const hasSeveralSites = new Set(answer.front.map((design) => design.region)).size > 1;
const front = answer.front.map((design) => ({
  id: design.design_id,
  role: design.design_id === recommendedId ? "recommended" : tiedIds.has(design.design_id) ? "tied" : "front",
  interval: report.step_intervals[design.design_id],
  values: { ...design, num_gpus: design.plan.num_gpus },
  accelerator: `${design.accelerator}${hasSeveralSites ? ` in ${design.region}` : ""}`,
  plan: design.plan,
}));
const frontById = new Map(front.map((design) => [design.id, design]));

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

const cloud = await readCloud();
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
  const words = (name) => name.replace(/_(usd|days|w|kgco2e|fraction)$/, "").replace(/_/g, " ");
  if (design.role === "broken") return `violates ${design.broken.map(words).join(", ")}`;
  return {
    recommended: "recommended", tied: "on the front; indistinguishable from the recommended one",
    front: "on the front", beaten: "dominated by another design",
  }[design.role];
}

function describe(design) {
  const plan = design.plan;
  return {
    title: `Design ${design.id}: ${roleWords(design)}`,
    lines: [
      `${formats.count(plan.num_gpus)} x ${design.accelerator}, ${layoutWords(plan)}, micro-batch ` +
        `${plan.micro_batch_size}, recompute ${plan.recompute}` +
        `${plan.recompute_num_layers ? ` of ${plan.recompute_num_layers} layers` : ""}, ZeRO ${plan.zero_stage}` +
        `${plan.shard_ranks ? ` in groups of ${plan.shard_ranks}` : ""}, ${plan.precision}, ` +
        `saves ${plan.checkpoint_scheme}, ${plan.num_spare_nodes} spare node${plan.num_spare_nodes === 1 ? "" : "s"}`,
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
