// Throughput against memory, as a search saw it.
const rate = (n) => `${count(n)} sequences/s`;
// The most memory that the chart shows: beyond it no choice of the curve is faster by more than half a percent. All
// simulated programs, the answer and a limit that is near are inside, unless they need more than twice the limit.
function memoryShown({ estimated, simulated, limit_bytes: limit }) {
  const all = estimated.concat(simulated), largest = Math.max(...all.map((p) => p.memory_bytes));
  const fastest = Math.max(...all.map((p) => p.sequences_per_s));
  const enough = Math.min(...all.filter((p) => p.sequences_per_s >= 0.995 * fastest).map((p) => p.memory_bytes));
  const within = limit ? all.filter((p) => p.memory_bytes <= 2 * limit) : all;
  const programs = simulated.filter((p) => !limit || p.memory_bytes <= 2 * limit).map((p) => p.memory_bytes);
  if (!within.length) return largest;
  return Math.min(largest, Math.max(Math.min(enough, limit ? 1.5 * limit : enough), ...programs, limit && limit < 2 * largest ? 1.1 * limit : 0));
}
function curve() {
  const { estimated, simulated, best, limit_bytes: limit, planner, refused } = data.curve;
  const largest = Math.max(...estimated.concat(simulated).map((point) => point.memory_bytes));
  const near = limit > 0 && limit < 2 * largest;
  const shown = Math.max(memoryShown(data.curve), near ? limit * 1.02 : 0), axis = gibAxis(shown * 1.01, isNarrow() ? 4 : 8);
  const inside = (point) => point.memory_bytes <= axis.max;
  const beyond = estimated.concat(simulated).filter((point) => !inside(point)).length;
  const fitting = simulated.filter((point) => point.fits).length;
  $('curve-note').textContent = `Points are simulated programs, which decide: ${fitting} of ${plural(simulated.length, 'program')} ${fitting === 1 ? 'fits' : 'fit'}. ` +
    'The line shows, by formula, the choices of which no other is both faster and smaller. ' +
    (limit ? `A plan may use ${gib(limit)} of a device${near ? '' : ', which lies to the right of the chart'}.` : 'No limit of memory is known.') +
    (beyond ? ` ${plural(beyond, 'choice')} that need${beyond === 1 ? 's' : ''} more than ${gib(axis.max)} ${beyond === 1 ? 'is' : 'are'} in the table only.` : '') +
    (refused ? ` ${plural(refused, 'choice')} could not be lowered to programs and ${refused === 1 ? 'is' : 'are'} not shown.` : '');
  const value = (point) => ({ value: [point.memory_bytes, point.sequences_per_s], point });
  const line = (what, point) => `${what}: ${rate(point.sequences_per_s)}, ${seconds(point.step_s)} a step, ${gib(point.memory_bytes)}`;
  const named = (name, more, points) => ({ name, data: points.filter(inside).map(value), ...more });
  const others = simulated.filter((_, i) => i !== best);
  const points = { type: 'scatter', symbolSize: 10 };
  const edge = { borderColor: style('--panel'), borderWidth: 1 };
  const fastest = Math.max(...estimated.concat(simulated).filter(inside).map((point) => point.sequences_per_s));
  const rates = roundAxis(fastest * 1.02, 5);
  $('curve-legend').innerHTML = legend([['sequences a second, by formula', wheel[0]],
    ...(others.some((p) => p.fits) ? [['simulated, fits', wheel[2]]] : []), ...(others.some((p) => !p.fits) ? [['simulated, does not fit', wheel[5]]] : []),
    ...(best === null ? [] : [['the answer', wheel[1]]])]);
  chart('curve', {
    tooltip: { ...tooltip(), formatter: (p) => {
      const { point } = p.data;
      return `<b>${text(point.choice)}</b><br>${line(point.estimate ? 'simulated' : 'by formula', point)}` +
        (point.estimate ? `<br>${line('by formula', point.estimate)}` : '') + (point.fits ? '' : '<br>does not fit');
    } },
    grid: { left: 8, right: 24, top: 26, bottom: 8, containLabel: true },
    xAxis: { ...axis, name: 'memory of the fullest device', nameLocation: 'middle', nameGap: 28, nameTextStyle: { color: style('--soft') } },
    yAxis: { type: 'value', min: 0, max: rates.end, interval: rates.step, ...axisColours(),
      axisLabel: { formatter: plain, color: style('--soft') } },
    series: [
      named('by formula', { type: 'line', step: 'end', symbolSize: 5, lineStyle: { width: 1.5 }, itemStyle: { color: wheel[0] } }, estimated),
      named('simulated, does not fit', { ...points, symbol: 'triangle', itemStyle: { color: wheel[5], ...edge } }, others.filter((point) => !point.fits)),
      named('simulated, fits', { ...points, itemStyle: { color: wheel[2], ...edge } }, others.filter((point) => point.fits)),
      named('the answer', { ...points, symbol: 'diamond', symbolSize: 20, itemStyle: { color: wheel[1], borderColor: style('--ink'), borderWidth: 1 } }, best === null ? [] : [simulated[best]]),
      ...(near ? [{ name: 'limit', type: 'line', data: [], silent: true,
        markLine: markLine([{ at: limit, axis: 'xAxis', name: `limit ${gib(limit)}`, ink: style('--bad'), kind: 'dashed', position: 'end' }]) }] : []),
    ].filter((series) => series.name === 'limit' || series.data.length),
  });
  const bySize = (a, b) => a.memory_bytes - b.memory_bytes;
  const rows = simulated.map((point, i) => ({ ...point, best: i === best })).sort(bySize);
  $('choices').innerHTML = table([`choice of planner ${planner}`, 'sequences/s', 'memory', 'by formula: sequences/s', 'memory', ''],
    rows.map((point) => ({
      mark: point.best ? 'best' : '', states: { 5: point.best ? 'text fits' : point.fits ? 'text' : 'text toolarge' },
      cells: [point.choice, digits(point.sequences_per_s), gib(point.memory_bytes), digits(point.estimate.sequences_per_s), gib(point.estimate.memory_bytes),
        point.best ? 'the answer' : point.fits ? 'fits' : 'does not fit'],
    })), [0, 5]);
  const tried = new Set(simulated.map((point) => point.choice));
  const rest = estimated.filter((point) => !tried.has(point.choice)).sort(bySize);
  $('estimates-fold').hidden = !rest.length;
  $('estimates-count').textContent = `${plural(rest.length, 'choice')} by formula only`;
  $('estimates').innerHTML = table(['choice', 'sequences/s', 'memory', ''],
    rest.map((point) => [point.choice, digits(point.sequences_per_s), gib(point.memory_bytes), point.fits ? '' : 'does not fit']), [0, 3]);
}
