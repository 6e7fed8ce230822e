// Opens a report in a headless browser, offline, and uses it as a reader would: hovers, zooms, filters, changes the
// theme. Prints what failed and exits 1.
//
//   node check_page.mjs PAGE.html FOLDER_OF_NODE_MODULES CHROMIUM [FOLDER_FOR_SCREENSHOTS]
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [page_file, modules, chromium, shots] = process.argv.slice(2);
const puppeteer = await import(pathToFileURL(createRequire(path.resolve(modules, 'x.js')).resolve('puppeteer-core')));

const failures = [];
const expect = (ok, what) => { if (!ok) failures.push(what); };

async function open(browser) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1400, height: 1000 });
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }]);
  await page.setOfflineMode(true);
  page.on('console', (message) => expect(!['error', 'warn'].includes(message.type()), `console: ${message.text()}`));
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

// Throughput against memory: every point lies in the chart, the answer and the limit are marked, a tooltip names a choice.
async function checkCurve(page) {
  const point = await page.evaluate(() => {
    const div = document.getElementById('curve');
    div.scrollIntoView({ block: 'center' });
    const chart = window.tesseraReport.charts().find((c) => c.getDom() === div);
    const series = chart.getOption().series, { curve } = window.tesseraReport.data();
    const points = series.filter((s) => s.name !== 'limit').flatMap((s) => s.data);
    const answer = curve.best === null ? points[0] : series.find((s) => s.name === 'the answer').data[0];
    const [x, y] = chart.convertToPixel({ gridIndex: 0 }, answer.value), box = div.getBoundingClientRect();
    const inside = ({ value }) => chart.containPixel({ gridIndex: 0 }, chart.convertToPixel({ gridIndex: 0 }, value));
    return {
      x: box.x + x, y: box.y + y, choice: answer.point.choice, found: curve.best !== null,
      all: points.every(inside),
      drawn: points.length, given: curve.estimated.length + curve.simulated.length,
      line: series.flatMap((s) => s.markLine?.data || []).map((mark) => mark.xAxis), limit: curve.limit_bytes,
      limitInside: chart.containPixel({ gridIndex: 0 }, chart.convertToPixel({ gridIndex: 0 }, [curve.limit_bytes, answer.value[1]])),
      marked: document.querySelector('#choices tr.best td')?.innerText,
    };
  });
  expect(point.all, 'a point of the curve lies outside its chart');
  expect(point.drawn === point.given, `the curve draws ${point.drawn} of ${point.given} points`);
  expect(point.marked === (point.found ? point.choice : undefined), `the table marks ${point.marked}, the chart ${point.choice}`);
  expect(point.line.length === 1 && point.line[0] === point.limit && point.limitInside, 'the limit is not a line inside the chart');
  await page.mouse.move(point.x - 3, point.y);
  await page.mouse.move(point.x, point.y);
  await page.waitForFunction((choice) => document.getElementById('curve').innerText.includes(choice), { timeout: 5000 }, point.choice)
    .catch(() => failures.push('no tooltip names the choice of a point of the curve'));
  if (shots) await page.screenshot({ path: path.join(shots, 'report-curve.png') });
}

async function checkRuns(page) {
  // Hover over the longest bar of the timeline.
  const bar = await page.evaluate(() => {
    const div = document.getElementById('timeline');
    div.scrollIntoView({ block: 'center' });
    const chart = window.tesseraReport.charts().find((c) => c.getDom() === div);
    const longest = chart.getOption().series[0].data.reduce((a, b) => b.value[2] - b.value[0] > a.value[2] - a.value[0] ? b : a);
    const [x, y] = chart.convertToPixel({ gridIndex: 0 }, [(longest.value[0] + longest.value[2]) / 2, longest.value[1]]);
    const box = div.getBoundingClientRect();
    return { x: box.x + x, y: box.y + y, bars: chart.getOption().series[0].data.length };
  });
  await page.mouse.move(bar.x - 3, bar.y);
  await page.mouse.move(bar.x, bar.y);
  await page.waitForFunction(() => /micro-batch|:\d+:\d+/.test(document.getElementById('timeline').innerText), { timeout: 5000 })
    .catch(() => failures.push('no tooltip over a bar of the timeline'));

  // Zoom there.
  const range = () => page.evaluate(() => {
    const chart = window.tesseraReport.charts().find((c) => c.getDom() === document.getElementById('timeline'));
    const zoom = chart.getOption().dataZoom[0];
    return { span: zoom.endValue - zoom.startValue, bars: chart.getOption().series[0].data.length };
  });
  const before = await range();
  for (let i = 0; i < 12; ++i) await page.mouse.wheel({ deltaY: -300 });
  await page.waitForFunction((span) => {
    const chart = window.tesseraReport.charts().find((c) => c.getDom() === document.getElementById('timeline'));
    const zoom = chart.getOption().dataZoom[0];
    return zoom.endValue - zoom.startValue < 0.7 * span;
  }, { timeout: 5000 }, before.span).catch(() => failures.push('the wheel does not zoom the timeline'));
  if (shots) await page.screenshot({ path: path.join(shots, 'report-zoomed.png') });

  // The memory chart follows, and its tooltip names what is live.
  const memory = await page.evaluate(() => {
    const div = document.getElementById('memory');
    div.scrollIntoView({ block: 'center' });
    const box = div.getBoundingClientRect();
    return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  });
  await page.mouse.move(memory.x - 2, memory.y);
  await page.mouse.move(memory.x, memory.y);
  await page.waitForFunction(() => /rank \d+: .*B/.test(document.getElementById('memory').innerText), { timeout: 5000 })
    .catch(() => failures.push('no tooltip in the memory chart'));
  expect(await page.evaluate(() => {
    const names = window.tesseraReport.run().roles.flatMap((role) => role.memory.intervals.map(([name]) => name));
    const shown = document.getElementById('memory').innerText;
    return /largest on rank \d+/.test(shown) && names.some((name) => shown.includes(name));
  }), 'the tooltip of the memory chart names nothing that is live');
  const listed = () => page.evaluate(() => document.getElementById('live').innerText);
  const at_peak = await listed();
  expect(/\n/.test(at_peak), 'nothing is listed as live');
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
  await page.type('#filter', await page.evaluate(() => window.tesseraReport.run().ops[0].path));
  const some = await page.evaluate(() => document.querySelectorAll('#ops tbody tr').length);
  expect(some > 0 && some < all, `the filter shows ${some} of ${all} ops`);

  // Embedding tables: a section where there are some, with a line for each piece; the charts are checked with the others.
  const placed = await page.evaluate(() => ({
    shown: !document.getElementById('tables-section').hidden, lines: document.querySelectorAll('#tables tbody tr').length,
    shares: window.tesseraReport.run().tables.shares.length, note: document.getElementById('tables-note').innerText,
  }));
  expect(placed.shown === placed.shares > 0, 'the section of tables is shown without tables, or hidden with some');
  if (placed.shares > 0) {
    expect(placed.lines === placed.shares, `${placed.lines} lines for ${placed.shares} pieces of tables`);
    expect(/A step looks up .*B on 4 ranks/.test(placed.note), `the note on tables says '${placed.note}'`);
  }

  // Light and dark, whole page.
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.evaluate(() => scrollTo(0, 0));
  const light = await ground();
  if (shots) await page.screenshot({ path: path.join(shots, 'report-light.png'), fullPage: true });
  await page.click('#theme');
  expect(light !== await ground(), 'the theme does not change');
  if (shots) await page.screenshot({ path: path.join(shots, 'report-dark.png'), fullPage: true });

  // Another plan, if there is one.
  if (await page.evaluate(() => document.querySelectorAll('#run option').length > 1)) {
    const title = () => page.evaluate(() => document.getElementById('plan').innerText);
    const first = await title();
    await page.select('#run', '1');
    expect(first !== await title(), 'choosing another plan changes nothing');
    expect(await page.evaluate(() => !document.getElementById('comparison-section').hidden), 'several plans are not compared');
  }
}

const browser = await puppeteer.default.launch({
  executablePath: chromium, headless: true, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
try {
  const page = await open(browser);
  const has = await page.evaluate(() => ({ curve: !!window.tesseraReport.data().curve, runs: !!window.tesseraReport.run() }));
  expect(has.curve || has.runs, 'the page shows nothing');
  if (has.curve) await checkCurve(page);
  if (has.runs) await checkRuns(page);
} finally {
  await browser.close();
}
for (const failure of failures) console.error(`check_page: ${failure}`);
console.log(failures.length ? `${failures.length} failed` : 'the page renders, hovers, zooms, filters and changes its theme');
process.exit(failures.length ? 1 : 0);
