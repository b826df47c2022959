// What keeps a page alive: news of the audit log, ages, keys, confirmations, selections. No page needs it to be read.
"use strict";
(() => {
  const every = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const byId = (id) => document.getElementById(id);

  // Ages: the server sends moments, so that what has not changed looks the same to it, and is not swapped.
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  function spoken(seconds) {
    for (const [size, unit] of UNITS) if (seconds >= size) return `${Math.round(seconds / size)} ${unit}`;
    return "";
  }
  // On a phone the pages stand in one line, and the one that is shown may be beyond its end. `scrollIntoView` would also
  // make it the place from which Tab goes on.
  const here = document.querySelector(".side nav [aria-current]");
  if (here !== null) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2;

  let ahead = 0; // of this machine's clock, the server's
  function tellAges(root = document) {
    const now = Date.now() + ahead;
    for (const element of every("time[datetime]", root)) {
      const seconds = (now - Date.parse(element.dateTime)) / 1000;
      const past = element.dataset.span !== undefined;
      const text = spoken(Math.abs(seconds));
      const said = past ? text || "0 s" : text === "" ? "now" : seconds > 0 ? `${text} ago` : `in ${text}`;
      if (element.textContent !== said) element.textContent = said;
    }
  }
  setInterval(tellAges, 1000);

  // News. A hidden tab gives its connection back: a browser has six for a host.
  const REST = 700; // between two looks, however much happens
  const QUIET = 5000; // after which a page looks even if nothing was said: ages, heartbeats, progress
  let source = null;
  let lookedAt = 0;
  let timer = null;
  function show(state) {
    const shown = byId("live-state");
    if (shown === null) return;
    shown.dataset.state = state;
    shown.lastElementChild.textContent = { live: "live", connecting: "connecting", away: "reconnecting" }[state];
  }
  function refresh() {
    timer = null;
    lookedAt = Date.now();
    for (const element of every("[data-live]")) htmx.trigger(element, "hf:refresh");
    document.dispatchEvent(new CustomEvent("hf:charts"));
  }
  function refreshSoon() {
    const shown = byId("live-state");
    if (shown !== null) {
      shown.classList.add("is-news");
      setTimeout(() => shown.classList.remove("is-news"), 400);
    }
    if (timer === null) timer = setTimeout(refresh, Math.max(0, lookedAt + REST - Date.now()));
  }
  function listen() {
    if (source !== null || byId("live-state") === null) return;
    const job = document.querySelector("[data-live-job]");
    source = new EventSource(job === null ? "/live" : `/live?job=${encodeURIComponent(job.dataset.liveJob)}`);
    source.onopen = () => show("live");
    source.addEventListener("now", (event) => { ahead = Number(event.data) - Date.now(); });
    source.addEventListener("change", refreshSoon);
    source.onerror = () => {
      show("away");
      if (source.readyState === EventSource.CLOSED) { // refused: signed out, or the server is full
        source = null;
        setTimeout(() => { if (!document.hidden) { listen(); refreshSoon(); } }, 3000);
      }
    };
  }
  function rest() {
    if (source !== null) source.close();
    source = null;
    show("connecting");
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) rest();
    else { listen(); refreshSoon(); }
  });
  addEventListener("pagehide", rest);
  addEventListener("pageshow", (event) => { if (event.persisted) { listen(); refreshSoon(); } });
  setInterval(() => {
    const pace = Number(document.querySelector("[data-pace]")?.dataset.pace ?? QUIET);
    if (!document.hidden && Date.now() - lookedAt >= pace) refreshSoon();
  }, 500);

  // A fragment that has not changed is not swapped: whoever selects text or stands on a button is left alone.
  const last = new WeakMap();
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, serverResponse, xhr } = event.detail;
    if (xhr.status >= 400) event.detail.shouldSwap = true; // it says itself where it belongs
    if (!target.matches("[data-live]") || xhr.status >= 400) return;
    if (last.get(target) === serverResponse) event.detail.shouldSwap = false;
    last.set(target, serverResponse);
    const writes = target.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
    if (writes || [pressed, ...held].some((element) => target.contains(element))) {
      event.detail.shouldSwap = false;
      last.delete(target);
      setTimeout(refreshSoon, 300); // it is still to be shown
    }
  });
  // Nor is one exchanged in which somebody is about to do something: htmx sends nothing for an element that is gone, and
  // tells nobody what came of it. From the press to the click, while a question is open, until the answer is there.
  const held = new Set();
  let pressed = null;
  addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { pressed = null; }), true);
  document.addEventListener("htmx:beforeRequest", (event) => { if (event.detail.requestConfig.verb === "post") held.add(event.detail.elt); });
  document.addEventListener("htmx:afterRequest", (event) => held.delete(event.detail.elt));
  const chosen = new Set();
  document.addEventListener("htmx:afterSwap", (event) => {
    tellAges(event.detail.target);
    for (const box of every("input[name=id]")) box.checked = chosen.has(box.value);
    countChosen();
    followLog();
  });

  // What an action says of itself.
  document.addEventListener("htmx:afterRequest", (event) => {
    const said = event.detail.xhr?.getResponseHeader("Holdfast-Said");
    if (!said) return;
    const { title, detail } = JSON.parse(said);
    notice(title, detail);
    lookedAt = 0;
    refreshSoon();
  });
  function notice(title, detail) {
    const box = document.createElement("div");
    box.className = "notice";
    const head = document.createElement("b");
    head.textContent = title;
    const text = document.createElement("p");
    text.textContent = detail;
    box.append(head, text);
    byId("notices").append(box);
  }
  new MutationObserver((changes) => {
    for (const change of changes) for (const box of change.addedNodes) setTimeout(() => box.remove(), 8000);
  }).observe(byId("notices"), { childList: true });
  document.addEventListener("htmx:sendError", () => show("away"));

  // Confirmations: ours, because the browser's own cannot be styled, nor tested.
  function confirmed(text) {
    const dialog = byId("confirm");
    dialog.querySelector("p").textContent = text;
    dialog.returnValue = "no";
    dialog.showModal();
    return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
  }
  document.addEventListener("htmx:confirm", async (event) => {
    const text = event.detail.elt.dataset.confirm;
    if (text === undefined) return;
    event.preventDefault();
    held.add(event.detail.elt);
    if (await confirmed(text.replace("{n}", chosen.size.toLocaleString("en")))) event.detail.issueRequest(true);
    else held.delete(event.detail.elt);
  });

  // Selections survive a refresh.
  function countChosen() {
    for (const element of every("[data-chosen]")) element.textContent = chosen.size.toLocaleString("en");
    for (const element of every("[data-needs-chosen]")) element.disabled = chosen.size === 0;
    const all = every("input[name=id]");
    const box = byId("choose-all");
    if (box !== null) box.checked = all.length > 0 && all.every((one) => one.checked);
  }
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.id === "choose-all") for (const one of every("input[name=id]")) { one.checked = box.checked; if (one.checked) chosen.add(one.value); else chosen.delete(one.value); }
    else if (box.name === "id") { if (box.checked) chosen.add(box.value); else chosen.delete(box.value); }
    else if (box.closest("[data-submits]") !== null) box.form.requestSubmit();
    countChosen();
  });
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.dataset.sendsChosen !== undefined) event.detail.parameters.set("ids", Array.from(chosen).join(","));
  });

  // A log that is read at its end stays there.
  let atEnd = true;
  document.addEventListener("scroll", (event) => {
    const log = event.target;
    if (log instanceof Element && log.matches(".log")) atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
  }, true);
  function followLog() {
    const log = document.querySelector(".log[data-follow]");
    if (log !== null && atEnd) log.scrollTop = log.scrollHeight;
  }

  // Keys and small things.
  let went = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select") || document.querySelector("dialog[open]")) return;
    if (event.key === "/") { byId("search")?.focus(); event.preventDefault(); }
    else if (event.key === "?") byId("keys").showModal();
    else if (event.key === "t") turn();
    else if (event.key === "g") went = Date.now();
    else if (Date.now() - went < 1500) {
      const link = every("[data-key]").find((one) => one.dataset.key === event.key);
      went = 0;
      if (link !== undefined) location.href = link.href;
    }
  });
  function turn() {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("holdfast-theme", dark ? "light" : "dark"); } catch { /* for this page only */ }
    document.dispatchEvent(new CustomEvent("hf:theme"));
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button === null) return;
    if (button.id === "theme") turn();
    if (button.dataset.copy !== undefined) navigator.clipboard?.writeText(button.dataset.copy).then(() => notice("Copied", button.dataset.copy));
  });

  tellAges();
  countChosen();
  followLog();
  if (!document.hidden) listen();
})();
