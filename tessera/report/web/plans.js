// What the page says about a plan, but for its timeline and its memory.
let run = data.runs[data.best_run];
const isSmall = (share) => share < 0.0005;
const rankName = (role) => role.ranks > 1 ? `rank ${role.representative} and ${plural(role.ranks - 1, 'other')} like it` : `rank ${role.representative}`;
const spentWords = { compute: 'compute', recompute: 'recompute', update: 'update', collective: 'collectives, exposed', message: 'messages, exposed',
  copy: 'copies, exposed', host: 'waiting for the host', bubble: 'waiting for other ranks' };
// The uses of time that one of the lists has, as legend entries.
const usedSpent = (lists) => data.spent.map((name, i) => [i, name]).filter(([i]) => lists.some((list) => list[i] > 0));
const spentLegend = (lists) => legend(usedSpent(lists).map(([i, name]) => [spentWords[name] || name, colour(name, i)]));
const spentParts = (list, most) => data.spent.map((name, i) => [list[i] / most, colour(name, i), `${spentWords[name] || name}: ${seconds(list[i])}`])
  .filter(([share]) => share > 0);

// ---- the verdict and the figures
function verdict() {
  const s = run.summary;
  const full = run.roles.reduce((a, b) => b.memory.total_bytes > a.memory.total_bytes ? b : a), { memory } = full;
  $('verdict-section').className = `verdict ${state(s.verdict.state)}`;
  $('verdict').textContent = s.verdict.text;
  $('verdict-note').textContent = data.runs.length > 1 ? `with ${run.name}` : '';
  const wide = Math.max(s.peak_memory_bytes, s.capacity_bytes);
  const part = (bytes, ink) => `<i style="width:${(100 * bytes / wide).toFixed(2)}%;background:${ink}"></i>`;
  const ink = { fits: '--good', tight: '--warn', 'too large': '--bad' }[s.verdict.state] || '--accent';
  const limit = s.capacity_bytes && s.capacity_bytes < wide ? `<u style="left:${(100 * s.capacity_bytes / wide).toFixed(2)}%"></u>` : '';
  $('meter').innerHTML = `<div class="meter"><div>${part(memory.overhead_bytes, colour('overhead'))}${part(Math.min(memory.live_bytes, memory.reserved_bytes), `var(${ink})`)}` +
    `${part(Math.max(0, memory.reserved_bytes - memory.live_bytes), colour('held'))}</div>${limit}</div>` +
    `<div class="meter-words"><span>Fullest: ${text(rankName(full))}, ${gib(memory.total_bytes)}: buffers ${gib(memory.live_bytes)}` +
    (memory.reserved_bytes - memory.live_bytes > 0.01 * memory.total_bytes ? `, the allocator's surplus ${gib(memory.reserved_bytes - memory.live_bytes)}` : '') +
    `, context and libraries ${gib(memory.overhead_bytes)}</span>` +
    `<span>${s.capacity_bytes ? `device: ${gib(s.capacity_bytes)}` : ''}</span></div>`;
  const list = [
    [seconds(s.step_time_s), `a step, ± ${percent(s.uncertainty)}`],
    [count(s.tokens_per_s), 'tokens a second, all ranks'],
    [s.mfu ? percent(s.mfu) : 'unknown', 'model FLOP utilisation'],
    [digits(s.flops_per_device / 1e12), 'TFLOP/s a device, of the model'],
    [gib(s.peak_memory_bytes), s.capacity_bytes ? `at most, of ${gib(s.capacity_bytes)}` : 'at most on a device'],
    [whole(s.ranks), 'ranks'],
  ];
  $('tiles').innerHTML = list.map(([value, name]) => `<div class="tile"><b>${text(value)}</b><span>${text(name)}</span></div>`).join('');
}
function comparison() {
  $('comparison-section').hidden = data.runs.length < 2;
  if (data.runs.length < 2) return;
  const fitting = data.runs.filter((r) => r.summary.verdict.state !== 'too large');
  const best = data.runs[data.best_run];
  $('comparison-note').textContent = fitting.length ? `${fitting.length} of ${plural(data.runs.length, 'plan')} ${fitting.length === 1 ? `fits: ${best.name}` : `fit. Fastest of them: ${best.name}`}.` : `None of the ${data.runs.length} plans fits.`;
  const fastest = Math.min(...data.runs.map((r) => r.summary.step_time_s));
  $('comparison').innerHTML = table(['plan', 'step', 'to the fastest', 'tokens/s', 'MFU', 'memory', 'verdict', 'sent by the busiest rank'],
    data.runs.map((r) => ({
      mark: r === best && fitting.length ? 'best' : '', states: { 6: state(r.summary.verdict.state) },
      cells: [r.name, seconds(r.summary.step_time_s), `${(r.summary.step_time_s / fastest).toFixed(2)} x`, count(r.summary.tokens_per_s),
        percent(r.summary.mfu), gib(r.summary.peak_memory_bytes), r.summary.verdict.text, gib(r.summary.bytes_sent)],
    })), [0, 6]);
  const most = Math.max(...data.runs.map((r) => r.summary.spent_s.reduce((a, b) => a + b, 0)));
  $('comparison-bars').innerHTML = `<div class="legend">${spentLegend(data.runs.map((r) => r.summary.spent_s))}</div>` +
    bars(data.runs.map((r) => ({ name: r.name, value: seconds(r.summary.step_time_s), parts: spentParts(r.summary.spent_s, most) })), 'long');
}

// ---- where time goes
function spent() {
  const most = Math.max(...run.roles.map((r) => r.spent_s.reduce((a, b) => a + b, 0)));
  $('spent-legend').innerHTML = spentLegend(run.roles.map((r) => r.spent_s));
  $('spent').innerHTML = bars(run.roles.map((r) => ({ name: rankName(r), value: seconds(r.spent_s.reduce((a, b) => a + b, 0)), parts: spentParts(r.spent_s, most) })));
}
function costs() {
  const shown = 12, list = run.costs.slice(0, shown), rest = run.costs.slice(shown);
  const most = list.length ? list[0][1] : 1;
  $('costs-note').textContent = `Time of its computations, collectives, messages and copies by class, ${run.summary.ranks > 1 ? `the mean over ${plural(run.summary.ranks, 'rank')}` : 'of the one rank'}. Streams overlap, so the sum may be longer than the step.`;
  const row = (name, time) => ({ name: words(name), value: seconds(time), parts: [[time / most, colour(name.split(' ')[0] in palette ? name.split(' ')[0] : 'compute'), `${name}: ${seconds(time)}`]] });
  $('costs').innerHTML = bars(list.map(([name, time]) => row(name, time))
    .concat(rest.length ? [{ ...row('', rest.reduce((sum, c) => sum + c[1], 0)), name: plural(rest.length, 'smaller class', 'smaller classes') }] : []));
}

// ---- critical path
function path() {
  const { steps, parts, spent_ns: ns, more_parts: more, more_ns: moreNs } = run.path, first = 5;
  $('path-section').hidden = !steps;
  if (!steps) return;
  $('path-note').textContent = `What the step waits for, from its beginning to its end: ${plural(steps, 'stretch', 'stretches')} on all ranks. Those of all layers and micro-batches are added up; here are the longest sums.`;
  const list = ns.map((t) => t * 1e-9), all = run.end_ns * 1e-9;
  $('path-legend').innerHTML = spentLegend([list]);
  $('path-bar').innerHTML = `<div class="track">${spentParts(list, all).map(([share, ink, title]) => `<i style="width:${(100 * share).toFixed(3)}%;background:${ink}" title="${text(title)}"></i>`).join('')}</div>`;
  // A stretch of computations is named by its first op.
  const partName = (what, label) => !label ? spentWords[what] || what : /^(compute|recompute|update)$/.test(what) ? `${what} from ${label} on` : `${spentWords[what] || what}: ${label}`;
  const onRanks = (ranks) => ranks.length > 6 ? `${plural(ranks.length, 'rank')}` : ranks.join(', ');
  const row = ([what, label, times, time, ranks]) => [partName(what, label), onRanks(ranks), whole(times), nanoseconds(time), percent(time / run.end_ns)];
  const head = ['what', 'on ranks', 'times', 'time', 'share of the step'];
  $('path').innerHTML = table(head, parts.slice(0, first).map(row));
  const rest = parts.slice(first);
  $('path-fold').hidden = !rest.length;
  $('path-count').textContent = `${plural(rest.length + more, 'shorter part')}, together ${percent((rest.reduce((sum, p) => sum + p[3], 0) + moreNs) / run.end_ns)} of the step`;
  $('path-more').innerHTML = table(head, rest.map(row).concat(more ? [[`${plural(more, 'part')} that are shorter still`, '', '', nanoseconds(moreNs), percent(moreNs / run.end_ns)]] : []));
}

// ---- communication
function communication() {
  const m = run.matrix, rows = run.roles.filter((role) => role.traffic.length);
  $('communication-section').hidden = !rows.length && !m.cells.length;
  if (!rows.length && !m.cells.length) return;
  $('matrix-note').textContent = m.note;
  const largest = m.cells.reduce((a, c) => Math.max(a, c[2]), 1), most = roundAxis(largest / kGib, 4).end * kGib;
  chart('matrix', {
    tooltip: { ...tooltip(), formatter: (p) => `${text(m.labels[p.value[1]])} to ${text(m.labels[p.value[0]])}<br><b>${gib(p.value[2])}</b> a step` },
    grid: { left: 8, right: isNarrow() ? 8 : 28 + 8 * gib(most).length, top: 8, bottom: isNarrow() ? 44 : 8, containLabel: true },
    xAxis: { type: 'category', data: m.labels, name: 'to', nameLocation: 'middle', nameGap: 26, ...axisColours(), splitArea: { show: false } },
    yAxis: { type: 'category', data: m.labels, inverse: true, ...axisColours() },
    visualMap: { min: 0, max: most, calculable: false, formatter: gib, textStyle: { color: style('--soft') }, text: [gib(most), '0'],
      ...(isNarrow() ? { orient: 'horizontal', left: 'center', bottom: 0, itemHeight: 160 } : { right: 0, top: 'middle' }),
      inRange: { color: isDark() ? ['#1f2730', '#2a6fb0', '#9fd0ff'] : ['#e8f1fa', '#56a3dc', '#0b3d91'] } },
    series: [{ type: 'heatmap', data: m.cells.map(([from, to, size]) => [to, from, size]), itemStyle: { borderColor: style('--panel'), borderWidth: m.labels.length > 16 ? 0 : 2 } }],
  });
  $('traffic').innerHTML = table(['rank', 'kind', 'over', 'calls', 'sent', 'busy', 'exposed', 'algorithm'],
    rows.flatMap((role) => role.traffic.map((t) => [{ html: text(role.representative) + (role.ranks > 1 ? ` <small title="${text(rankName(role))}">x ${role.ranks}</small>` : '') },
      words(t.kind), t.axes, whole(t.count), gib(t.bytes), seconds(t.busy_s), seconds(t.exposed_s), t.algorithm])), [0, 1, 2, 7])
    .replaceAll('class="text"', 'class="text short"');
}

// ---- embedding tables
function shares({ shares: list, pieces }) {
  const range = (first, size) => size ? `${whole(first)} to ${whole(first + size - 1)}` : 'none';
  return table(['table', 'rank', 'rows', 'columns', 'tier', 'memory', 'its states'],
    list.map(([name, rank, row, rows, column, columns, tier, size, states]) => [name, rank, range(row, rows), range(column, columns), tier, gib(size), gib(states)])
      .concat(pieces > list.length ? [[`... and ${plural(pieces - list.length, 'more piece')}`, '', '', '', '', '', '']] : []), [0, 2, 3, 4]);
}
function tables() {
  $('tables-section').hidden = !run.tables;
  if (!run.tables) return;
  const { loads } = run.tables;
  const read = loads.reduce((sum, load) => sum + load[1] * load[6], 0), most = Math.max(...loads.map((load) => load[6]));
  const devices = loads.reduce((sum, load) => sum + load[1], 0);
  $('tables-note').textContent = (loads.some(([, ranks]) => ranks > 1) ? 'One rank of each class of equal ranks. ' : '') +
    `A step looks up ${gib(read)} on ${plural(devices, 'rank')}${read > 0 ? `, on the busiest ${(most * devices / read).toFixed(2)} times the mean` : ''}.`;
  const named = ([rank, ranks]) => ranks > 1 ? `rank ${rank} and ${ranks - 1} more` : `rank ${rank}`;
  const drawn = (id, series) => {
    const shown = loads.slice(0, 32), largest = Math.max(...loads.map((load) => series.reduce((sum, [, at]) => sum + load[at], 0)), 1);
    $(`${id}-legend`).innerHTML = legend(series.map(([name, , ink]) => [name, ink]));
    $(id).innerHTML = bars(shown.map((load) => ({ name: named(load), value: gib(series.reduce((sum, [, at]) => sum + load[at], 0)),
      parts: series.map(([name, at, ink]) => [load[at] / largest, ink, `${name}: ${gib(load[at])}`]) }))) +
      (loads.length > shown.length ? `<p class="note above">... and ${plural(loads.length - shown.length, 'rank')} more</p>` : '');
  };
  drawn('table-bytes', [['tables at rest', 3, colour('forward')], ['their states', 4, colour('update')]]);
  drawn('table-reads', [['rows that a step looks up', 6, colour('collective')]]);
  $('tables').innerHTML = shares(run.tables);
}

// ---- plan beside graph
function plan() {
  $('plan').innerHTML = run.plan_text.trimEnd().split('\n').map((line, i) => `<span data-line="${i + 1}"><i>${i + 1}</i>${text(line)}</span>`).join('');
  ops($('filter').value.trim());
}
const rangesText = (ranges) => ranges.map(([a, b]) => a === b ? a : `${a}-${b}`).join(',');
const opName = ([prefix, ranges, suffix]) => !ranges.length ? prefix : ranges.length === 1 && ranges[0][0] === ranges[0][1] ? `${prefix}${ranges[0][0]}${suffix}` : `${prefix}[${rangesText(ranges)}]${suffix}`;
// Whether one of the ops of a row has the filter in its path; a row stands for the ops of many layers.
function matches([prefix, ranges, suffix], filter) {
  if (!ranges.length) return prefix.includes(filter);
  const numbers = (filter.match(/\d+/g) || []).map(Number).filter((n) => ranges.some(([a, b]) => a <= n && n <= b));
  return [ranges[0][0], ...numbers].some((n) => `${prefix}${n}${suffix}`.includes(filter)) || opName([prefix, ranges, suffix]).includes(filter);
}
function ops(filter) {
  const found = run.ops.filter((op) => matches(op, filter));
  $('ops').innerHTML = table(['op', 'kind', 'stage', 'splits'],
    found.map((op) => ({ cells: [opName(op), op[3], op[4], op[5]], attributes: ` data-lines="${op[6].join(' ')}"` }))
      .concat(run.more_ops && !filter ? [[`... and ${whole(run.more_ops)} more rows`, '', '', '']] : []), [0, 1, 3]);
}
$('ops').addEventListener('mouseover', (event) => {
  const row = event.target.closest('tr[data-lines]');
  const lines = new Set(row ? row.dataset.lines.split(' ') : []);
  for (const span of $('plan').children) span.classList.toggle('marked', lines.has(span.dataset.line));
});
$('filter').addEventListener('input', () => ops($('filter').value.trim()));
