// The timeline: for computations bars of block runs, for transfers merged runs; where few enough are in view and the data
// have them, single instructions. So every lane shows what it does at every zoom.
const kMostBars = 4000;
const kIdleShare = 0.001, kIdleEvents = 4;  // lanes that are busy for less than this share, with as few events, are folded
const kMostLanes = 40;
let allLanes = false;
const rowKind = (row) => row.lane === 'compute' ? 'compute' : row.kind.split(' ')[0];
const laneInk = (row) => row.lane === 'compute' ? '' : palette[rowKind(row)] || palette[row.lane] || wheel[1];
const kindWords = { forward: 'forward', backward: 'backward', prologue: 'once, before', update: 'update', send: 'send', receive: 'receive' };

// Items [row, start, end, ...] sorted by start that touch [from, to]; null if there are more than `most`.
function inView(items, from, to, most) {
  let low = 0, high = items.length;
  const reach = items.longest ?? (items.longest = items.reduce((m, e) => Math.max(m, e[2] - e[1]), 0));
  while (low < high) { const mid = (low + high) >> 1; if (items[mid][1] < from - reach) low = mid + 1; else high = mid; }
  const out = [];
  for (let i = low; i < items.length && items[i][1] <= to; ++i) {
    if (items[i][2] >= from) out.push(items[i]);
    if (out.length > most) return null;
  }
  return out;
}
// The lanes to show, by index in run.rows: whole ranks, at most kMostLanes, without lanes that are nearly idle.
function shownLanes() {
  const all = run.rows.map((row, i) => ({ ...row, i }));
  if (allLanes) return all;
  const busy = all.filter((row) => row.events > kIdleEvents || row.busy_ns >= kIdleShare * run.end_ns);
  const ranks = [...new Set(busy.map((row) => row.rank))], out = [];
  for (const rank of ranks) {
    const lanes = busy.filter((row) => row.rank === rank);
    if (out.length && out.length + lanes.length > kMostLanes) break;
    out.push(...lanes);
  }
  return out.length ? out : all;
}
function timeline() {
  const end = run.end_ns, rows = shownLanes(), place = new Map(rows.map((row, at) => [row.i, at]));
  $('timeline-section').hidden = !run.rows.length;
  if (!run.rows.length) return;
  const blockKind = (bar) => run.labels[bar[3]].split('@')[0];
  const single = (bar) => ({ bar, type: 'single', ink: laneInk(run.rows[bar[0]]) || colour(blockKind(bar)), fill: 1 });
  const block = (bar) => ({ bar, type: 'block', ink: colour(blockKind(bar)), fill: 1 });
  const merged = (bar) => ({ bar, type: 'merged', ink: laneInk(run.rows[bar[0]]), fill: Math.min(1, bar[4] / Math.max(1, bar[2] - bar[1])) });
  const item = (one) => ({ ...one, value: [one.bar[1], place.get(one.bar[0]), one.bar[2], 0.4 + 0.6 * one.fill],
    itemStyle: { color: one.ink } });
  const onScreen = (one) => place.has(one.bar[0]);
  const visible = (from, to) => {
    const slack = 0.002 * (to - from);
    const inside = run.windows.some(([a, b]) => a <= from + slack && to - slack <= b);
    const events = inside ? inView(run.events, from, to, kMostBars) : null;
    if (events) return { bars: events.map(single).filter(onScreen).map(item), what: 'single instructions' };
    const blocks = (inView(run.blocks, from, to, 2 * kMostBars) || run.blocks.slice(0, 2 * kMostBars)).map(block);
    const runs = (inView(run.merged, from, to, 4 * kMostBars) || run.merged).map(merged);
    return { bars: blocks.concat(runs).filter(onScreen).map(item), what: 'runs of blocks, and of transfers with their neighbours (the paler, the longer they pause)' };
  };
  const where = run.windows.map(([a, b]) => `${nanoseconds(a)} to ${nanoseconds(b)}`).join(' and ');
  const isWhole = run.windows.length === 1 && run.windows[0][0] === 0 && run.windows[0][1] >= end;
  const note = (what, from, to) => {
    $('timeline-note').textContent = `One rank of each kind of the ${plural(run.summary.ranks, 'rank')}. Shown: ${nanoseconds(from)} to ${nanoseconds(to)}, ${what}. Scroll or drag to zoom.` +
      (isWhole ? '' : ` The page has the single instructions of ${where}.`);
  };
  const kinds = new Map();
  for (const row of rows) {
    if (row.lane !== 'compute') kinds.set(kindWords[rowKind(row)] || words(rowKind(row)), laneInk(row));
  }
  const blockKinds = [...new Set(run.blocks.filter((bar) => place.has(bar[0])).map(blockKind))];
  $('timeline-legend').innerHTML = legend(blockKinds.map((kind) => [kindWords[kind] || kind, colour(kind)]).concat([...kinds]));
  const hidden = run.rows.length - shownLanes().length;
  $('more-lanes').hidden = !hidden && !allLanes;
  $('more-lanes').textContent = allLanes ? 'Fewer lanes' : `${plural(hidden, 'more lane')}`;
  const laneName = (row) => row.lane === 'compute' ? 'compute' : words(row.kind);
  const firsts = rows.map((row, at) => at === 0 || rows[at - 1].rank !== row.rank);
  const names = rows.map((row, at) => firsts[at] ? `{r|rank ${row.rank}}  {l|${laneName(row)}}` : `{l|${laneName(row)}}`);
  const size = isNarrow() ? 10 : 11.5;
  const widest = Math.max(...names.map((name) => name.replace(/\{.\||\}/g, '').length)) * size * 0.6 + 14;
  const groups = rows.map((row, at) => [at, row.rank]).filter(([at]) => firsts[at])
    .map(([at, rank], n) => ({ value: [at, at + rows.filter((row) => row.rank === rank).length - 1, n] }));
  $('timeline').style.height = `${Math.max(190, 70 + rows.length * (isNarrow() ? 19 : 22))}px`;
  const first = visible(0, end);
  note(first.what, 0, end);
  const shade = style('--track');
  const made = chart('timeline', {
    tooltip: { ...tooltip(), formatter: (p) => p.data.bar ? barWords(p.data) : '' },
    grid: { left: Math.min(widest, isNarrow() ? 150 : 240), right: 16, top: 6, bottom: 56 },
    xAxis: timeAxis(end),
    yAxis: { type: 'category', inverse: true, data: names, ...axisColours(), axisTick: { show: false }, splitLine: { show: false },
      axisLabel: { interval: 0, formatter: (name) => name, rich: {
        r: { color: style('--ink'), fontSize: size, fontWeight: 600 }, l: { color: style('--soft'), fontSize: size } } } },
    dataZoom: [
      { type: 'inside', xAxisIndex: 0, filterMode: 'none', minValueSpan: 1 },
      { type: 'slider', xAxisIndex: 0, filterMode: 'none', bottom: 8, height: 18, showDetail: false, showDataShadow: false, brushSelect: false, borderColor: style('--line') },
    ],
    series: [
      { type: 'custom', silent: true, data: groups, encode: { y: [0, 1] }, z: 1, renderItem: (params, api) => {
        if (api.value(2) % 2) return undefined;
        const half = api.size([0, 1])[1] / 2, top = api.coord([0, api.value(0)])[1] - half, bottom = api.coord([0, api.value(1)])[1] + half;
        return { type: 'rect', shape: { x: params.coordSys.x, y: top, width: params.coordSys.width, height: bottom - top }, style: { fill: shade, opacity: 0.55 } };
      } },
      { id: 'bars', type: 'custom', clip: true, encode: { x: [0, 2], y: 1 }, data: first.bars, progressive: 0, z: 2,
        renderItem: (params, api) => {
          const from = api.coord([api.value(0), api.value(1)]), to = api.coord([api.value(2), api.value(1)]);
          const height = Math.max(3, api.size([0, 1])[1] * 0.7);
          const box = echarts.graphic.clipRectByRect(
            { x: from[0], y: from[1] - height / 2, width: Math.max(1, to[0] - from[0]), height },
            { x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height });
          return box && { type: 'rect', shape: box, style: { fill: api.visual('color'), opacity: api.value(3) } };
        } },
    ],
  });
  let waiting = false;
  made.on('datazoom', () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const zoom = made.getOption().dataZoom[0];
      const shown = visible(zoom.startValue, zoom.endValue);
      note(shown.what, zoom.startValue, zoom.endValue);
      made.setOption({ series: [{ id: 'bars', data: shown.bars }] });
    });
  });
  made.group = 'time';
}
function barWords({ bar, type }) {
  const row = run.rows[bar[0]], lane = `${rankName({ representative: row.rank, ranks: row.ranks })}, ${row.lane === 'compute' ? 'compute' : words(row.kind)}`;
  const when = `${nanoseconds(bar[1])} to ${nanoseconds(bar[2])}: <b>${nanoseconds(bar[2] - bar[1])}</b>`;
  if (type === 'block') return `<b>${text(run.labels[bar[3]])}</b>, micro-batch ${bar[4]}<br>${text(lane)}<br>${when}`;
  if (type === 'merged') {
    return `<b>${text(words(row.kind))}</b>, ${plural(bar[3], 'time')}<br>${text(lane)}<br>${when}<br>busy ${nanoseconds(bar[4])} of it${bar[5] ? `<br>${gib(bar[5])}` : ''}`;
  }
  return `<b>${text(run.labels[bar[6]])}</b><br>${text(words(run.labels[bar[7]]))} <code>${text(run.labels[bar[3]])}:${bar[4]}:${bar[5]}</code><br>` +
    `${text(lane)}<br>${when}${bar[8] ? `<br>${gib(bar[8])}` : ''}`;
}
function zoomTimeline(from, to) {
  const made = echarts.getInstanceByDom($('timeline'));
  if (made) made.dispatchAction({ type: 'dataZoom', start: 100 * from / run.end_ns, end: 100 * to / run.end_ns });
}
$('zoom-out').addEventListener('click', () => zoomTimeline(0, run.end_ns));
$('zoom-in').addEventListener('click', () => {  // as many instructions of the last window as are legible: about 300
  const [from, to] = run.windows[run.windows.length - 1];
  const starts = run.events.filter((event) => event[1] >= from && event[1] < to);
  zoomTimeline(from, starts.length > 300 ? Math.min(to, starts[300][1]) : to);
});
$('more-lanes').addEventListener('click', () => { allLanes = !allLanes; timeline(); echarts.connect('time'); });
