// What does the page hold, and what works without a front to explore? The record; its job can be saved as a file.

const byId = (id) => document.getElementById(id);
const report = JSON.parse(byId("report-data").textContent);
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

document.documentElement.classList.add("has-script");
byId("save-job").addEventListener("click", saveJob);
if (!answer.front.length) {
  sayReady();
  return;
}
