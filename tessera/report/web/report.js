// Draws the page from the JSON in #data (written by tessera/report/data.cc; times there are nanoseconds).
'use strict';
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Okabe and Ito's colours, which stay apart for most colour-blind readers, and two greys.
const palette = {
  forward: '#56b4e9', backward: '#0072b2', weight: '#5e6fd8', prologue: '#999999', update: '#cc79a7',
  compute: '#56b4e9', recompute: '#0072b2', collective: '#e69f00', message: '#009e73', copy: '#f0e442',
  host: '#999999', bubble: '#c9c9c9', wait: '#c9c9c9',
};
const wheel = ['#56b4e9', '#e69f00', '#009e73', '#cc79a7', '#0072b2', '#d55e00', '#f0e442', '#999999'];
const colour = (name, index = 0) => palette[name] || wheel[index % wheel.length];

// ---- figures with their units
const scaled = (value, steps, digits = 3) => {
  for (const [size, unit] of steps) if (Math.abs(value) >= size) return `${(value / size).toPrecision(digits)} ${unit}`;
  const [size, unit] = steps[steps.length - 1];
  return `${(value / size).toPrecision(digits)} ${unit}`;
};
const seconds = (s) => s === 0 ? '0 s' : scaled(s, [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']]);
const nanoseconds = (ns) => seconds(ns * 1e-9);
const bytes = (b) => b === 0 ? '0 B' : scaled(b, [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]);
const count = (n) => scaled(n, [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']]).trim();
const percent = (x) => `${(100 * x).toFixed(1)} %`;
const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const text = (s) => String(s).replace(/[&<>"]/g, (c) => escapes[c]);

// ---- charts: made anew when the theme or the plan changes
let charts = [];
let run = data.runs[0];
function chart(id, option) {
  const dark = document.documentElement.dataset.theme === 'dark';
  const made = echarts.init($(id), dark ? 'dark' : null, { renderer: 'canvas' });
  made.setOption({
    backgroundColor: 'transparent', animation: false,
    textStyle: { fontFamily: 'system-ui, sans-serif', color: style('--ink') },
    ...option,
  });
  charts.push(made);
  return made;
}
const tooltip = () => ({
  backgroundColor: style('--panel'), borderColor: style('--line'), textStyle: { color: style('--ink'), fontSize: 12 },
  confine: true,
});
const axisColours = () => ({
  axisLine: { lineStyle: { color: style('--line') } }, axisLabel: { color: style('--soft') },
  splitLine: { lineStyle: { color: style('--line') } }, nameTextStyle: { color: style('--soft') },
});
const legend = () => ({ textStyle: { color: style('--soft') }, top: 0, type: 'scroll', pageTextStyle: { color: style('--soft') } });
const table = (head, rows, texts = [0]) =>
  `<thead><tr>${head.map((h, i) => `<th${texts.includes(i) ? ' class="text"' : ''}>${text(h)}</th>`).join('')}</tr></thead><tbody>` +
  rows.map((row) => `<tr${row.mark ? ` class="${row.mark}"` : ''}${row.attributes || ''}>` +
    (row.cells || row).map((c, i) => `<td${texts.includes(i) ? ' class="text"' : ''}>${text(c)}</td>`).join('') + '</tr>').join('') + '</tbody>';

// ---- throughput against memory, as a search saw it
const rate = (n) => `${count(n)} sequences/s`;
function curve() {
  const { about, estimated, simulated, best, limit_bytes: limit, planner, refused } = data.curve;
  const largest = Math.max(...estimated.concat(simulated).map((point) => point.memory_bytes));
  const near = limit > 0 && limit < 2 * largest;
  const limited = limit ? `A plan may use ${bytes(limit)} of a device${near ? '' : ', which lies to the right of the chart'}.` : 'No limit of memory is known.';
  $('curve-note').textContent = `${about}. Line: by formula, the choices of which no other is both faster and smaller. Points: simulated programs, which decide. ${limited}` +
    (refused ? ` ${refused.toLocaleString('en')} choices could not be lowered to programs and are not shown.` : '');
  const value = (point) => ({ value: [point.memory_bytes, point.sequences_per_s], point });
  const line = (what, point) => `${what}: ${rate(point.sequences_per_s)}, ${seconds(point.step_s)} a step, ${bytes(point.memory_bytes)}`;
  const named = (name, more, shown) => ({ name, data: shown.map(value), ...more });
  const others = simulated.filter((_, i) => i !== best);
  const points = { type: 'scatter', symbolSize: 9 };
  chart('curve', {
    tooltip: { ...tooltip(), formatter: (p) => {
      const { point } = p.data;
      return `<b>${text(point.choice)}</b><br>${line(point.estimate ? 'simulated' : 'by formula', point)}` +
        (point.estimate ? `<br>${line('by formula', point.estimate)}` : '') + (point.fits ? '' : '<br>does not fit');
    } },
    legend: legend(), grid: { left: 24, right: 72, top: 36, bottom: 28, containLabel: true },
    xAxis: { type: 'value', scale: true, name: 'memory of a device', nameLocation: 'middle', nameGap: 26, ...axisColours(),
      axisLabel: { formatter: bytes, color: style('--soft'), hideOverlap: true } },
    yAxis: { type: 'value', scale: true, name: 'sequences/s', ...axisColours(), axisLabel: { formatter: count, color: style('--soft') } },
    series: [
      named('by formula', { type: 'line', step: 'end', symbolSize: 6, itemStyle: { color: wheel[0] } }, estimated),
      named('simulated, fits', { ...points, itemStyle: { color: wheel[2] } }, others.filter((point) => point.fits)),
      named('simulated, does not fit', { ...points, symbol: 'triangle', itemStyle: { color: wheel[5] } }, others.filter((point) => !point.fits)),
      named('the answer', { ...points, symbol: 'diamond', symbolSize: 18, itemStyle: { color: wheel[1], borderColor: style('--ink'), borderWidth: 1 } }, best === null ? [] : [simulated[best]]),
      { name: 'limit', type: 'line', symbol: 'none', silent: true, itemStyle: { color: style('--bad') },
        data: near ? [[limit, (simulated[0] || estimated[0]).sequences_per_s]] : [],  // keeps the limit inside the axes
        markLine: { silent: true, symbol: 'none', lineStyle: { color: style('--bad') }, label: { formatter: 'limit', position: 'insideEndTop', color: style('--bad') }, data: [{ xAxis: limit }] } },
    ].filter((series) => series.data.length),
  });
  const tried = new Set(simulated.map((point) => point.choice));
  const rows = simulated.map((point, i) => ({ point, estimate: point.estimate, best: i === best }))
    .concat(estimated.filter((point) => !tried.has(point.choice)).map((estimate) => ({ estimate })));
  const cells = (point) => point ? [count(point.sequences_per_s), bytes(point.memory_bytes)] : ['', ''];
  $('choices').innerHTML = table([`choice of planner ${planner}`, 'sequences/s', 'memory', 'by formula: sequences/s', 'memory', 'state'],
    rows.sort((a, b) => (a.point || a.estimate).memory_bytes - (b.point || b.estimate).memory_bytes).map((row) => ({
      mark: row.best ? 'best' : '',
      cells: [row.estimate.choice, ...cells(row.point), ...cells(row.estimate),
        row.best ? 'the answer' : (row.point || row.estimate).fits ? row.point ? 'fits' : 'not simulated' : row.point ? 'does not fit' : 'does not fit, not simulated'],
    })));
}

// ---- tiles and comparison
function tiles() {
  const s = run.summary;
  const fits = !s.capacity_bytes || s.peak_memory_bytes <= s.capacity_bytes;
  const list = [
    [seconds(s.step_time_s), `a step, ± ${percent(s.uncertainty)}`],
    [count(s.tokens_per_s), 'tokens a second'],
    [`${(s.flops_per_device / 1e12).toPrecision(3)}`, 'TFLOP/s a device (model FLOP)'],
    [percent(s.mfu), 'model FLOP utilisation'],
    [bytes(s.peak_memory_bytes), s.capacity_bytes ? `at most on a device of ${bytes(s.capacity_bytes)}` : 'at most on a device', !fits],
    [s.ranks.toLocaleString('en'), 'ranks'],
  ];
  $('tiles').innerHTML = list.map(([value, name, bad]) =>
    `<div class="tile${bad ? ' bad' : ''}"><b>${text(value)}</b><span>${text(name)}${bad ? ': does not fit' : ''}</span></div>`).join('');
}
function comparison() {
  $('comparison-section').hidden = data.runs.length < 2;
  if (data.runs.length < 2) return;
  const best = Math.min(...data.runs.map((r) => r.summary.step_time_s));
  $('comparison').innerHTML = table(['plan', 'step', 'against the best', 'tokens/s', 'MFU', 'peak memory', 'sent a rank'],
    data.runs.map((r) => ({
      mark: r.summary.step_time_s === best ? 'best' : '',
      cells: [r.name, seconds(r.summary.step_time_s), `${(r.summary.step_time_s / best).toFixed(2)} x`, count(r.summary.tokens_per_s),
        percent(r.summary.mfu), bytes(r.summary.peak_memory_bytes), bytes(r.summary.bytes_sent)],
    })));
  chart('comparison-chart', {
    tooltip: { ...tooltip(), trigger: 'axis', axisPointer: { type: 'shadow' }, valueFormatter: seconds },
    legend: legend(), grid: { left: 8, right: 24, top: 36, bottom: 8, containLabel: true },
    xAxis: { type: 'value', ...axisColours(), axisLabel: { formatter: seconds, color: style('--soft') } },
    yAxis: { type: 'category', inverse: true, data: data.runs.map((r) => r.name), ...axisColours(),
      axisLabel: { color: style('--soft'), width: 260, overflow: 'truncate' } },
    series: data.spent.map((name, i) => ({
      name, type: 'bar', stack: 'step', itemStyle: { color: colour(name, i) }, data: data.runs.map((r) => r.summary.spent_s[i]),
    })),
  });
}

// ---- timeline: bars of block runs, and of single instructions where few enough are in view
const kMostBars = 4000;
function inView(items, from, to) {  // items: [row, start, end, ...] sorted by start
  let low = 0, high = items.length;
  const reach = items.longest || (items.longest = items.reduce((m, e) => Math.max(m, e[2] - e[1]), 0));
  while (low < high) { const mid = (low + high) >> 1; if (items[mid][1] < from - reach) low = mid + 1; else high = mid; }
  const out = [];
  for (let i = low; i < items.length && items[i][1] <= to; ++i) {
    if (items[i][2] >= from) out.push(items[i]);
    if (out.length > kMostBars) return null;
  }
  return out;
}
function timeline() {
  const end = run.end_ns;
  const rows = run.rows;
  const visible = (from, to) => {
    const events = run.events.length ? inView(run.events, from, to) : null;
    if (events) return { bars: events, what: 'instructions' };
    const blocks = inView(run.blocks, from, to);
    return { bars: blocks || run.blocks.slice(0, kMostBars), what: run.events.length ? 'runs of blocks; zoom in for instructions' : 'runs of blocks' };
  };
  // A run of a block is [row, from, to, block, micro-batch]; an instruction has ten fields (data.cc).
  const key = (bar) => bar.length > 5 ? run.labels[bar[3]] : run.labels[bar[3]].split('@')[0];
  const value = (bar) => ({ value: [bar[1], bar[0], bar[2]], bar, itemStyle: { color: colour(key(bar)) } });
  const first = visible(0, end);
  const note = (what) => { $('timeline-note').textContent = `${rows.length} lanes of ${run.summary.ranks.toLocaleString('en')} ranks, one rank of each kind; shown: ${what}. Scroll or drag to zoom.` + (run.capped ? ` Single instructions are kept for the first ${nanoseconds(run.capped)}.` : ''); };
  note(first.what);
  $('timeline').style.height = `${Math.max(220, Math.min(900, 110 + rows.length * 22))}px`;
  const made = chart('timeline', {
    tooltip: { ...tooltip(), formatter: (p) => {
      const bar = p.data.bar;
      const when = `${nanoseconds(bar[1])} to ${nanoseconds(bar[2])}: ${nanoseconds(bar[2] - bar[1])}`;
      if (bar.length === 5) return `<b>${text(run.labels[bar[3]])}</b>, micro-batch ${bar[4]}<br>${text(rows[bar[0]])}<br>${when}`;
      return `<b>${text(run.labels[bar[4]])}</b><br>${text(run.labels[bar[5]])} <code>${text(run.labels[bar[6]])}:${bar[7]}:${bar[8]}</code><br>` +
        `${text(rows[bar[0]])}<br>${when}${bar[9] ? `<br>${bytes(bar[9])}` : ''}`;
    } },
    grid: { left: 8, right: 16, top: 12, bottom: 56, containLabel: true },
    xAxis: { type: 'value', min: 0, max: end, ...axisColours(), axisLabel: { formatter: nanoseconds, color: style('--soft') } },
    yAxis: { type: 'category', inverse: true, data: rows, ...axisColours(), splitLine: { show: true, lineStyle: { color: style('--line') } },
      axisLabel: { color: style('--soft'), fontSize: 11, interval: 0 } },
    dataZoom: [
      { type: 'inside', xAxisIndex: 0, filterMode: 'none', minValueSpan: 1 },
      { type: 'slider', xAxisIndex: 0, filterMode: 'none', bottom: 8, height: 22, labelFormatter: nanoseconds, textStyle: { color: style('--soft') } },
    ],
    series: [{
      type: 'custom', clip: true, encode: { x: [0, 2], y: 1 }, data: first.bars.map(value), progressive: 0,
      renderItem: (params, api) => {
        const from = api.coord([api.value(0), api.value(1)]), to = api.coord([api.value(2), api.value(1)]);
        const height = Math.max(3, api.size([0, 1])[1] * 0.72);
        const box = echarts.graphic.clipRectByRect(
          { x: from[0], y: from[1] - height / 2, width: Math.max(1, to[0] - from[0]), height },
          { x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height });
        return box && { type: 'rect', shape: box, style: { fill: api.visual('color') } };
      },
    }],
  });
  let waiting = false;
  made.on('datazoom', () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const zoom = made.getOption().dataZoom[0];
      const shown = visible(zoom.startValue, zoom.endValue);
      note(shown.what);
      made.setOption({ series: [{ data: shown.bars.map(value) }] });
    });
  });
  made.group = 'time';
}

// ---- memory
function liveAt(role, time) {  // [name, bytes, what], largest first; what has no name of its own comes last
  const { at_peak, intervals, peak_time_ns, timeline } = role.memory;
  if (time === peak_time_ns) return at_peak;
  const list = [];
  for (const [name, size, what, spans] of intervals) {
    let copies = 0;
    for (let i = 0; i < spans.length; i += 2) copies += spans[i] <= time && time < spans[i + 1] ? 1 : 0;
    if (copies) list.push([copies > 1 ? `${name} x ${copies}` : name, copies * size, what]);
  }
  list.sort((a, b) => b[1] - a[1]);
  let all = 0;
  for (const [at, size] of timeline) { if (at > time) break; all = size; }
  const rest = all - list.reduce((sum, live) => sum + live[1], 0);
  return rest > 0 ? list.concat([['smaller buffers', rest, 'others']]) : list;
}
function live(role, time) {
  const list = liveAt(role, time);
  $('live').innerHTML = table([`live on rank ${role.representative} at ${nanoseconds(time)}`, 'what', 'bytes'],
    list.slice(0, 14).map(([name, size, what]) => [name, what, bytes(size)]), [0, 1]);
  const sums = {};
  for (const [, size, what] of list) sums[what] = (sums[what] || 0) + size;
  const old = echarts.getInstanceByDom($('live-chart'));
  if (old) { charts = charts.filter((c) => c !== old); old.dispose(); }
  chart('live-chart', {
    tooltip: { ...tooltip(), formatter: (p) => `${text(p.name)}<br>${bytes(p.value)} (${p.percent} %)` },
    series: [{ type: 'pie', radius: ['40%', '70%'], label: { color: style('--ink'), formatter: '{b}' },
      data: Object.entries(sums).map(([name, size], i) => ({ name, value: size, itemStyle: { color: wheel[i % wheel.length] } })) }],
  });
}
function memory() {
  const made = chart('memory', {
    tooltip: { ...tooltip(), trigger: 'axis', formatter: (list) => {
      const time = list[0].axisValue;
      const top = [...list].sort((a, b) => b.value[1] - a.value[1])[0];
      const names = liveAt(run.roles[top.seriesIndex], time).slice(0, 6).map(([name, size]) => `${text(name)}: ${bytes(size)}`).join('<br>');
      return `${nanoseconds(time)}<br>${list.map((p) => `${p.marker}${text(p.seriesName)}: <b>${bytes(p.value[1])}</b>`).join('<br>')}` +
        (names ? `<br><i>largest on ${text(top.seriesName)}</i><br>${names}` : '');
    } },
    legend: legend(), grid: { left: 8, right: 60, top: 36, bottom: 44, containLabel: true },
    xAxis: { type: 'value', min: 0, max: run.end_ns, ...axisColours(), axisLabel: { formatter: nanoseconds, color: style('--soft') } },
    yAxis: { type: 'value', ...axisColours(), axisLabel: { formatter: bytes, color: style('--soft') } },
    dataZoom: [{ type: 'inside', filterMode: 'none' }, { type: 'slider', filterMode: 'none', bottom: 4, height: 18, labelFormatter: nanoseconds, textStyle: { color: style('--soft') } }],
    series: run.roles.map((role, i) => ({
      name: `rank ${role.representative}`, type: 'line', step: 'end', showSymbol: false, lineStyle: { width: 1.5 },
      itemStyle: { color: wheel[i % wheel.length] }, data: role.memory.timeline,
      markLine: i === 0 && run.summary.capacity_bytes && run.summary.capacity_bytes < 4 * run.summary.peak_memory_bytes
        ? { silent: true, symbol: 'none', lineStyle: { color: style('--bad') }, label: { formatter: 'capacity', color: style('--bad') }, data: [{ yAxis: run.summary.capacity_bytes }] } : undefined,
    })),
  });
  const worst = run.roles.reduce((a, b) => b.memory.peak_bytes > a.memory.peak_bytes ? b : a);
  live(worst, worst.memory.peak_time_ns);
  made.getZr().on('click', (event) => {
    const at = made.convertFromPixel({ gridIndex: 0 }, [event.offsetX, event.offsetY]);
    if (at) live(worst, Math.max(0, Math.min(run.end_ns, at[0])));
  });
  made.group = 'time';
}

// ---- where time goes
function spent() {
  chart('spent', {
    tooltip: { ...tooltip(), trigger: 'axis', axisPointer: { type: 'shadow' }, valueFormatter: seconds },
    legend: legend(), grid: { left: 8, right: 16, top: 36, bottom: 8, containLabel: true },
    xAxis: { type: 'category', data: run.roles.map((r) => `rank ${r.representative}`), ...axisColours() },
    yAxis: { type: 'value', ...axisColours(), axisLabel: { formatter: seconds, color: style('--soft') } },
    series: data.spent.map((name, i) => ({ name, type: 'bar', stack: 'step', barMaxWidth: 60, itemStyle: { color: colour(name, i) },
      data: run.roles.map((r) => r.spent_s[i]) })),
  });
}
function costs() {
  const list = run.costs.slice(0, 14);
  chart('costs', {
    tooltip: { ...tooltip(), formatter: (p) => `${text(p.name)}<br>${seconds(p.value)} of all ranks' lanes (${percent(list[p.dataIndex][2])})` },
    grid: { left: 8, right: 24, top: 8, bottom: 8, containLabel: true },
    xAxis: { type: 'value', ...axisColours(), axisLabel: { formatter: seconds, color: style('--soft') } },
    yAxis: { type: 'category', inverse: true, data: list.map((c) => c[0]), ...axisColours() },
    series: [{ type: 'bar', data: list.map((c) => c[1]), itemStyle: { color: palette.forward } }],
  });
}

// ---- communication
function matrix() {
  const m = run.matrix;
  $('matrix-note').textContent = m.note;
  const largest = m.cells.reduce((a, c) => Math.max(a, c[2]), 1);
  chart('matrix', {
    tooltip: { ...tooltip(), formatter: (p) => `${text(m.labels[p.value[1]])} to ${text(m.labels[p.value[0]])}<br>${bytes(p.value[2])} a step` },
    grid: { left: 8, right: 96, top: 8, bottom: 28, containLabel: true },
    xAxis: { type: 'category', data: m.labels, name: 'to', nameLocation: 'middle', nameGap: 24, ...axisColours() },
    yAxis: { type: 'category', data: m.labels, inverse: true, ...axisColours() },
    visualMap: { min: 0, max: largest, right: 0, top: 'middle', calculable: true, formatter: bytes, textStyle: { color: style('--soft') },
      inRange: { color: [style('--panel'), '#56b4e9', '#0b3d91'] } },
    series: [{ type: 'heatmap', data: m.cells.map(([from, to, size]) => [to, from, size]) }],
  });
  const rows = run.roles.flatMap((role) => role.traffic.map((t) => [`rank ${role.representative}`, t.kind, t.axes, t.count.toLocaleString('en'), bytes(t.bytes), seconds(t.busy_s), seconds(t.exposed_s), t.algorithm]));
  $('traffic').innerHTML = table(['rank', 'kind', 'over', 'calls', 'sent', 'busy', 'exposed', 'algorithm'], rows, [0, 1, 2, 7]);
  $('path').innerHTML = table(['what', 'rank', 'from', 'time', 'share'], run.path.map((p) => [p.label ? `${p.what}: ${p.label}` : p.what, p.rank, nanoseconds(p.start), nanoseconds(p.end - p.start), percent((p.end - p.start) / run.end_ns)]));
}

// ---- embedding tables
function tables() {
  const { shares, loads } = run.tables;
  $('tables-section').hidden = !loads.length;
  if (!loads.length) return;
  const classes = loads.some(([, ranks]) => ranks > 1);
  const read = loads.reduce((sum, load) => sum + load[1] * load[6], 0), most = Math.max(...loads.map((load) => load[6]));
  const devices = loads.reduce((sum, load) => sum + load[1], 0);
  $('tables-note').textContent = (classes ? 'One rank of each class of equal ranks. ' : '') +
    `A step looks up ${bytes(read)} on ${devices} ranks, on the busiest ${read > 0 ? (most * devices / read).toPrecision(3) : '0'} times the mean.`;
  const names = loads.map(([rank, ranks]) => ranks > 1 ? `rank ${rank} and ${ranks - 1} more` : `rank ${rank}`);
  const bars = (id, series) => chart(id, {
    tooltip: { ...tooltip(), trigger: 'axis', formatter: (items) => `${text(items[0].axisValue)}<br>` +
      items.map((p) => `${text(p.seriesName)}: ${bytes(p.value)}`).join('<br>') },
    legend: legend(),
    grid: { left: 8, right: 24, top: 32, bottom: 8, containLabel: true },
    xAxis: { type: 'category', data: names, ...axisColours() },
    yAxis: { type: 'value', ...axisColours(), axisLabel: { formatter: bytes, color: style('--soft') } },
    series: series.map(([name, at, fill]) => ({ name, type: 'bar', stack: 'rank', barMaxWidth: 60, itemStyle: { color: fill },
      data: loads.map((load) => load[at]) })),
  });
  bars('table-bytes', [['tables at rest', 3, palette.forward], ['their states', 4, palette.update]]);
  bars('table-reads', [['rows that a step looks up', 6, palette.collective]]);
  const shown = 2000;
  const range = (first, size) => size ? `${first.toLocaleString('en')} to ${(first + size - 1).toLocaleString('en')}` : 'none';
  $('tables').innerHTML = table(['table', 'rank', 'rows', 'columns', 'tier', 'bytes', 'its states'],
    shares.slice(0, shown).map(([name, rank, row, rows, column, columns, tier, size, states]) =>
      [name, rank, range(row, rows), range(column, columns), tier, bytes(size), bytes(states)])
      .concat(shares.length > shown ? [[`... and ${shares.length - shown} more`, '', '', '', '', '', '']] : []), [0, 2, 3, 4]);
}

// ---- plan beside graph
function plan() {
  $('plan').innerHTML = run.plan_text.trimEnd().split('\n').map((line, i) => `<span data-line="${i + 1}"><i>${i + 1}</i>${text(line)}</span>`).join('');
  ops($('filter').value.trim());
}
function ops(filter) {
  const most = 600;
  const found = run.ops.filter((op) => op.path.includes(filter));
  $('ops').innerHTML = table(['op', 'kind', 'stage', 'splits'],
    found.slice(0, most).map((op) => ({ cells: [op.path, op.kind, op.stage, op.splits], attributes: ` data-lines="${op.lines.join(' ')}"` }))
      .concat(found.length > most ? [[`... and ${found.length - most} more`, '', '', '']] : []), [0, 1, 3]);
}
$('ops').addEventListener('mouseover', (event) => {
  const row = event.target.closest('tr[data-lines]');
  const lines = new Set(row ? row.dataset.lines.split(' ') : []);
  for (const span of $('plan').children) span.classList.toggle('marked', lines.has(span.dataset.line));
});
$('filter').addEventListener('input', () => ops($('filter').value.trim()));

// ---- all of it
function draw() {
  for (const c of charts) c.dispose();
  charts = [];
  echarts.disconnect('time');
  $('title').textContent = data.title;
  $('subtitle').textContent = data.subtitle;
  for (const section of document.querySelectorAll('main > section')) section.hidden = !run;
  $('run-label').hidden = !run;
  $('curve-section').hidden = !data.curve;
  if (data.curve) curve();
  if (!run) return;
  tiles(); comparison(); timeline(); memory(); spent(); costs(); matrix(); tables(); plan();
  echarts.connect('time');
}
function theme(name) {
  document.documentElement.dataset.theme = name;
  $('theme').textContent = name === 'dark' ? 'Light' : 'Dark';
  draw();
}
$('run').innerHTML = data.runs.map((r, i) => `<option value="${i}">${text(r.name)}</option>`).join('');
$('run').addEventListener('change', () => { run = data.runs[Number($('run').value)]; draw(); });
$('theme').addEventListener('click', () => theme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
addEventListener('resize', () => { for (const c of charts) c.resize(); });
theme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
window.tesseraReport = { charts: () => charts, run: () => run, data: () => data };  // for the test in a browser
})();
