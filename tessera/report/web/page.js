// All of the page: which sections it has, the theme, the choice of a plan.
const planSections = ['comparison-section', 'timeline-section', 'memory-section', 'time-section', 'path-section', 'communication-section', 'tables-section', 'plan-section'];
function draw() {
  for (const c of charts) c.dispose();
  charts = [];
  for (const group of ['time', 'record']) echarts.disconnect(group);
  $('title').textContent = data.title;
  $('subtitle').textContent = data.subtitle;
  $('model').textContent = data.model;
  $('model-fold').hidden = !data.model;
  for (const id of planSections) $(id).hidden = !run;
  for (const id of recordSections) $(id).hidden = !data.record;
  $('verdict-section').hidden = !run && !data.record;
  $('run-label').hidden = data.runs.length < 2;
  $('curve-section').hidden = !data.curve;
  if (run) { verdict(); comparison(); }
  if (data.curve) curve();
  if (data.record) record();
  if (run) { timeline(); memory(); spent(); costs(); path(); communication(); tables(); plan(); }
  for (const group of ['time', 'record']) echarts.connect(group);
}
function theme(name) {
  document.documentElement.dataset.theme = name;
  $('theme').textContent = name === 'dark' ? 'Light' : 'Dark';
  draw();
}
$('run').innerHTML = data.runs.map((r, i) => `<option value="${i}">${text(r.name)}</option>`).join('');
$('run').value = String(data.best_run);
memoryRole = -1;
$('run').addEventListener('change', () => { run = data.runs[Number($('run').value)]; memoryRole = -1; draw(); });
$('theme').addEventListener('click', () => theme(isDark() ? 'light' : 'dark'));
let drawnNarrow = isNarrow();
addEventListener('resize', () => {
  if (isNarrow() !== drawnNarrow) { drawnNarrow = isNarrow(); draw(); return; }
  for (const c of charts) c.resize();
});
theme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
window.tesseraReport = { charts: () => charts, run: () => run, data: () => data };  // for the test in a browser
