// What all parts of the page share: figures with their units, colours, tables, bars, charts. The data are the JSON in
// #data, written by tessera/report/page_data.cc; times there are nanoseconds.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => document.documentElement.dataset.theme === 'dark';
const isNarrow = () => innerWidth < 700;

// ---- colours: Okabe and Ito's, which stay apart for most colour-blind readers, with greys and near relatives
const palette = {
  forward: '#7cbcea', backward: '#2a6fb0', prologue: '#a4adb8', update: '#9a6fd0',
  all_reduce: '#e69f00', all_gather: '#f0c419', reduce_scatter: '#d55e00', all_to_all: '#c2478f', broadcast: '#a6761d',
  send: '#009e73', receive: '#58c3a0', copy: '#8f8a3c',
  compute: '#56a3dc', recompute: '#2a6fb0', collective: '#e69f00', message: '#009e73', host: '#8b95a1', bubble: '#c6ccd3', wait: '#c6ccd3',
  parameter: '#1f66a8', 'optimizer state': '#6db3e8', gradient: '#cc79a7', gathered: '#7f63c4', activation: '#e69f00',
  'activation gradient': '#f4cb6a', workspace: '#009e73', input: '#a6761d', table: '#8f8a3c', residual: '#d55e00', 'smaller buffers': '#b9c0c8',
  overhead: '#8b95a1', held: '#d5dae0',
};
const wheel = ['#56b4e9', '#e69f00', '#009e73', '#cc79a7', '#0072b2', '#d55e00', '#f0e442', '#999999'];
const colour = (name, index = 0) => name === 'held' && isDark() ? '#3a424b' : palette[name] || wheel[index % wheel.length];

// ---- figures with their units
// Digits of a number: three, and never an exponent.
const digits = (value) => {
  const size = Math.abs(value);
  if (size >= 99.95) return Math.round(value).toLocaleString('en');
  if (size >= 9.995) return value.toFixed(1);
  return value.toFixed(2);
};
const scaled = (value, steps) => {
  for (const [size, unit] of steps) if (Math.abs(value) >= 0.9995 * size) return `${digits(value / size)} ${unit}`.trim();
  const [size, unit] = steps[steps.length - 1];
  return `${digits(value / size)} ${unit}`.trim();
};
const seconds = (s) => s === 0 ? '0 s' : scaled(s, [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']]);
const nanoseconds = (ns) => seconds(ns * 1e-9);
const kGib = 2 ** 30;
// All bytes are GiB: figures of one page can be compared at a glance.
const gib = (b) => {
  const value = Math.abs(b) / kGib;
  if (b === 0) return '0 GiB';
  if (value >= 0.01) return `${digits(b / kGib)} GiB`;
  return value >= 1e-4 ? `${(b / kGib).toFixed(4)} GiB` : '< 0.0001 GiB';
};
const count = (n) => scaled(n, [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k'], [1, '']]);
const whole = (n) => Math.round(n).toLocaleString('en');
const percent = (x) => `${(100 * x).toFixed(1)} %`;
const plural = (n, noun, nouns = `${noun}s`) => `${whole(n)} ${n === 1 ? noun : nouns}`;
const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const text = (s) => String(s).replace(/[&<>"]/g, (c) => escapes[c]);
// "all_reduce tp" as people write it: "all-reduce tp".
const words = (s) => s.replace(/^(all|reduce)_(to_)?/, (part) => part.replaceAll('_', '-')).replaceAll('_', ' ');

// Returns the step and the end of an axis from 0 to at least `most`: steps are 1, 2 or 5 times a power of ten.
function roundAxis(most, parts = 5) {
  const raw = Math.max(most, Number.MIN_VALUE) / parts, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((each) => each * size >= raw * 0.999) * size;
  return { step, end: step * Math.ceil(most / step - 1e-9) };
}
const plain = (value) => Number(value.toPrecision(6)).toLocaleString('en', { maximumFractionDigits: 9 });
// An axis of bytes in whole GiB, or in parts of one where all is smaller.
function gibAxis(most, parts) {
  const { step, end } = roundAxis(most / kGib, parts);
  return { type: 'value', min: 0, max: end * kGib, interval: step * kGib, ...axisColours(),
    axisLabel: { color: style('--soft'), formatter: (b) => `${plain(b / kGib)} GiB`, hideOverlap: true } };
}
// An axis of a step's time; its end, which is no round number, has no label.
function timeAxis(end) {
  const [size, unit] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']].find(([each]) => end >= 2 * each) || [1, 'ns'];
  return { type: 'value', min: 0, max: end, ...axisColours(), splitNumber: isNarrow() ? 4 : 8,
    axisLabel: { color: style('--soft'), formatter: (ns) => `${plain(ns / size)} ${unit}`, hideOverlap: true, showMaxLabel: false } };
}

// ---- charts: made anew when the theme or the plan changes
let charts = [];
function chart(id, option) {
  const old = echarts.getInstanceByDom($(id));
  if (old) { charts = charts.filter((c) => c !== old); old.dispose(); }
  const made = echarts.init($(id), isDark() ? 'dark' : null, { renderer: 'canvas' });
  made.setOption({
    backgroundColor: 'transparent', animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: style('--ink') },
    ...option,
  });
  charts.push(made);
  return made;
}
const tooltip = () => ({
  backgroundColor: style('--panel'), borderColor: style('--line'), textStyle: { color: style('--ink'), fontSize: 12 }, confine: true,
});
const axisColours = () => ({
  axisLine: { lineStyle: { color: style('--line') } }, axisLabel: { color: style('--soft') }, axisTick: { lineStyle: { color: style('--line') } },
  splitLine: { lineStyle: { color: style('--line') } }, nameTextStyle: { color: style('--soft') },
});
const markLine = (marks) => ({
  silent: true, symbol: 'none', animation: false,
  data: marks.map(({ at, axis = 'yAxis', name, ink, kind = 'solid', position = 'insideEndTop' }) => ({
    [axis]: at, lineStyle: { color: ink, type: kind, width: 1.5 },
    label: { formatter: name, position, color: ink, fontSize: 12, fontWeight: 600, textBorderColor: style('--panel'), textBorderWidth: 3 },
  })),
});

// ---- tables and bars of HTML
// `rows`: lists of cells, or { cells, mark, attributes, states }. A cell may be { html } or a text. `texts`: columns of texts.
function table(head, rows, texts = [0]) {
  const left = (i) => texts.includes(i) ? ' text' : '';
  const cell = (c, i, row) => `<td class="${(left(i) + ' ' + ((row.states || {})[i] || '')).trim()}" data-head="${text(head[i])}">${c && c.html !== undefined ? c.html : text(c)}</td>`;
  return `<thead><tr>${head.map((h, i) => `<th class="${left(i).trim()}">${text(h)}</th>`).join('')}</tr></thead><tbody>` +
    rows.map((row) => `<tr class="${row.mark || ''}"${row.attributes || ''}>${(row.cells || row).map((c, i) => cell(c, i, row)).join('')}</tr>`).join('') + '</tbody>';
}
// `rows`: { name, value, parts: [[share of the whole width, colour, title], ...] }.
function bars(rows, kind = '') {
  return `<div class="bars ${kind}">` + rows.map(({ name, value, parts }) =>
    `<div class="bar"><span class="name">${text(name)}</span><span class="track">` +
    parts.map(([share, ink, title]) => `<i style="width:${(100 * share).toFixed(3)}%;background:${ink}" title="${text(title)}"></i>`).join('') +
    `</span><span class="value">${text(value)}</span></div>`).join('') + '</div>';
}
const legend = (items) => items.map(([name, ink, line]) =>
  `<span><i class="${line ? 'line' : ''}" style="${line ? 'border-color' : 'background'}:${ink}"></i>${text(name)}</span>`).join('');
const state = (name) => name.replaceAll(' ', '');
