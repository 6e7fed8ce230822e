// A run of tessera train: loss, evaluations, throughput, memory and restarts over the steps.
const kSmooth = 0.01;  // the bold curve of the loss is the mean of 1 % of the run to each side
const recordSections = ['watch-section', 'loss-section', 'quality-section', 'rate-section', 'resident-section', 'starts-section', 'caches-section'];

// Means of [step, value] pairs with their neighbours; nearer to the ends, with fewer of them.
function smoothed(points) {
  const sums = [0];
  for (const [, value] of points) sums.push(sums[sums.length - 1] + value);
  const reach = Math.round(kSmooth * points.length);
  return points.map(([step], i) => {
    const near = Math.min(reach, i, points.length - 1 - i);
    return [step, (sums[i + near + 1] - sums[i - near]) / (2 * near + 1)];
  });
}
function record() {
  const r = data.record, narrow = isNarrow();
  const restarts = r.starts.slice(1).filter((start) => start.step > 0);
  const marks = markLine(restarts.map((start, i) => ({ at: start.step, axis: 'xAxis', ink: style('--soft'), kind: 'dashed', name: restarts.length > 4 ? 'R' : `restart ${i + 1}`, position: 'end' })));
  const steps = { type: 'value', min: r.first_step, max: Math.max(r.last_step, r.first_step + 1), ...axisColours(), name: narrow ? '' : 'step', nameLocation: 'middle', nameGap: 26,
    axisLabel: { color: style('--soft'), formatter: plain, hideOverlap: true }, minInterval: 1 };
  const over = (id, series, format, bounds) => {
    const made = chart(id, {
      tooltip: { ...tooltip(), trigger: 'axis', formatter: (list) => `step ${whole(list[0].axisValue)}<br>${list.map((p) => `${p.marker}${text(p.seriesName)}: <b>${format(p.value[1])}</b>`).join('<br>')}` },
      grid: { left: 62, right: 20, top: 26, bottom: narrow ? 24 : 44 },
      xAxis: steps, yAxis: bounds,
      dataZoom: [{ type: 'inside', filterMode: 'none' }],
      series: series.map((each, i) => ({ type: 'line', symbol: 'none', ...each, markLine: i === 0 ? marks : undefined })),
    });
    made.group = 'record';
  };
  const column = (at) => r.points.map((point) => [point[0], point[at]]);
  const number = (v) => v === null ? 'not a number' : v.toPrecision(4);
  $('verdict-section').className = 'verdict';
  $('verdict').textContent = r.verdict;
  $('verdict-note').textContent = '';
  $('meter').innerHTML = '';
  const lastEvaluation = r.evaluations.find((each) => each.name === 'loss');
  $('tiles').innerHTML = [
    [whole(r.last_step), 'last step'],
    [r.last_loss === null ? 'none' : number(r.last_loss), 'loss of the last step'],
    ...(lastEvaluation ? [[number(lastEvaluation.points[lastEvaluation.points.length - 1][1]), 'loss of the last evaluation']] : []),
    [count(r.mean_tokens_per_s), 'tokens a second, the mean'],
    [r.seconds > 7200 ? `${(r.seconds / 3600).toFixed(1)} h` : r.seconds > 300 ? `${(r.seconds / 60).toFixed(1)} min` : seconds(r.seconds), 'in steps'],
    [gib(r.memory_bytes), 'planned for a rank'],
    [whole(r.starts.length ? r.starts.length - 1 : 0), r.starts.length === 2 ? 'restart' : 'restarts'],
  ].map(([value, name]) => `<div class="tile"><b>${text(value)}</b><span>${text(name)}</span></div>`).join('');

  watch();
  const losses = column(1).filter(([, v]) => v !== null);
  $('loss-section').hidden = !losses.length;
  if (losses.length) {
    const evaluations = lastEvaluation ? [{ name: 'evaluation', type: 'line', symbol: 'circle', symbolSize: 7, itemStyle: { color: wheel[1] }, lineStyle: { width: 1.5 }, data: lastEvaluation.points }] : [];
    $('loss-legend').innerHTML = legend([['training, each ' + (r.steps_a_point > 1 ? `${r.steps_a_point} steps` : 'step'), '#9cc9ea'], ['training, running mean', '#2a6fb0'], ...(evaluations.length ? [['evaluation', wheel[1]]] : [])]);
    over('loss', [{ name: 'training', itemStyle: { color: '#9cc9ea' }, lineStyle: { width: 1, opacity: 0.75 }, data: losses },
      { name: 'running mean', itemStyle: { color: '#2a6fb0' }, lineStyle: { width: 2.5 }, data: smoothed(losses) }, ...evaluations], number,
    { type: 'value', scale: true, ...axisColours() });
  }
  const others = r.evaluations.filter((each) => each.name !== 'loss');
  $('quality-section').hidden = !others.length;
  if (others.length) {
    $('quality-legend').innerHTML = legend(others.map((each, i) => [each.name, wheel[i]]));
    over('quality', others.map((each, i) => ({ name: each.name, symbol: 'circle', symbolSize: 7, itemStyle: { color: wheel[i] }, data: each.points })), number, { type: 'value', scale: true, ...axisColours() });
  }
  $('rate-section').hidden = false;
  over('rate', [{ name: 'tokens/s', itemStyle: { color: wheel[2] }, lineStyle: { width: 1.5 }, data: column(2) }], (v) => v === null ? 'unknown' : count(v),
    { type: 'value', min: 0, ...axisColours(), axisLabel: { color: style('--soft'), formatter: (v) => v >= 1000 ? `${plain(v / 1000)} k` : plain(v) } });
  const resident = column(4);
  $('resident-section').hidden = false;
  $('resident-note').textContent = `Resident memory of the process of rank 0. For each rank the plan has ${gib(r.memory_bytes)} of buffers on its device.`;
  over('resident', [{ name: 'resident', itemStyle: { color: wheel[4] }, lineStyle: { width: 1.5 }, areaStyle: { opacity: 0.15 }, data: resident }], gib, gibAxis(Math.max(...resident.map(([, v]) => v || 0), 1) * 1.05, 4));
  $('starts-section').hidden = r.starts.length < 2;
  $('starts').innerHTML = table(['plan', 'from step', 'ranks', 'started'], r.starts.map((start) => [start.plan, start.step ? whole(start.step) : 'made none', whole(start.ranks),
    start.time ? new Date(1000 * start.time).toISOString().replace('T', ' ').slice(0, 16) + ' UTC' : '']), [0]);
  $('caches-section').hidden = !r.caches.length;
  $('caches').innerHTML = table(['table', 'policy', 'rows', 'slots', 'hit rate', 'rows in', 'rows out', 'without slot'],
    r.caches.map(([name, policy, rows, slots, hits, rowsIn, rowsOut, overflow]) => [name, policy, whole(rows), whole(slots), percent(hits), whole(rowsIn), whole(rowsOut), whole(overflow)]), [0, 1]);
  $('tables-section').hidden = !r.tables;
  $('tables-charts').hidden = true;
  if (r.tables) {
    $('tables-note').textContent = 'Under the plan of the last start.';
    $('tables').innerHTML = shares(r.tables);
  }
}
// The times of the ranks of a run that was watched, and which of them is slow.
function watch() {
  const w = data.watch;
  $('watch-section').hidden = !w;
  if (!w) return;
  $('watch-said').innerHTML = w.said.map((sentence) => `<li>${text(sentence)}.</li>`).join('');
  const times = w.steps ? `Medians over ${whole(w.steps)} watched steps, ${whole(w.first_step)} to ${whole(w.last_step)}. ` : '';
  $('watch-note').textContent = `${times}${w.predicted_for ? `Beside them as predicted for ${w.predicted_for}. ` : ''}${w.count > w.ranks.length ? `${whole(w.ranks.length)} of ${whole(w.count)} ranks. ` : ''}The last column says how long a rank takes for its work, in relation to its peers for the same.`;
  const predicted = w.ranks.some((rank) => rank[3] !== null);
  const pair = (measured, expected) => predicted ? [seconds(measured), expected === null ? '' : seconds(expected)] : [seconds(measured)];
  const head = (name) => predicted ? [name, 'predicted'] : [name];
  $('watch').innerHTML = table(['rank', 'step', ...head('computing'), ...head('transfers'), ...head('waiting'), 'beside peers'],
    w.ranks.map((rank) => [whole(rank[0]), seconds(rank[1]), ...pair(rank[2], rank[3]), ...pair(rank[4], rank[5]), ...pair(rank[6], rank[7]), rank[8].toFixed(2)]), []);
}
