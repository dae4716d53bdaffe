// Keeps the page fresh while somebody looks at it. Without this script the page is whole, and as old as its last load.
"use strict";
(() => {
  const EVERY_MS = 5000, EVERY_MS_MAX = 60000, AGAIN_MS = 2000, PATIENCE_MS = 15000;
  let tag = "", waitMs = EVERY_MS, timer = 0, isAsking = false, failures = 0, answered = new Date(), title = document.title;

  const pulse = (state) => { document.getElementById("pulse").className = "pulse " + state; };

  // What is shown is old: nobody may take it for how things are. A null says that it is not.
  const old = (reason) => {
    document.body.classList.toggle("old", reason !== null);
    document.getElementById("old").hidden = reason === null;
    document.getElementById("old-since").textContent = reason === null ? "" :
      "No response since " + answered.toISOString().slice(11, 19) + " UTC: the data below is old";
    document.getElementById("old-why").textContent = reason || "";
    document.title = reason === null ? title : "▲ No response · tiered-sidecar";
  };

  const reasonOf = (status) => status === 401 ? "The token has changed: reload the page and enter the new one."
    : status ? "The sidecar returned error " + status + ": check its log."
    : "The sidecar has ended, or the network to it is down. Archiving may have stopped: check its process and its log.";

  // What has the focus is found again by its own name or address after its surroundings were replaced.
  const nameOf = (element) => element && (element.id ? "#" + CSS.escape(element.id)
    : element.getAttribute("href") ? '[href="' + CSS.escape(element.getAttribute("href")) + '"]' : "");

  const show = (page) => {
    for (const place of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(place.id);
      if (!fresh || (place.innerHTML === fresh.innerHTML && place.className === fresh.className)) continue;
      const focused = place.contains(document.activeElement) ? nameOf(document.activeElement) : "";
      place.className = fresh.className;
      place.replaceChildren(...fresh.childNodes);
      if (focused) place.querySelector(focused)?.focus({ preventScroll: true });
    }
    title = page.title;
  };

  const ask = async () => {
    if (isAsking || document.hidden) return;
    isAsking = true;
    let status = 0;
    try {
      const answer = await fetch(location.pathname + location.search, {
        cache: "no-store", headers: tag ? { "If-None-Match": tag } : {}, signal: AbortSignal.timeout(PATIENCE_MS),
      });
      status = answer.status;
      if (status === 200) {
        tag = answer.headers.get("ETag") || "";
        show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } else if (status !== 304) {
        throw new Error(String(status));
      }
      waitMs = EVERY_MS;
      failures = 0;
      answered = new Date();
      old(null);
      pulse("live");
      document.body.classList.add("live-on");
    } catch (error) {
      failures += 1;
      waitMs = Math.min(AGAIN_MS * 2 ** (failures - 1), EVERY_MS_MAX);
      // Once is no news: too many may ask at this moment.
      if (failures > 1 || status === 401 || error.name === "TimeoutError") old(reasonOf(status));
      pulse("away");
      document.body.classList.remove("live-on");
    }
    isAsking = false;
    plan();
  };

  const plan = () => {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(ask, waitMs);
  };

  document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(timer); else ask(); });
  plan();
})();
