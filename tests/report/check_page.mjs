// Opens a report in a headless browser, offline, and uses it as a reader would: hovers, zooms, filters, changes the
// width and theme. Prints what failed and exits 1.
//
//   node check_page.mjs PAGE.html FOLDER_OF_NODE_MODULES CHROMIUM [FOLDER_FOR_SCREENSHOTS]
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [page_file, modules, chromium, shots] = process.argv.slice(2);
const puppeteer = await import(pathToFileURL(createRequire(path.resolve(modules, 'x.js')).resolve('puppeteer-core')));

const failures = [];
const path_of = (name) => path.join(shots, name);
const expect = (ok, what) => { if (!ok) failures.push(what); };

async function open(browser) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1400, height: 1000 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }]);
  await page.setOfflineMode(true);
  page.on('console', (message) => {  // the hint is about the pixels that this check itself reads
    expect(!['error', 'warn', 'warning'].includes(message.type()) || message.text().includes('willReadFrequently'), `console: ${message.text()}`);
  });
  page.on('pageerror', (error) => failures.push(`error in the page: ${error.message}`));
  page.on('request', (request) => expect(/^(file|data|blob):/.test(request.url()), `the page asks for ${request.url()}`));
  await page.goto(pathToFileURL(path.resolve(page_file)), { waitUntil: 'load', timeout: 120_000 });

  // Every chart shows something: its pixels are not all alike.
  const blank = await page.evaluate(() => [...document.querySelectorAll('.chart')].filter((div) => div.offsetParent).filter((div) => {
    const canvas = div.querySelector('canvas');
    if (!canvas) return true;
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return new Set(pixels.filter((_, i) => i % 7 === 0)).size < 3;
  }).map((div) => div.id));
  expect(blank.length === 0, `blank charts: ${blank}`);
  return page;
}

// What holds on every page, at every width: nothing is cut or empty, and bytes are GiB without an exponent.
async function checkWords(page, where) {
  const found = await page.evaluate(() => {
    const shown = [...document.querySelectorAll('main > section')].filter((section) => !section.hidden);
    return {
      wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      title: document.getElementById('title').innerText,
      empty: shown.filter((section) => !section.querySelector('canvas') && section.innerText.split('\n').length < 3).map((section) => section.id),
      text: document.body.innerText,
      // Names in a column of two letters, or cut at the right.
      cut: [...document.querySelectorAll('td.text, .name, .tile b, #verdict, .legend span, button, h1, h2')]
        .filter((each) => each.offsetParent && each.innerText.length > 3 && each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline')
        .map((each) => each.innerText.slice(0, 40)),
      narrow: [...document.querySelectorAll('td.text, .name')].filter((each) => each.offsetParent && each.innerText.length > 12 && each.clientWidth < 60)
        .map((each) => each.innerText.slice(0, 40)),
    };
  });
  expect(found.wide <= 0, `${where}: the page is ${found.wide} px wider than the window`);
  expect(found.title.length > 0 && found.title.length < 80, `${where}: the title is '${found.title}'`);
  expect(found.empty.length === 0, `${where}: empty sections ${found.empty}`);
  expect(found.cut.length === 0, `${where}: cut: ${found.cut.join(' | ')}`);
  expect(found.narrow.length === 0, `${where}: names in a narrow column: ${found.narrow.join(' | ')}`);
  expect(!/\de[+-]\d/.test(found.text), `${where}: a number has an exponent: ${found.text.match(/.{20}\de[+-]\d.{10}/)}`);
  expect(!/[KMT]iB|\d B\b(?! param)/.test(found.text.replace(/micro.batches.*/g, '')), `${where}: bytes are not GiB: ${found.text.match(/.{20}[KMT]iB/)}`);
}

// Throughput against memory: the points are in the chart or counted, the axes begin at 0, the answer and the limit are
// marked, choices that were not simulated are folded, a tooltip names a choice.
async function checkCurve(page) {
  const point = await page.evaluate(() => {
    const div = document.getElementById('curve');
    div.scrollIntoView({ block: 'center' });
    const chart = window.tesseraReport.charts().find((c) => c.getDom() === div);
    const option = chart.getOption(), series = option.series, { curve } = window.tesseraReport.data();
    const points = series.filter((s) => s.name !== 'limit').flatMap((s) => s.data);
    const answer = curve.best === null ? points[0] : series.find((s) => s.name === 'the answer').data[0];
    const [x, y] = chart.convertToPixel({ gridIndex: 0 }, answer.value), box = div.getBoundingClientRect();
    const inside = ({ value }) => chart.containPixel({ gridIndex: 0 }, chart.convertToPixel({ gridIndex: 0 }, value));
    const note = document.getElementById('curve-note').innerText, beyond = note.match(/(\d+) choices? that needs? more/);
    return {
      x: box.x + x, y: box.y + y, choice: answer.point.choice, found: curve.best !== null,
      all: points.every(inside), zero: option.xAxis[0].min === 0 && option.yAxis[0].min === 0,
      drawn: points.length + (beyond ? Number(beyond[1]) : 0), given: curve.estimated.length + curve.simulated.length,
      line: series.flatMap((s) => s.markLine?.data || []).map((mark) => mark.xAxis), limit: curve.limit_bytes,
      limitInside: chart.containPixel({ gridIndex: 0 }, chart.convertToPixel({ gridIndex: 0 }, [curve.limit_bytes, answer.value[1]])),
      marked: document.querySelector('#choices tr.best td')?.innerText,
      rows: document.querySelectorAll('#choices tbody tr').length, simulated: curve.simulated.length,
      folded: !document.getElementById('estimates-fold').open,
    };
  });
  expect(point.all, 'a point of the curve lies outside its chart');
  expect(point.zero, 'an axis of the curve does not begin at 0');
  expect(point.drawn === point.given, `the curve draws or counts ${point.drawn} of ${point.given} points`);
  expect(point.rows === point.simulated && point.folded, 'choices that were not simulated are not folded');
  expect(point.marked === (point.found ? point.choice : undefined), `the table marks ${point.marked}, the chart ${point.choice}`);
  expect(point.line.length === 1 && point.line[0] === point.limit && point.limitInside, 'the limit is not a line inside the chart');
  await page.mouse.move(point.x - 3, point.y);
  await page.mouse.move(point.x, point.y);
  await page.waitForFunction((choice) => document.getElementById('curve').innerText.includes(choice), { timeout: 5000 }, point.choice)
    .catch(() => failures.push('no tooltip names the choice of a point of the curve'));
  if (shots) await page.screenshot({ path: path.join(shots, 'report-curve.png') });
}

// The verdict agrees with the figures, and the memory chart reaches them, with the device's limit as a line.
async function checkMemory(page) {
  const found = await page.evaluate(() => {
    const chart = window.tesseraReport.charts().find((c) => c.getDom().id === 'memory');
    const { series, yAxis } = chart.getOption(), { summary, roles } = window.tesseraReport.run();
    const role = roles.find((each) => each.memory.total_bytes === summary.peak_memory_bytes), bands = bandsOf(role.memory), marks = series.flatMap((s) => s.markLine?.data || []).map((mark) => mark.yAxis);
    const sums = bands[0][1].map((_, i) => bands.reduce((sum, [, values]) => sum + values[i], 0));
    // The ground below the figure at the top is filled, and that above it is not.
    const canvas = chart.getDom().querySelector('canvas'), scale = canvas.width / canvas.clientWidth, context = canvas.getContext('2d');
    const [x, y] = chart.convertToPixel({ gridIndex: 0 }, [0.37 * window.tesseraReport.run().end_ns, summary.peak_memory_bytes]);
    const ink = (down) => context.getImageData(Math.round(x * scale), Math.round((y + down) * scale), 1, 1).data.join();
    // A line of the grid, of a pixel or two, may lie above it.
    const above = [-3, -4, -5, -6, -7].map(ink), ground = above.find((each) => above.filter((other) => other === each).length >= 3);
    const filled = ground !== undefined && [3, 5].every((down) => ink(down) !== ground);
    return { filled, names: series.map((s) => s.name), bands: bands.map(([name]) => name), verdict: document.getElementById('verdict').innerText, class: document.getElementById('verdict-section').className,
      peak: summary.peak_memory_bytes, capacity: summary.capacity_bytes, top: Math.max(...sums), low: Math.min(...sums), marks, axis: yAxis[0].max,
      step: yAxis[0].interval / 2 ** 30, chips: document.querySelectorAll('#memory-ranks button').length, roles: roles.length };
  });
  const free = found.capacity - found.peak, words = free < 0 ? /^Does not fit by / : free < 0.05 * found.capacity ? /^Fits, but tight: / : /^Fits, .* free$/;
  expect(words.test(found.verdict), `the verdict is '${found.verdict}' with ${free} bytes free`);
  expect(Math.abs(found.top - found.peak) < 0.002 * found.peak, `the memory chart is drawn to ${found.top} of ${found.peak} bytes`);
  expect(found.filled, 'the memory chart is not filled up to the figure above it');
  expect(found.bands.includes('overhead') && found.bands.every((name) => found.names.includes(name)), `the memory chart draws ${found.names} of the bands ${found.bands}`);
  expect(found.low > 0.99 * found.peak, 'the bands of the memory chart do not add up to the total at each time');
  expect(found.capacity > 4 * found.peak || (found.marks.includes(found.capacity) && found.axis >= found.capacity), 'the limit of the device is not a line in the memory chart');
  expect(found.marks.includes(found.peak), 'the figure at the top is not a line in the memory chart');
  expect(found.step < 1 || [1, 2, 5].includes(found.step / 10 ** Math.floor(Math.log10(found.step))), `the axis of memory has steps of ${found.step} GiB`);
  expect(found.chips === (found.roles > 1 ? found.roles : 0), `${found.chips} buttons for ${found.roles} kinds of ranks`);
}

// Every lane has bars of its colour on the screen, whatever the zoom; the legend names each colour.
async function checkLanes(page, where) {
  const blank = await page.evaluate(() => {
    const div = document.getElementById('timeline'), chart = window.tesseraReport.charts().find((c) => c.getDom() === div);
    const option = chart.getOption(), zoom = option.dataZoom[0], names = option.yAxis[0].data, bars = option.series.find((s) => s.id === 'bars').data;
    const canvas = div.querySelector('canvas'), scale = canvas.width / canvas.clientWidth, context = canvas.getContext('2d');
    return names.filter((name, row) => {
      const mine = bars.filter((bar) => bar.value[1] === row && bar.value[2] >= zoom.startValue && bar.value[0] <= zoom.endValue);
      if (!mine.length) return true;
      const bar = mine[mine.length >> 1], at = Math.max(bar.value[0], zoom.startValue);
      const [x, y] = chart.convertToPixel({ gridIndex: 0 }, [at, row]);
      const pixels = context.getImageData(Math.round((x - 1) * scale), Math.round(y * scale), Math.max(3, Math.round(3 * scale)), 1).data;
      let colourful = 0;  // grey grounds and lines have equal parts
      for (let i = 0; i < pixels.length; i += 4) colourful = Math.max(colourful, Math.max(...pixels.slice(i, i + 3)) - Math.min(...pixels.slice(i, i + 3)));
      return colourful < 12 && bar.ink !== '#a4adb8';
    });
  });
  expect(blank.length === 0, `${where}: lanes without bars: ${blank.slice(0, 4)}`);
}

async function checkRuns(page) {
  await checkMemory(page);
  await checkLanes(page, 'whole step');
  const kinds = await page.evaluate(() => {
    const shown = document.getElementById('timeline-legend').innerText, { rows } = window.tesseraReport.run();
    return rows.filter((row) => row.lane === 'collective' && row.events > 4).map((row) => row.kind.split(' ')[0].replace(/^(all|reduce)_(to_)?/, (part) => part.replaceAll('_', '-')).replaceAll('_', ' '))
      .filter((kind) => !shown.includes(kind));
  });
  expect(kinds.length === 0, `the legend of the timeline lacks ${kinds}`);
  const path = await page.evaluate(() => ({ rows: document.querySelectorAll('#path tbody tr').length, open: document.getElementById('path-fold').open,
    parts: window.tesseraReport.run().path.parts.length }));
  expect(path.rows === Math.min(5, path.parts) && !path.open, `the critical path lists ${path.rows} parts`);

  // Hover over the longest bar of the timeline.
  const bar = await page.evaluate(() => {
    const div = document.getElementById('timeline');
    div.scrollIntoView({ block: 'center' });
    const chart = window.tesseraReport.charts().find((c) => c.getDom() === div);
    const longest = chart.getOption().series.find((s) => s.id === 'bars').data.reduce((a, b) => b.value[2] - b.value[0] > a.value[2] - a.value[0] ? b : a);
    const [x, y] = chart.convertToPixel({ gridIndex: 0 }, [(longest.value[0] + longest.value[2]) / 2, longest.value[1]]);
    const box = div.getBoundingClientRect();
    return { x: box.x + x, y: box.y + y };
  });
  await page.mouse.move(bar.x - 3, bar.y);
  await page.mouse.move(bar.x, bar.y);
  await page.waitForFunction(() => /micro-batch|time|:\d+:\d+/.test(document.querySelector('#timeline > div:last-child').innerText), { timeout: 5000 })
    .catch(() => failures.push('no tooltip over a bar of the timeline'));

  // Zoom there.
  const range = () => page.evaluate(() => {
    const chart = window.tesseraReport.charts().find((c) => c.getDom() === document.getElementById('timeline'));
    const zoom = chart.getOption().dataZoom[0];
    return { span: zoom.endValue - zoom.startValue };
  });
  const before = await range();
  for (let i = 0; i < 12; ++i) await page.mouse.wheel({ deltaY: -300 });
  await page.waitForFunction((span) => {
    const chart = window.tesseraReport.charts().find((c) => c.getDom() === document.getElementById('timeline'));
    const zoom = chart.getOption().dataZoom[0];
    return zoom.endValue - zoom.startValue < 0.7 * span;
  }, { timeout: 5000 }, before.span).catch(() => failures.push('the wheel does not zoom the timeline'));
  if (shots) await page.screenshot({ path: path_of('report-zoomed.png') });
  // The button shows single instructions.
  await page.click('#zoom-in');
  await page.waitForFunction(() => document.getElementById('timeline-note').innerText.includes('single instructions.'), { timeout: 5000 })
    .catch(() => failures.push('the button does not show single instructions'));
  await page.click('#zoom-out');

  // The memory chart's tooltip names what is live.
  const memory = await page.evaluate(() => {
    const div = document.getElementById('memory');
    div.scrollIntoView({ block: 'center' });
    const box = div.getBoundingClientRect();
    return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  });
  await page.mouse.move(memory.x - 2, memory.y);
  await page.mouse.move(memory.x, memory.y);
  await page.waitForFunction(() => /largest on rank \d+/.test(document.getElementById('memory').innerText), { timeout: 5000 })
    .catch(() => failures.push('no tooltip in the memory chart'));
  expect(await page.evaluate(() => {
    const names = window.tesseraReport.run().roles.flatMap((role) => role.memory.live.map(([name]) => name));
    const shown = document.getElementById('memory').innerText;
    return names.some((name) => shown.includes(name));
  }), 'the tooltip of the memory chart names nothing that is live');
  const listed = () => page.evaluate(() => document.getElementById('live-note').innerText);
  const at_peak = await listed();
  expect(/the peak/.test(at_peak), 'what is live at the peak is not listed');
  const corner = await page.evaluate(() => {
    const div = document.getElementById('memory'), chart = window.tesseraReport.charts().find((c) => c.getDom() === div);
    chart.dispatchAction({ type: 'dataZoom', start: 0, end: 100 });
    const [x] = chart.convertToPixel({ gridIndex: 0 }, [0, 0]), box = div.getBoundingClientRect();
    return { x: box.x + x + 2, y: box.y + box.height / 2 };
  });
  await page.mouse.click(corner.x, corner.y);
  expect(at_peak !== await listed(), 'a click at the beginning lists what is live at the peak');

  // An op marks the lines of the plan that decided.
  const op = await page.$('#ops tr[data-lines]:not([data-lines=""])');
  expect(op, 'no op names a line of the plan');
  if (op) {
    await op.hover();
    expect(await page.evaluate(() => document.querySelectorAll('#plan .marked').length > 0), 'pointing at an op marks no line of the plan');
  }
  const all = await page.evaluate(() => document.querySelectorAll('#ops tbody tr').length);
  await page.type('#filter', await page.evaluate(() => {
    const [prefix, ranges, suffix] = window.tesseraReport.run().ops.find((each) => each[1].length) || window.tesseraReport.run().ops[0];
    return ranges.length ? `${prefix}${ranges[0][1]}${suffix}` : prefix;
  }));
  const some = await page.evaluate(() => document.querySelectorAll('#ops tbody tr').length);
  expect(some > 0 && some < all, `the filter shows ${some} of ${all} ops`);

  // Embedding tables: a section where there are some, with a line for each piece.
  const placed = await page.evaluate(() => ({
    shown: !document.getElementById('tables-section').hidden, lines: document.querySelectorAll('#tables tbody tr').length,
    tables: window.tesseraReport.run().tables, note: document.getElementById('tables-note').innerText,
  }));
  expect(placed.shown === (placed.tables !== null), 'the section of tables is shown without tables, or hidden with some');
  if (placed.tables) {
    expect(placed.lines === placed.tables.pieces, `${placed.lines} lines for ${placed.tables.pieces} pieces of tables`);
    expect(/A step looks up .*B on 4 ranks/.test(placed.note), `the note on tables says '${placed.note}'`);
  }

  // Another plan, if there is one.
  if (await page.evaluate(() => document.querySelectorAll('#run option').length > 1)) {
    const title = () => page.evaluate(() => document.getElementById('plan').innerText);
    const first = await title();
    await page.select('#run', await page.evaluate(() => String(1 - window.tesseraReport.data().best_run)));
    expect(first !== await title(), 'choosing another plan changes nothing');
    expect(await page.evaluate(() => !document.getElementById('comparison-section').hidden), 'several plans are not compared');
    await checkMemory(page);
  }
}

// A run: curves over the steps, a mark at each restart, and no section of a plan.
async function checkRecord(page) {
  const found = await page.evaluate(() => {
    const { record } = window.tesseraReport.data(), charts = window.tesseraReport.charts();
    const marks = charts.map((chart) => (chart.getOption().series[0].markLine?.data || []).map((mark) => mark.xAxis));
    return { marks, restarts: record.starts.slice(1).map((start) => start.step), charts: charts.map((chart) => chart.getDom().id),
      verdict: document.getElementById('verdict').innerText, planned: ['timeline-section', 'memory-section', 'plan-section', 'tables-section'].filter((id) => !document.getElementById(id).hidden) };
  });
  for (const id of ['loss', 'rate', 'resident']) expect(found.charts.includes(id), `the page of a run has no chart of ${id}`);
  for (const marks of found.marks) expect(JSON.stringify(marks) === JSON.stringify(found.restarts), `restarts at ${found.restarts} are marked at ${marks}`);
  expect(/^Loss .* to .* in .* steps?, \d+ restarts?$/.test(found.verdict), `the verdict of the run is '${found.verdict}'`);
  expect(found.planned.length === 0, `the page of a run has ${found.planned}`);
}

// Light and dark, wide and narrow, whole pages.
async function checkLooks(page) {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const shoot = async (name) => { if (shots) await page.screenshot({ path: path_of(name), fullPage: true }); };
  await page.evaluate(() => scrollTo(0, 0));
  await checkWords(page, '1400 px');
  const light = await ground();
  await shoot('report-light.png');
  await page.click('#theme');
  expect(light !== await ground(), 'the theme does not change');
  await shoot('report-dark.png');
  await page.setViewport({ width: 500, height: 1000 });
  await page.waitForFunction(() => window.tesseraReport.charts().every((chart) => chart.getWidth() < 500), { timeout: 5000 })
    .catch(() => failures.push('the charts do not follow a narrow window'));
  await checkWords(page, '500 px');
  if (await page.evaluate(() => !!window.tesseraReport.run())) await checkLanes(page, '500 px');
  await shoot('report-narrow.png');
}

const browser = await puppeteer.default.launch({
  executablePath: chromium, headless: true, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
try {
  const page = await open(browser);
  const has = await page.evaluate(() => ({ curve: !!window.tesseraReport.data().curve, runs: !!window.tesseraReport.run(), record: !!window.tesseraReport.data().record }));
  expect(has.curve || has.runs || has.record, 'the page shows nothing');
  if (has.curve) await checkCurve(page);
  if (has.runs) await checkRuns(page);
  if (has.record) await checkRecord(page);
  await checkLooks(page);
} finally {
  await browser.close();
}
for (const failure of failures) console.error(`check_page: ${failure}`);
console.log(failures.length ? `${failures.length} failed` : 'the page renders, hovers, zooms, filters, narrows and changes its theme');
process.exit(failures.length ? 1 : 0);
