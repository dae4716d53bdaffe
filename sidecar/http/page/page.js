// Keeps the page fresh while somebody looks at it. Without this script the page is whole, and as old as its last load.
"use strict";
(() => {
  const EVERY_MS = 5000, EVERY_MS_MAX = 60000, PATIENCE_MS = 20000;
  let tag = "", waitMs = EVERY_MS, timer = 0, isAsking = false;

  const pulse = (state) => { document.getElementById("pulse").className = "pulse " + state; };

  // What has the focus is found again by its own name or address after its surroundings were replaced.
  const nameOf = (element) => element && (element.id ? "#" + CSS.escape(element.id)
    : element.getAttribute("href") ? '[href="' + CSS.escape(element.getAttribute("href")) + '"]' : "");

  const show = (page) => {
    for (const old of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(old.id);
      if (!fresh || (old.innerHTML === fresh.innerHTML && old.className === fresh.className)) continue;
      const focused = old.contains(document.activeElement) ? nameOf(document.activeElement) : "";
      old.className = fresh.className;
      old.replaceChildren(...fresh.childNodes);
      if (focused) old.querySelector(focused)?.focus({ preventScroll: true });
    }
    document.title = page.title;
  };

  const ask = async () => {
    if (isAsking || document.hidden) return;
    isAsking = true;
    try {
      const answer = await fetch(location.pathname + location.search, {
        cache: "no-store", headers: tag ? { "If-None-Match": tag } : {}, signal: AbortSignal.timeout(PATIENCE_MS),
      });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag") || "";
        show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } else if (answer.status !== 304) {
        throw new Error(String(answer.status));
      }
      waitMs = EVERY_MS;
      pulse("live");
      document.body.classList.add("live-on");
    } catch {
      waitMs = Math.min(2 * waitMs, EVERY_MS_MAX);
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
