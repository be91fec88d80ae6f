// Runs before the first paint, so that a chosen theme does not flash.
(() => {
  document.documentElement.classList.add('js');
  try {
    const theme = localStorage.getItem('stargate.theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch { /* storage is off: the system decides */ }
})();
