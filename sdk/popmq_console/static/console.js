// What a page does beyond its forms and links: it stays current, asks for a typed name, shows values of charts.
"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  const live = document.getElementById("live");
  const state = document.getElementById("state");
  const login = document.querySelector(".side");

  // ── Staying current: the server sends the live part again when it differs; equal elements stay, with focus and ticks ──
  const key = (node) => (node.nodeType === 1 ? node.dataset.k : undefined);
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);

  function attributes(old, fresh) {
    for (const { name, value } of [...fresh.attributes])
      if (old.getAttribute(name) !== value && !(old.nodeName === "INPUT" && name === "value")) old.setAttribute(name, value);
    for (const { name } of [...old.attributes])
      if (!fresh.hasAttribute(name) && !(old.nodeName === "DETAILS" && name === "open") && name !== "disabled")
        old.removeAttribute(name);
  }

  function merge(old, fresh) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    attributes(old, fresh);
    const kept = new Map([...old.children].filter(key).map((node) => [key(node), node]));
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      let found = key(wanted) !== undefined ? kept.get(key(wanted)) : at && alike(at, wanted) ? at : null;
      if (found && !alike(found, wanted)) found = null;
      if (!found) {
        old.insertBefore(document.importNode(wanted, true), at);
        continue;
      }
      if (found !== at) old.insertBefore(found, at);
      else at = at.nextSibling;
      merge(found, wanted);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  const AGAIN_MS = 5000;
  let source = null;
  function say(text) {
    state.textContent = text;
    state.hidden = !text;
  }
  function listen() {
    source = new EventSource(location.href);
    source.addEventListener("live", (event) => {
      const holder = document.createElement("div");
      holder.id = "live";
      holder.innerHTML = event.data;
      const focused = document.activeElement;
      merge(live, holder);
      // A row that moves takes the focus of its link along only if it is given back.
      if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
      document.documentElement.dataset.current = "yes";
      say("");
    });
    source.addEventListener("trouble", (event) => say(event.data));
    source.addEventListener("broken", (event) => { source.close(); say(event.data); });
    source.addEventListener("login", (event) => { source.close(); location.assign(event.data); });
    source.addEventListener("open", () => say(""));
    source.addEventListener("error", () => {
      say("Connection lost; trying again.");
      // After an answer that is no stream, such as that of a console whose broker is away, browsers try no more.
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(follow, AGAIN_MS);
      }
    });
  }
  function follow() {
    if (document.hidden && source) {
      source.close();
      source = null;
    } else if (!document.hidden && !source) listen();
  }
  const current = document.querySelector(".side [aria-current]");
  if (current) current.parentElement.parentElement.scrollLeft = current.offsetLeft - 40;
  if (live && login) {
    follow();
    document.addEventListener("visibilitychange", follow);
    addEventListener("pagehide", () => source && source.close());
  }

  // ── What was typed comes back after a refusal: pages are not cached, so the browser keeps no fields of them ─────────
  const here = location.pathname + location.search;
  function typed() {
    try {
      return JSON.parse(sessionStorage.getItem("typed"));
    } catch {
      return null; // no storage, or nothing of ours
    }
  }
  function keep(what) {
    try {
      sessionStorage.setItem("typed", JSON.stringify(what));
    } catch {} // no storage: the fields are empty after a refusal
  }
  function refill(form, fields) {
    for (const field of form.elements) {
      if (!field.name || field.type === "hidden") continue;
      if (field.type === "checkbox") field.checked = fields.some(([name]) => name === field.name);
      else for (const [name, value] of fields) if (name === field.name && field.type !== "submit") field.value = value;
    }
    if (form.closest("details")) form.closest("details").open = true;
  }
  addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post" || !form.closest("main") || form.querySelector('[type="password"]')) return;
    const fields = [...new FormData(form)].filter(([name]) => name !== "csrf");
    keep({ at: here, action: form.getAttribute("action"), fields });
  });
  // Lists move while they are open, so a click may meet another row: what cannot be undone is named and asked for.
  addEventListener("submit", (event) => {
    const question = event.submitter && event.submitter.dataset.ask;
    if (question && !confirm(question)) event.preventDefault();
  }, true);
  const last = typed();
  if (document.querySelector("[data-refused]")) {
    if (last) keep({ ...last, refused: true });
  } else {
    keep(null);
    const forms = last ? document.querySelectorAll(`main form[action="${CSS.escape(last.action)}"]`) : [];
    if (last && last.refused && last.at === here && forms.length === 1) refill(forms[0], last.fields);
  }

  // ── Forms ──────────────────────────────────────────────────────────────────────────────────────────────────────────
  function must(input) {
    const button = input.form.querySelector("button");
    button.disabled = input.value !== input.dataset.must;
  }
  document.querySelectorAll("[data-must]").forEach(must);
  document.addEventListener("input", (event) => {
    if (event.target.dataset.must !== undefined) must(event.target);
  });
  document.addEventListener("change", (event) => {
    const target = event.target;
    if (target.dataset.submit !== undefined) target.form.requestSubmit();
    if (target.dataset.all !== undefined)
      document.querySelectorAll(`input[name="${target.dataset.all}"]`).forEach((box) => (box.checked = target.checked));
  });

  // ── Charts: the value under the pointer, read from the line itself ─────────────────────────────────────────────────
  function written(value, unit) {
    if (unit === "bytes") {
      const names = ["B", "KiB", "MiB", "GiB", "TiB"];
      let place = 0;
      while (value >= 1024 && place < 4) { value /= 1024; place += 1; }
      return `${value.toFixed(place ? 1 : 0)} ${names[place]}`;
    }
    const text = value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });
    return unit === "rate" ? `${text}/s` : unit === "seconds" ? `${text} s` : text;
  }
  function nearest(path, x, most) {
    let best = null;
    for (const [, px, py] of (path.getAttribute("d") || "").matchAll(/[ML]([\d.-]+) ([\d.-]+)/g))
      if (best === null || Math.abs(px - x) < Math.abs(best[0] - x)) best = [Number(px), Number(py)];
    return best && Math.abs(best[0] - x) < most ? best : null;
  }
  document.addEventListener("pointermove", (event) => {
    document.querySelectorAll(".tip").forEach((tip) => tip.remove());
    const svg = event.target.closest && event.target.closest(".plot svg");
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 720;
    const parts = [];
    const most = Math.max(12, (720 * 0.3) / Number(svg.dataset.minutes));  // little more than half a step: not in a gap
    svg.querySelectorAll(".line").forEach((path) => {
      const point = nearest(path, x, most);
      if (point) parts.push(written((1 - point[1] / 160) * Number(svg.dataset.top), svg.dataset.unit));
    });
    if (!parts.length) return;
    const tip = document.createElement("span");
    tip.className = "tip";
    tip.textContent = `${Math.round(Number(svg.dataset.minutes) * (1 - x / 720))} min ago: ${parts.join(" · ")}`;
    svg.parentElement.append(tip);
    const left = event.clientX - box.left;
    const width = tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(box.width - width, left - width / 2))}px`;
  });
})();
