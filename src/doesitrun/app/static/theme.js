// Runs before the first paint, so that a dark page never flashes white.
(() => {
  let kept = null;
  try { kept = localStorage.getItem("theme"); } catch { /* storage is closed to frames of some browsers */ }
  const asked = new URLSearchParams(location.search).get("__theme") || kept;
  if (asked === "dark" || asked === "light") document.documentElement.dataset.theme = asked;
})();
