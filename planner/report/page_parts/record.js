// What does the page hold, and what works without a front to explore? The record; its job can be saved as a file.

const byId = (id) => document.getElementById(id);
async function unzipped(text) {
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const report = JSON.parse(new TextDecoder().decode(await unzipped(byId("report-data").textContent)));
const answer = report.answer;

function saveJob() {
  const blob = new Blob([`${JSON.stringify(report.job, null, 2)}\n`], { type: "application/json" });
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "job.json" });
  link.click();
  URL.revokeObjectURL(link.href);
}

function sayReady() {
  document.documentElement.dataset.ready = "true";
}

// Paper cannot be opened; browsers without ::details-content need this, and get back what was closed.
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const details of opened) details.open = true;
});
window.addEventListener("afterprint", () => {
  for (const details of opened) details.open = false;
  opened = [];
});

document.documentElement.classList.add("has-script");
byId("save-job").addEventListener("click", saveJob);
if (!answer.front.length) {
  sayReady();
  return;
}
