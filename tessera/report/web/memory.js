// The memory of a rank over the step: bands that add up to its total, and the limit of the device.
let memoryRole = 0;
const bandOrder = ['parameter', 'optimizer state', 'gradient', 'gathered', 'table', 'input', 'residual', 'activation', 'activation gradient', 'workspace', 'smaller buffers'];
const bandWords = { parameter: 'parameters', 'optimizer state': 'optimizer states', gradient: 'gradients', gathered: 'gathered', activation: 'activations',
  'activation gradient': 'gradients of activations', workspace: 'workspaces', input: 'inputs', table: 'constants', residual: 'residuals',
  'smaller buffers': 'smaller buffers', overhead: 'context, libraries, communication', held: 'held by the allocator, not in use' };
const bandName = (what) => bandWords[what] || what;

// The bands from the lowest: [name, bytes by sample].
function bandsOf(memory) {
  const { times, unit, bands } = memory;
  const names = Object.keys(bands).sort((a, b) => bandOrder.indexOf(a) - bandOrder.indexOf(b));
  const list = names.map((name) => [name, bands[name].map((value) => value * unit)]);
  const live = times.map((_, i) => list.reduce((sum, [, values]) => sum + values[i], 0));
  const reserved = memory.total_bytes - memory.overhead_bytes;
  return [['overhead', times.map(() => memory.overhead_bytes)], ...list, ['held', live.map((bytes) => Math.max(0, reserved - bytes))]]
    .filter(([, values]) => values.some((value) => value > 0));
}
// A series that draws a band between two lists of edges as steps. The stacked areas of ECharts leave out steps of two pixels
// and less, so that neighbouring bands part; here both have the same edge.
function bandSeries(name, times, end, lower, upper) {
  return { name, type: 'custom', silent: true, clip: true, data: [[0, 0]], z: 1, renderItem: (params, api) => {
    const [x0, y0] = api.coord([0, 0]), [x1, y1] = api.coord([end, kGib]);
    const x = (time) => x0 + (x1 - x0) * time / end, y = (bytes) => y0 + (y1 - y0) * bytes / kGib;
    const steps = (edge) => times.flatMap((time, i) => [[x(i === 0 ? 0 : time), y(edge[i])], [x(i + 1 < times.length ? times[i + 1] : end), y(edge[i])]]);
    return { type: 'polygon', shape: { points: steps(upper).concat(steps(lower).reverse()) }, style: { fill: colour(name), opacity: name === 'held' ? 0.55 : 0.95 } };
  } };
}
const sampleAt = (times, time) => { let at = 0; while (at + 1 < times.length && times[at + 1] <= time) ++at; return at; };
const countAt = (lengths, at) => { for (let i = 0, to = 0; i < lengths.length; i += 2) { to += lengths[i + 1]; if (at < to) return lengths[i]; } return 0; };
// What is live at a sample: [name, what, copies, bytes], largest first.
function liveAt(memory, at) {
  if (memory.times[at] === memory.peak_time_ns) return memory.at_peak;
  return memory.live.map(([name, what, size, lengths]) => [name, what, countAt(lengths, at), size * countAt(lengths, at)])
    .filter(([, , copies]) => copies > 0).sort((a, b) => b[3] - a[3]);
}
function live(role, at) {
  const { memory } = role, time = memory.times[at], list = liveAt(memory, at), bands = bandsOf(memory);
  const total = bands.filter(([name]) => name !== 'held' && name !== 'overhead').reduce((sum, [, values]) => sum + values[at], 0);
  const rest = total - list.reduce((sum, [, , , size]) => sum + size, 0);
  $('live-note').textContent = `Live at ${nanoseconds(time)}${time === memory.peak_time_ns ? ', the peak' : ''}: ${gib(total)} in buffers. Click on the chart for another moment.`;
  $('live').innerHTML = table(['buffers', 'what', 'copies', 'memory'],
    list.map(([name, what, copies, size]) => [name, bandName(what), / others$/.test(name) ? '' : whole(copies), gib(size)]).concat(rest > 0.005 * total ? [['all others', '', '', gib(rest)]] : []), [0, 1]);
  const most = Math.max(...bands.map(([, values]) => values[at]), 1);
  $('live-bars').innerHTML = bars(bands.map(([name, values]) => ({ name: bandName(name), value: gib(values[at]), parts: [[values[at] / most, colour(name), gib(values[at])]] }))
    .filter((_, i) => bands[i][1][at] > 0).reverse());
}
function memory() {
  const fullest = run.roles.reduce((best, role, i) => role.memory.total_bytes > run.roles[best].memory.total_bytes ? i : best, 0);
  if (memoryRole < 0 || memoryRole >= run.roles.length) memoryRole = fullest;
  const role = run.roles[memoryRole], use = role.memory, capacity = run.summary.capacity_bytes;
  $('memory-section').hidden = !use.times.length;
  if (!use.times.length) return;
  const chips = run.roles.map((each, i) => `<button type="button" data-role="${i}" aria-pressed="${i === memoryRole}">rank ${each.representative}${each.ranks > 1 ? ` x ${each.ranks}` : ''} &middot; ${gib(each.memory.total_bytes)}</button>`);
  $('memory-ranks').hidden = run.roles.length < 2;
  $('memory-ranks').innerHTML = run.roles.length > 1 ? chips.join('') : '';
  const bands = bandsOf(use), near = capacity > 0 && capacity <= 4 * use.total_bytes;
  $('memory-note').textContent = `Rank ${role.representative}${memoryRole === fullest && run.roles.length > 1 ? ', the fullest' : ''}: the bands add up to the ${gib(use.total_bytes)} that it takes of a device` +
    (use.high_bytes > use.low_bytes ? ` (an estimate; between ${gib(use.low_bytes)} and ${gib(use.high_bytes)})` : '') + '.' +
    (capacity > 0 && !near ? ` The device has ${gib(capacity)}, far above the chart.` : '');
  $('memory-legend').innerHTML = legend([...bands].reverse().map(([name]) => [bandName(name), colour(name)])
    .concat(near ? [[`the device's ${gib(capacity)}`, style('--bad'), true]] : []));
  const edges = bands.reduce((list, [, values]) => list.concat([values.map((value, i) => list[list.length - 1][i] + value)]), [use.times.map(() => 0)]);
  const most = Math.max(use.total_bytes, near ? capacity : 0);
  const made = chart('memory', {
    tooltip: { ...tooltip(), trigger: 'axis', formatter: (list) => {
      const time = list[0].axisValue, at = sampleAt(use.times, time);
      const names = liveAt(use, at).slice(0, 5).map(([name, , copies, size]) => `${text(name)}${copies > 1 ? ` x ${copies}` : ''}: ${gib(size)}`).join('<br>');
      return `<b>${nanoseconds(time)}</b><br>${[...bands].reverse().filter(([, values]) => values[at] > 0).map(([name, values]) => `<span style="color:${colour(name)}">&#9632;</span> ${text(bandName(name))}: <b>${gib(values[at])}</b>`).join('<br>')}` +
        (names ? `<br><i>largest on rank ${role.representative}</i><br>${names}` : '');
    } },
    grid: { left: 8, right: 18, top: 12, bottom: 36, containLabel: true },
    xAxis: timeAxis(run.end_ns),
    yAxis: gibAxis(most * 1.02, 5),
    dataZoom: [{ type: 'inside', filterMode: 'none' }, { type: 'slider', filterMode: 'none', bottom: 8, height: 18, showDetail: false, showDataShadow: false, brushSelect: false, borderColor: style('--line') }],
    series: bands.map(([name], i) => bandSeries(name, use.times, run.end_ns, edges[i], edges[i + 1])).concat([{
      name: 'total', type: 'line', symbol: 'none', lineStyle: { width: 0 }, data: use.times.map((time, i) => [time, edges[bands.length][i]]).concat([[run.end_ns, use.total_bytes]]),
      markLine: markLine([
        { at: use.total_bytes, name: `takes ${gib(use.total_bytes)}`, ink: style('--ink'), kind: 'dotted', position: near && Math.abs(use.total_bytes - capacity) < 0.08 * most && use.total_bytes <= capacity ? 'insideEndBottom' : 'insideEndTop' },
        ...(near ? [{ at: capacity, name: `device ${gib(capacity)}`, ink: style('--bad'), kind: 'dashed',
          position: use.total_bytes > capacity ? 'insideEndBottom' : 'insideStartTop' }] : []),
      ]) }]),
  });
  live(role, Math.max(0, use.times.indexOf(use.peak_time_ns)));
  made.getZr().on('click', (event) => {
    const point = made.convertFromPixel({ gridIndex: 0 }, [event.offsetX, event.offsetY]);
    if (point) live(role, sampleAt(use.times, Math.max(0, Math.min(run.end_ns, point[0]))));
  });
  made.group = 'time';
}
$('memory-ranks').addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (!button) return;
  memoryRole = Number(button.dataset.role);
  memory();
  echarts.connect('time');
});
