// What the page can do beyond links and forms. Nothing here is needed: every page works without it.
(() => {
  'use strict';
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const base = document.documentElement.dataset.base || '';

  const kept = {
    get(key) { try { return localStorage.getItem('stargate.' + key); } catch { return null; } },
    set(key, value) {
      try {
        if (value === null) localStorage.removeItem('stargate.' + key);
        else localStorage.setItem('stargate.' + key, value);
      } catch { /* storage is off */ }
    },
  };

  // What changed is said once, to those who do not see it.
  let said = '';
  const announce = (text) => {
    const place = $('#announce');
    if (!place || !text || text === said) return;
    said = text;
    place.textContent = text;
  };

  // ---- copying; also over plain HTTP, where the clipboard API is missing

  async function copy(text) {
    if (navigator.clipboard && window.isSecureContext) {
      try { await navigator.clipboard.writeText(text); return true; } catch { /* as below */ }
    }
    const area = document.createElement('textarea');
    area.value = text;
    area.setAttribute('readonly', '');
    area.className = 'sr';
    document.body.append(area);
    const before = document.activeElement;
    area.select();
    let done = false;
    try { done = document.execCommand('copy'); } catch { /* not copied */ }
    area.remove();
    before?.focus?.();
    return done;
  }

  document.addEventListener('click', async (event) => {
    const button = event.target.closest?.('[data-copy], [data-copy-from]');
    if (!button) return;
    const from = button.dataset.copyFrom ? $(button.dataset.copyFrom) : $('code, pre', button.parentElement);
    const text = button.dataset.copy || from?.textContent || '';
    const done = await copy(text);
    const label = button.dataset.label ||= button.textContent;
    button.textContent = done ? 'Copied' : 'Press Ctrl+C';
    announce(done ? 'Copied' : 'Not copied');
    setTimeout(() => { button.textContent = label; said = ''; }, 1500);
  });

  // ---- theme: as the system, light, dark

  const themes = ['system', 'light', 'dark'];
  function showTheme() {
    const now = document.documentElement.dataset.theme || 'system';
    for (const button of $$('[data-theme-switch]')) {
      button.textContent = 'Theme: ' + now;
    }
    return now;
  }
  document.addEventListener('click', (event) => {
    if (!event.target.closest?.('[data-theme-switch]')) return;
    const next = themes[(themes.indexOf(showTheme()) + 1) % themes.length];
    if (next === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    kept.set('theme', next === 'system' ? null : next);
    announce('Theme: ' + showTheme());
    drawCharts(true);
  });

  // ---- times that grow older while one looks

  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  function span(seconds) {
    let rest = Math.round(seconds);
    const at = units.findIndex(([, length]) => rest >= length);
    if (at < 0) return '0 s';
    const [name, length] = units[at];
    const count = Math.floor(rest / length);
    rest -= count * length;
    const next = units[at + 1];
    const more = next && count < 10 && length > 60 ? Math.floor(rest / next[1]) : 0;
    return more ? `${count} ${name} ${more} ${next[0]}` : `${count} ${name}`;
  }
  function tick() {
    const skew = Number(document.documentElement.dataset.skew || 0);
    for (const time of $$('time[data-rel]')) {
      const seconds = (Date.now() + skew - Date.parse(time.dateTime)) / 1000;
      const text = Math.abs(seconds) < 1 ? 'now' : seconds > 0 ? span(seconds) + ' ago' : 'in ' + span(-seconds);
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // ---- live: the stream says that something changed, and the page is asked for anew

  const live = () => $('[data-live-switch]');
  let paused = kept.get('paused') === '1';
  let connection = 'wait';
  function showLive() {
    const button = live();
    if (!button) return;
    const state = paused ? 'paused' : connection;
    button.dataset.state = state;
    button.setAttribute('aria-pressed', String(paused));
    $('.text', button).textContent =
      { on: 'Live', wait: 'Connecting', off: 'Not connected', paused: 'Paused' }[state];
    button.title = paused ? 'Updates are paused (p)' : 'Pause updates (p)';
  }
  function setPaused(value) {
    paused = value;
    kept.set('paused', paused ? '1' : null);
    showLive();
    announce(paused ? 'Live updates are paused' : 'Live updates go on');
    if (!paused) document.body.dispatchEvent(new CustomEvent('refresh'));
  }
  document.addEventListener('click', (event) => {
    if (event.target.closest?.('[data-live-switch]')) setPaused(!paused);
  });
  const connected = (state) => () => { connection = state; showLive(); };
  // What changed while no stream could be opened is told by none: the page is looked up anew.
  let refused = false;
  document.addEventListener('htmx:sse:after:connection', () => {
    connected('on')();
    if (refused && !paused) document.body.dispatchEvent(new CustomEvent('refresh'));
    refused = false;
  });
  document.addEventListener('htmx:sse:error', connected('off'));
  document.addEventListener('htmx:sse:close', connected('off'));
  // The extension tries again when a stream has ended, and not where the first could not be opened: a node that is being
  // restarted would leave the page without news until somebody loads it anew.
  document.addEventListener('htmx:finally:request', (event) => {
    const stream = event.target;
    if (stream.id !== 'stream' || stream._htmx?.sse || !stream.isConnected) return;
    connected('off')();
    refused = true;
    setTimeout(() => {
      if (stream.isConnected && !stream._htmx?.sse) window.htmx.ajax('GET', stream.getAttribute('hx-sse:connect'), { source: stream });
    }, 1000 + Math.random() * 2000);
  });
  document.addEventListener('htmx:sse:before:message', () => {
    const button = live();
    if (!button || paused) return;
    button.classList.add('beat');
    requestAnimationFrame(() => requestAnimationFrame(() => button.classList.remove('beat')));
  });
  // A page that is left stays in the browser's memory for the way back, with its stream. A browser has six connections to
  // a site, so the seventh page would wait for ever: the stream is let go of, and taken up again on the way back.
  let left = null;
  window.addEventListener('pagehide', () => {
    const stream = $('#stream');
    if (!stream) return;
    left = stream.cloneNode(false);
    left.removeAttribute('data-htmx-powered');
    const held = stream._htmx?.sse;
    stream.remove();
    held?.abortController?.abort();
    held?.reader?.cancel?.().catch(() => {});
  });
  window.addEventListener('pageshow', () => {
    if (!left || $('#stream')) return;
    document.body.append(left);
    window.htmx?.process(left);
    left = null;
    document.body.dispatchEvent(new CustomEvent('refresh'));
  });
  // Nobody wants a list to move while choosing from it, or a form to change while filling it in.
  function busy(region) {
    if (paused || document.hidden) return true;
    if ($('dialog[open]')) return true;
    if ($$('input[data-pick]:checked', region).length) return true;
    const at = document.activeElement;
    if (at && region.contains(at) && at.matches('input:not([type=checkbox]), textarea, select')) return true;
    const marked = getSelection();
    return Boolean(marked && !marked.isCollapsed && region.contains(marked.anchorNode));
  }
  document.addEventListener('htmx:before:request', (event) => {
    const region = event.target.closest?.('[data-region]');
    if (region && busy(region)) event.preventDefault();
  });
  // A message about jobs concerns the page of a job only if it is that job's.
  document.addEventListener('jobs', (event) => {
    const about = $('[data-job]')?.dataset.job;
    if (!about) return;
    let told = null;
    try { told = JSON.parse(event.detail?.data ?? 'null'); } catch { return; }
    if (told?.more || told?.ids?.map(String).includes(about)) document.body.dispatchEvent(new CustomEvent('this-job'));
  });
  document.addEventListener('stats', (event) => {
    let stats = null;
    try { stats = JSON.parse(event.detail?.data ?? 'null'); } catch { return; }
    if (stats) depth(stats);
  });
  function swapped() {
    tick();
    showLive();
    showTheme();
    countPicked();
    drawCharts(false);
    const told = $('[data-announce]');
    if (told) announce(told.dataset.announce);
  }
  document.addEventListener('htmx:after:swap', swapped);

  // ---- choosing rows

  function countPicked() {
    for (const form of $$('form[data-bulk]')) {
      const picks = $$('input[data-pick]', form);
      const chosen = picks.filter((pick) => pick.checked);
      for (const pick of picks) pick.closest('tr')?.setAttribute('aria-selected', String(pick.checked));
      const all = $('input[data-pick-all]', form);
      if (all) {
        all.checked = picks.length > 0 && chosen.length === picks.length;
        all.indeterminate = chosen.length > 0 && chosen.length < picks.length;
      }
      const told = $('[data-picked]', form);
      if (told) told.textContent = chosen.length ? `${chosen.length} selected` : told.dataset.picked;
      for (const button of $$('[data-needs-pick]', form)) button.disabled = chosen.length === 0;
    }
  }
  let lastPick = null;
  document.addEventListener('click', (event) => {
    const pick = event.target.closest?.('input[data-pick]');
    if (!pick) return;
    const picks = $$('input[data-pick]', pick.form);
    if (event.shiftKey && lastPick && picks.includes(lastPick)) {
      const [from, to] = [picks.indexOf(lastPick), picks.indexOf(pick)].sort((a, b) => a - b);
      for (const one of picks.slice(from, to + 1)) one.checked = pick.checked;
    }
    lastPick = pick;
  });
  document.addEventListener('change', (event) => {
    const all = event.target.closest?.('input[data-pick-all]');
    if (all) for (const pick of $$('input[data-pick]', all.form)) pick.checked = all.checked;
    countPicked();
    const form = event.target.closest?.('form[data-auto]');
    if (form && event.target.matches('select, input[type=checkbox], input[type=radio]')) form.requestSubmit();
  });
  // Empty fields do not belong in an address that is passed on.
  document.addEventListener('submit', (event) => {
    const form = event.target;
    if (form.method === 'get') {
      for (const field of $$('input, select', form)) {
        if (field.name && field.value === '' && !field.disabled) {
          field.disabled = true;
          setTimeout(() => { field.disabled = false; });
        }
      }
      return;
    }
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = '1';
    setTimeout(() => { delete form.dataset.sent; }, 5000);
  });
  window.addEventListener('pageshow', () => { for (const form of $$('form[data-sent]')) delete form.dataset.sent; });

  // ---- keys

  const places = { o: '/', j: '/jobs', q: '/queues', d: '/dead-letters', s: '/schedules', w: '/workers', m: '/mirror', i: '/directives', l: '/leadership', a: '/audit' };
  let keysOn = kept.get('keys') !== 'off';
  let going = 0;
  const rows = () => $$('[data-row]').filter((row) => row.offsetParent !== null);
  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(document.activeElement?.closest?.('[data-row]'));
    const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
    const link = $('a', next);
    link?.focus({ preventScroll: true });
    next.scrollIntoView({ block: 'nearest' });
  }
  function help() {
    const dialog = $('#keys');
    if (!dialog) return;
    if (dialog.open) dialog.close(); else dialog.showModal();
  }
  document.addEventListener('click', (event) => {
    if (event.target.closest?.('[data-help]')) help();
    if (event.target.closest?.('[data-close]')) event.target.closest('dialog').close();
  });
  document.addEventListener('change', (event) => {
    if (!event.target.matches?.('[data-keys-switch]')) return;
    keysOn = event.target.checked;
    kept.set('keys', keysOn ? null : 'off');
  });
  const typing = (at) => at?.matches?.('input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]');
  document.addEventListener('keydown', (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape' && typing(document.activeElement)) { document.activeElement.blur(); return; }
    if (typing(event.target)) return;
    if (!keysOn) return;
    if ($('dialog[open]') && event.key !== '?') return;
    if (going && Date.now() - going < 1200 && places[event.key]) {
      going = 0;
      location.href = base + places[event.key];
      return;
    }
    const does = {
      '?': help,
      '/': () => ($('[data-search]') || $('#find'))?.focus(),
      j: () => move(1),
      k: () => move(-1),
      g: () => { going = Date.now(); },
      p: () => setPaused(!paused),
      x: () => {
        const pick = document.activeElement?.closest?.('[data-row]')?.querySelector('input[data-pick]');
        if (pick) { pick.checked = !pick.checked; countPicked(); }
      },
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  });

  // ---- charts, from the tables beside them

  const charts = new Map();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Custom properties hold light-dark(…), which a canvas cannot read; an element resolves it.
  function resolved(name) {
    const probe = document.createElement('i');
    probe.className = 'sr';
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value || colour(name);
  }
  const looks = {
    done: { label: 'done', token: '--good' }, failed: { label: 'failed', token: '--bad' },
    cancelled: { label: 'cancelled', token: '--line-strong' },
    p50: { label: 'half wait at most', token: '--accent' }, p95: { label: '95 % wait at most', token: '--warn' },
    ready: { label: 'ready', token: '--accent' }, processing: { label: 'running', token: '--good' },
  };
  function read(table) {
    const columns = $$('thead th[data-series]', table).map((th) => th.dataset.series);
    const rows = $$('tbody tr', table);
    const x = rows.map((row) => Number(row.dataset.x));
    const ys = columns.map((_, at) => rows.map((row) => {
      const value = row.children[at + 1]?.dataset.v;
      return value === undefined || value === '' ? null : Number(value);
    }));
    return { columns, data: [x, ...ys] };
  }
  const short = (value) => value >= 1e6 ? `${+(value / 1e6).toFixed(1)}M` : value >= 1e4 ? `${Math.round(value / 1e3)}k` : String(+value.toFixed(2));
  const milli = (value) => value >= 60000 ? span(value / 1000) : value >= 1000 ? `${+(value / 1000).toFixed(1)} s` : `${Math.round(value)} ms`;
  // As in the tables and the logs: UTC.
  const clock = (seconds, more) => new Date(seconds * 1000).toISOString().slice(11, more ? 19 : 16);
  function options(plot, columns, size, bars) {
    const text = resolved('--muted'), grid = resolved('--line');
    const show = plot.dataset.unit === 'ms' ? milli : short;
    const path = bars ? uPlot.paths.bars({ size: [0.8, 40] }) : uPlot.paths.linear();
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    return {
      ...size, padding: [8, 8, 0, 0], legend: { show: false },
      cursor: { y: false, points: { show: !bars }, drag: { x: false, y: false } },
      scales: { x: { time: true, range: (u, min, max) => bars && u.data[0].length > 1 ? [min - (u.data[0][1] - u.data[0][0]) / 2, max + (u.data[0][1] - u.data[0][0]) / 2] : [min, max === min ? min + 1 : max] }, y: { range: (u, min, max) => [0, Math.max(max || 0, 1) * 1.1] } },
      axes: [{ ...axis, size: 26, grid: { show: false }, values: (u, ticks) => ticks.map((tick) => clock(tick, ticks[1] - ticks[0] < 60)) }, { ...axis, size: 54, values: (u, ticks) => ticks.map((tick) => tick === null ? '' : show(tick)) }],
      series: [{}, ...columns.map((name) => {
        const stroke = resolved(looks[name]?.token || '--accent');
        return { label: looks[name]?.label || name, stroke, fill: bars ? stroke : undefined, width: bars ? 0 : 1.75, paths: path, points: { show: (u, at) => !bars && u.data[at].filter((value) => value !== null).length < 20, size: 5, fill: stroke }, spanGaps: !bars };
      })],
      hooks: { setCursor: [(u) => tip(plot, u, columns, show)] },
    };
  }
  function tip(plot, u, columns, show) {
    let box = $('.u-tip', plot);
    const at = u.cursor.idx;
    if (at === null || at === undefined || u.cursor.left < 0) { box?.remove(); return; }
    if (!box) { box = document.createElement('div'); box.className = 'u-tip'; u.over.append(box); }
    const when = clock(u.data[0][at], true) + ' UTC';
    const raw = charts.get(plot)?.raw ?? u.data.slice(1);
    box.textContent = when + ' · ' + columns.map((name, i) => raw[i][at] === null ? null : `${looks[name]?.label || name} ${show(raw[i][at])}`).filter(Boolean).join(' · ');
    const left = Math.min(Math.max(0, u.cursor.left + 10), u.over.clientWidth - box.offsetWidth - 2);
    box.style.left = Math.max(0, left) + 'px';
    box.style.top = '4px';
  }
  // Bars stand on each other: the last column is drawn first, with the sum of all.
  function stacked(data) {
    const [x, ...ys] = data;
    const sums = ys.map((_, at) => x.map((_, i) => ys.slice(0, at + 1).reduce((sum, column) => sum + (column[i] || 0), 0)));
    return [x, ...sums.reverse()];
  }
  function drawCharts(anew) {
    if (!window.uPlot) return;
    for (const plot of $$('.plot[data-of]')) {
      const table = document.getElementById(plot.dataset.of);
      if (!table) continue;
      const { columns, data } = read(table);
      if (!data[0].length) continue;
      const bars = plot.dataset.kind === 'bars';
      const drawn = bars ? stacked(data) : data;
      const order = bars ? [...columns].reverse() : columns;
      const raw = bars ? data.slice(1).reverse() : data.slice(1);
      let chart = charts.get(plot);
      if (chart && (anew || !plot.contains(chart.u.root))) { chart.u.destroy(); charts.delete(plot); chart = null; }
      if (chart) { chart.raw = raw; chart.u.setData(drawn); continue; }
      plot.dataset.ready = '1';
      const size = { width: Math.max(200, plot.clientWidth - 12), height: 185 };
      const u = new uPlot(options(plot, order, size, bars), drawn, plot);
      charts.set(plot, { u, raw });
      const details = table.closest('details');
      if (details && !anew && !details.dataset.seen) { details.open = false; details.dataset.seen = '1'; }
    }
    for (const [plot, chart] of charts) if (!plot.isConnected) { chart.u.destroy(); charts.delete(plot); }
    const depthPlot = $('.plot[data-depth]');
    if (anew && charts.has(depthPlot)) { charts.get(depthPlot).u.destroy(); charts.delete(depthPlot); }
    sample();
  }
  // Nobody keeps how many jobs waited a minute ago; the page does, for as long as it is open.
  const DEPTHS = 600;
  const depths = [];
  let depthNow = null;
  function depth(stats) {
    const jobs = stats?.jobs;
    if (jobs) depthNow = [jobs.ready, jobs.processing];
    sample();
  }
  function sample() {
    const plot = $('.plot[data-depth]');
    if (!plot || !window.uPlot || paused || document.hidden) return;
    depthNow ||= [Number(plot.dataset.readyNow), Number(plot.dataset.processingNow)];
    const now = Math.round(Date.now() / 1000);
    if (depths.length && depths[depths.length - 1][0] === now) depths.pop();
    depths.push([now, ...depthNow]);
    if (depths.length > DEPTHS) depths.shift();
    const data = [0, 1, 2].map((at) => depths.map((row) => row[at]));
    let chart = charts.get(plot);
    if (chart && !plot.contains(chart.u.root)) { chart.u.destroy(); chart = null; }
    if (chart) { chart.raw = data.slice(1); chart.u.setData(data); return; }
    plot.dataset.ready = '1';
    const size = { width: Math.max(200, plot.clientWidth - 12), height: 185 };
    charts.set(plot, { u: new uPlot(options(plot, ['ready', 'processing'], size, false), data, plot), raw: data.slice(1) });
  }
  let resizing = 0;
  addEventListener('resize', () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => {
      for (const [plot, chart] of charts) chart.u.setSize({ width: Math.max(200, plot.clientWidth - 12), height: 185 });
    }, 120);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawCharts(true));

  // ---- begin

  const keys = $('[data-keys-switch]');
  if (keys) keys.checked = keysOn;
  showTheme();
  showLive();
  tick();
  countPicked();
  drawCharts(false);
  setInterval(tick, 5000);
  setInterval(sample, 2000);
})();
