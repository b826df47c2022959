// Before anything is painted: the theme that was chosen, if one was.
"use strict";
(() => {
  try {
    const chosen = localStorage.getItem("holdfast-theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch { /* a browser that keeps nothing follows its system */ }
})();
