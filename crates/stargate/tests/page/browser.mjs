// Drives a real Chromium through the page. `node browser.mjs SCENARIO ADDRESS [JSON]`; exits 1 with what is wrong.
// The programs are named by STARGATE_TEST_CHROMIUM and STARGATE_TEST_BROWSER (a folder with node_modules).
import { createRequire } from 'node:module';
import { mkdtempSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const require = createRequire(path.join(process.env.STARGATE_TEST_BROWSER, 'package.json'));
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const [scenario, base, given] = process.argv.slice(2);
const facts = JSON.parse(given || '{}');
const origin = new URL(base).origin;
const problems = [];
const wrong = (what) => { problems.push(what); };
const check = (holds, what) => { if (!holds) wrong(what); };

const profile = mkdtempSync(path.join(tmpdir(), 'stargate-browser-'));
const browser = await chromium.launch({
  executablePath: process.env.STARGATE_TEST_CHROMIUM,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', `--crash-dumps-dir=${profile}`],
});

// A window that notes what no page may do.
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(60000);
  const page = await context.newPage();
  page.on('console', (message) => {
    // A page that says what is wrong with a form, or that there is none, is answered as such, which the browser notes.
    const own = /status of 4\d\d/.test(message.text()) && new URL(message.location().url).pathname === new URL(page.url()).pathname;
    if (['error', 'warning'].includes(message.type()) && !own && !page.expected?.test(message.text())) wrong(`console at ${page.url()}: ${message.text()}`);
  });
  page.on('pageerror', (error) => wrong(`script at ${page.url()}: ${error.message}`));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (!['data:', 'blob:', 'about:'].includes(url.protocol) && url.origin !== origin) wrong(`asks elsewhere: ${request.url()}`);
  });
  page.on('dialog', (dialog) => { wrong(`a dialog at ${page.url()}: ${dialog.message()}`); dialog.dismiss(); });
  return { context, page };
}

async function go(page, where, status = 200) {
  const answer = await page.goto(base + where, { waitUntil: 'load' });
  check(answer.status() === status, `${where} is answered with ${answer.status()}`);
  return answer;
}

async function judged(page, where) {
  const found = await page.evaluate(async (source) => {
    // As a script of the driver, which the page's policy does not concern.
    (0, eval)(source);
    const result = await window.axe.run(document, { resultTypes: ['violations'] });
    return result.violations.map((one) => ({ id: one.id, impact: one.impact, nodes: one.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} :: ${node.failureSummary?.split('\n')[1] ?? ''}`) }));
  }, axe);
  for (const one of found) wrong(`${where}: axe ${one.impact} ${one.id}: ${one.nodes.join(' | ')}`);
}

async function fits(page, where) {
  const over = await page.evaluate(() => {
    const root = document.documentElement;
    if (root.scrollWidth <= root.clientWidth) return '';
    const wide = [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > root.clientWidth + 1 && !one.closest('.scroll, nav, code, pre'));
    return `${root.scrollWidth} > ${root.clientWidth}: ${wide.slice(0, 3).map((one) => one.outerHTML.slice(0, 100)).join(' | ')}`;
  });
  check(!over, `${where} does not fit: ${over}`);
}

const shots = process.env.STARGATE_SCREENSHOTS_DIR;
async function shoot(page, name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: path.join(shots, `${name}.png`), animations: 'disabled' });
}

const scenarios = {
  // Every page: no console error, nothing from elsewhere, axe; in light, in dark and on a phone.
  async pages() {
    for (const [theme, width] of [['light', 1280], ['dark', 1280], ['light', 390]]) {
      const { context, page } = await open({ colorScheme: theme, viewport: { width, height: width === 390 ? 844 : 800 }, ...(width === 390 ? { isMobile: true, hasTouch: true } : {}) });
      for (const [name, where, status] of facts.pages) {
        await go(page, where, status);
        // Charts are drawn and the stream has answered.
        await page.locator('[data-live-switch][data-state=on]').waitFor();
        await judged(page, `${where} (${theme}, ${width})`);
        if (width === 390) await fits(page, where);
        const ground = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
        const dark = /rgb\((\d+)/.exec(ground)?.[1] < 100;
        check(dark === (theme === 'dark'), `${where} is ${ground} in ${theme}`);
        // Of every page one, of those that are looked at most also in the dark and on a phone.
        const often = ['overview', 'jobs', 'job-failed', 'dead-letters', 'mirror-repo', 'leadership'].includes(name);
        if (width === 390) { if (often) await shoot(page, `${name}-phone`); }
        else if (theme === 'light') await shoot(page, name);
        else if (often) await shoot(page, `${name}-dark`);
      }
      await context.close();
    }
  },

  // Without JavaScript: every page shows the same main content, and nothing that needs a script is offered.
  async plain() {
    const { context, page } = await open({ javaScriptEnabled: false });
    for (const [, where, status] of facts.pages) {
      await go(page, where, status);
      check((await page.locator('h1').count()) === 1, `${where} has no heading`);
      for (const one of await page.locator('.js-only').all()) check(!(await one.isVisible()), `${where} offers what needs a script`);
    }
    // Filter, search, page on, select, preview, confirm: links and forms only.
    await go(page, '/jobs');
    await page.locator('input[name=state][value=failed]').check();
    await page.getByRole('button', { name: 'Filter', exact: true }).click();
    check(page.url().includes('state=failed'), `the filter is not in the address: ${page.url()}`);
    const before = await page.locator('tbody tr').count();
    check(before > 1, 'no failed jobs to choose from');
    await page.locator('input[data-pick]').first().check();
    await page.getByRole('button', { name: 'Retry selected' }).click();
    check((await page.getByRole('heading', { level: 2 }).first().textContent()).includes('1 job runs again'), 'no preview of one job');
    await page.getByRole('button', { name: /^Retry 1 job/ }).click();
    check((await page.locator('.flash').textContent()).includes('1 of 1 job'), 'the retry is not told');
    await go(page, '/jobs');
    check((await page.locator('.flash').count()) === 0, 'what was told once is told again');
    await context.close();
  },

  // A job is enqueued elsewhere; the lists and the page of the job change without a reload.
  async live() {
    const { context, page } = await open();
    await go(page, '/jobs');
    await page.locator('[data-live-switch][data-state=on]').waitFor();
    await page.evaluate(() => { window.stayed = true; });
    const job = await (await context.request.post(`${base}/api/v1/jobs`, { data: { kind: 'slow', payload: { live: true } } })).json();
    await page.locator(`#job-${job.id}`).waitFor();
    check(await page.evaluate(() => window.stayed === true), 'the list was loaded anew');

    // Late enough that it has not ended before the page is open.
    const later = await (await context.request.post(`${base}/api/v1/jobs`, { data: { kind: 'slow', delay: '8s' } })).json();
    await go(page, `/jobs/${later.id}`);
    check((await page.locator('#region .badge.queued').count()) > 0, 'it has begun before the page was open');
    await page.locator('[data-live-switch][data-state=on]').waitFor();
    await page.evaluate(() => { window.stayed = true; });
    await page.locator('#region .badge.done').first().waitFor();
    check(await page.evaluate(() => window.stayed === true), 'the page of the job was loaded anew');
    await page.waitForFunction((id) => document.querySelector('#announce').textContent.includes(`Job ${id} is done`), later.id);

    // What was opened stays open, what was chosen stays chosen, and a pause holds everything.
    await go(page, '/jobs');
    await page.locator('[data-live-switch][data-state=on]').waitFor();
    await page.keyboard.press('p');
    await page.locator('[data-live-switch][data-state=paused]').waitFor();
    const other = await (await context.request.post(`${base}/api/v1/jobs`, { data: { kind: 'echo', payload: {} } })).json();
    await page.waitForTimeout(3500);
    check((await page.locator(`#job-${other.id}`).count()) === 0, 'a paused list changed');
    await page.keyboard.press('p');
    await page.locator(`#job-${other.id}`).waitFor();
    await context.close();
  },

  // The first stream is refused, as by a node that is being restarted: the page says so, tries again, is live, and shows what came
  // meanwhile.
  async refused() {
    const { context, page } = await open();
    page.expected = /status of 503/;
    let asked = 0;
    let taken = false;
    await page.route('**/api/v1/events', (route) => {
      asked += 1;
      return !taken ? route.fulfill({ status: 503, body: 'not yet' }) : route.continue();
    });
    await go(page, '/jobs');
    await page.locator('[data-live-switch][data-state=off]').waitFor();
    const add = async () => (await context.request.post(`${base}/api/v1/jobs`, { data: { kind: 'echo', payload: {} } })).json();
    const meanwhile = await add();
    taken = true;
    await page.locator('[data-live-switch][data-state=on]').waitFor();
    check(asked >= 2, `the stream was asked for ${asked} times`);
    await page.locator(`#job-${meanwhile.id}`).waitFor();
    const job = await add();
    await page.locator(`#job-${job.id}`).waitFor();
    await context.close();
  },

  // What operators do, with everything switched on.
  async actions() {
    const { context, page } = await open();
    // Bulk retry by filter, with a preview.
    await go(page, '/jobs?state=failed&kind=bad');
    await page.getByRole('link', { name: 'Retry all matching…' }).click();
    const heading = await page.locator('#region h2').first().textContent();
    check(/\d+ jobs? runs? again|\d+ jobs run again/.test(heading), `no count in the preview: ${heading}`);
    check((await page.locator('#region tbody tr').count()) > 0, 'no sample in the preview');
    check((await page.locator('.cmd code').first().textContent()).includes('stargate job retry --state failed --kind bad'), 'no twin');
    await page.getByRole('button', { name: /^Retry \d+ jobs?$/ }).click();
    check(/\d+ of \d+ jobs? run again/.test(await page.locator('.flash').textContent()), 'the bulk retry is not told');

    // Pause and resume a queue.
    await go(page, '/queues');
    await page.locator('#queue-default').getByRole('button', { name: /Pause/ }).click();
    await page.locator('#queue-default .badge.paused').waitFor();
    const queued = await (await context.request.post(`${base}/api/v1/jobs`, { data: { kind: 'echo', payload: {} } })).json();
    await go(page, `/jobs/${queued.id}`);
    check((await page.locator('#why-title').textContent()).includes('Why it does not run'), 'it is not explained');
    check((await page.locator('#region').textContent()).includes('queue default is paused'), 'the pause is not given as the reason');
    await go(page, '/');
    check((await page.locator('.problems').textContent()).includes('The queue default is paused'), 'the overview does not tell of the pause');
    await go(page, '/queues');
    await page.locator('#queue-default').getByRole('button', { name: /Resume/ }).click();
    await page.locator('#queue-default .badge.paused').waitFor({ state: 'detached' });

    // Edit and retry.
    await go(page, `/jobs/${facts.poison}`);
    await page.getByRole('link', { name: 'Edit and retry…' }).click();
    const text = await page.locator('#payload').inputValue();
    check(text.includes('12345678901234567890123'), `a large number did not survive: ${text}`);
    await page.locator('#payload').fill('{ not json');
    await page.getByRole('button', { name: 'Retry with this payload' }).click();
    check((await page.locator('.flash.bad').textContent()).includes('not JSON'), 'a broken payload is not refused');
    await page.locator('#payload').fill('{"ok": 98765432109876543210}');
    await page.getByRole('button', { name: 'Retry with this payload' }).click();
    await page.locator('.flash').waitFor();
    check((await page.locator('#region #payload').textContent()).includes('98765432109876543210'), 'the new payload is not shown');

    // Canary requeue of a group of failures.
    await go(page, '/dead-letters');
    await page.getByRole('link', { name: /Canary… for .* of bad/ }).first().click();
    await page.getByRole('button', { name: 'Send the canary' }).click();
    check((await page.locator('.flash').textContent()).includes('canary'), 'the canary is not told');

    // Cancel a job that runs, after being asked.
    const long = await (await context.request.post(`${base}/api/v1/jobs`, { data: { kind: 'long', payload: {} } })).json();
    await go(page, `/jobs/${long.id}`);
    await page.locator('#region .badge.processing').first().waitFor();
    await page.getByRole('link', { name: 'Cancel…' }).click();
    await page.getByRole('button', { name: 'Cancel the job' }).click();
    await page.locator('#region .badge.cancelled').first().waitFor();

    // All of it is in the audit, as done from the page.
    await go(page, '/audit');
    const audit = await page.locator('#region').textContent();
    for (const action of ['queue.pause', 'queue.resume', 'job.cancel']) check(audit.includes(action), `${action} is not in the audit`);
    check(audit.includes('page'), 'the audit does not say that it was the page');
    await context.close();
  },

  // Keys, the help, the theme, copying.
  async keys() {
    const { context, page } = await open();
    await go(page, '/jobs');
    await page.keyboard.press('?');
    check(await page.locator('#keys').isVisible(), '? shows no help');
    await page.keyboard.press('Escape');
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    const at = await page.evaluate(() => document.activeElement.closest('tr')?.rowIndex);
    check(at === 2, `j went to row ${at}`);
    await page.keyboard.press('x');
    check((await page.locator('input[data-pick]:checked').count()) === 1, 'x selects nothing');
    check((await page.locator('[data-picked]').textContent()) === '1 selected', 'it is not said how many are selected');
    await page.keyboard.press('k');
    await page.keyboard.press('/');
    check(await page.evaluate(() => document.activeElement.id === 'find'), '/ does not go to the search');
    await page.keyboard.type(String(facts.poison));
    await page.keyboard.press('Enter');
    await page.waitForURL(`**/jobs/${facts.poison}`);
    await page.keyboard.press('g');
    await page.keyboard.press('q');
    await page.waitForURL('**/queues');
    const theme = page.locator('[data-theme-switch]');
    await theme.click();
    await theme.click();
    check((await theme.textContent()) === 'Theme: dark', 'the switch does not tell the theme');
    await page.reload();
    check(await page.evaluate(() => document.documentElement.dataset.theme === 'dark'), 'the theme is forgotten');
    const copy = page.locator('.cmd button').first();
    await copy.click();
    await page.waitForFunction(() => [...document.querySelectorAll('.cmd button')].some((one) => /Copied|Ctrl/.test(one.textContent)));
    // The first stop of the keyboard leads past the side bar.
    await go(page, '/jobs');
    await page.keyboard.press('Tab');
    check((await page.evaluate(() => document.activeElement.textContent)) === 'Skip to content', 'no skip link');
    await context.close();
  },

  // Text from outside is shown as it is and never becomes part of the page.
  async hostile() {
    const { context, page } = await open();
    for (const where of facts.hostile) {
      await go(page, where);
      await page.waitForTimeout(200);
      check(!(await page.evaluate(() => window.pwned)), `a script ran at ${where}`);
      const strange = await page.evaluate(() => [...document.querySelectorAll('main img, main iframe, main script, main [onerror], main [onclick]')].map((one) => one.outerHTML.slice(0, 120)));
      check(strange.length === 0, `${where} has ${strange.join(' | ')}`);
      // It is there, as text or as the value of a field; lists do not show payloads.
      const shown = /^\/jobs\/\d+|^\/mirror\/|^\/directives\/|[?&](q|kind|queue|actor)=/.test(where);
      check(!shown || (await page.content()).includes('pwned'), `${where} does not show it`);
    }
    await context.close();
  },

  // Tokens: nobody gets in without, and everybody sees what they may do.
  async access() {
    const { context, page } = await open();
    await page.goto(`${base}/queues`);
    check(page.url().includes('/login?next=%2Fqueues'), `no login: ${page.url()}`);
    await judged(page, '/login');
    await shoot(page, 'login');
    await page.locator('#token').fill('not-a-token');
    page.removeAllListeners('console');
    await page.getByRole('button', { name: 'Sign in' }).click();
    check((await page.locator('.flash.bad').count()) === 1, 'a wrong token is not refused');
    const cookies = () => context.cookies();
    check((await cookies()).every((one) => one.name !== 'stargate_session'), 'a wrong token is kept');
    for (const [role, buttons] of [['read', 0], ['operate', 1]]) {
      await context.clearCookies();
      await page.goto(`${base}/queues`);
      await page.locator('#token').fill(facts.tokens[role]);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.waitForURL('**/queues');
      const session = (await cookies()).find((one) => one.name === 'stargate_session');
      check(session?.httpOnly && session.sameSite === 'Strict', `the cookie is ${JSON.stringify(session)}`);
      check(!(await page.content()).includes(facts.tokens[role]), 'the token is in the page');
      const offered = await page.locator('#queue-default').getByRole('button').count();
      check(offered === buttons, `${role} is offered ${offered} buttons`);
      // What is not offered is refused all the same.
      const sent = await context.request.post(`${base}/queues/default/pause`, { headers: { origin }, maxRedirects: 0 });
      await go(page, '/queues');
      const paused = (await page.locator('#queue-default .badge.paused').count()) === 1;
      check(paused === (role === 'operate'), `${role} paused: ${paused} (${sent.status()})`);
    }
    // From another site nothing is done, whoever is signed in.
    const foreign = await context.request.post(`${base}/queues/default/resume`, { headers: { origin: 'http://evil.example' }, maxRedirects: 0 });
    check(foreign.status() === 403, `another site is answered with ${foreign.status()}`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL('**/login');
    check((await cookies()).every((one) => one.name !== 'stargate_session'), 'the cookie stays after signing out');
    await context.close();
  },

  // Below a sub-path every link, form and file is found.
  async subpath() {
    const { context, page } = await open();
    page.on('response', (response) => { if (response.status() >= 400) wrong(`${response.url()} is ${response.status()}`); });
    for (const where of ['/', '/jobs', '/queues', '/api']) {
      await go(page, where);
      const links = await page.$$eval('a[href], form[action], link[href], script[src]', (all) => all.map((one) => one.getAttribute('href') || one.getAttribute('action') || one.getAttribute('src')));
      for (const link of links) check(link.startsWith('#') || link.startsWith(facts.path), `${where} leads to ${link}`);
    }
    await page.goto(`${base}/queues`);
    await page.locator('#queue-default').getByRole('button', { name: /Pause/ }).click();
    await page.locator('#queue-default .badge.paused').waitFor();
    check(page.url() === `${base}/queues`, `it led to ${page.url()}`);
    await page.locator('[data-live-switch][data-state=on]').waitFor();
    await context.close();
  },
};

try {
  await scenarios[scenario]();
} catch (error) {
  wrong(`${scenario}: ${error.stack}`);
}
await browser.close();
rmSync(profile, { recursive: true, force: true });
if (problems.length) {
  console.error([...new Set(problems)].join('\n'));
  process.exit(1);
}
