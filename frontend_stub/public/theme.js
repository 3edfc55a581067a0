// Runs before the first paint so that a chosen theme never flashes. A file of its own, because the
// content security policy allows no inline script.
(function () {
  try {
    var theme = window.localStorage.getItem("drydock.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be blocked; the system's preference then decides.
  }
})();
