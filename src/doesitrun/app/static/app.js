// Makes the pages quick: links, filters and typing fetch only what changes, and the address always says what is shown.
// Without this script every link and form works all the same.
(() => {
  const page = document.getElementById("page");
  const search = document.getElementById("search");
  const said = document.getElementById("said");
  const LISTS = new Set(["selected", "trending", "downloads"]);
  let asked = 0; // number of the newest request: what an older one brings is thrown away

  const isList = (parameters) => !parameters.get("model") && LISTS.has(parameters.get("view") || "selected");
  const say = (text) => { said.textContent = text; };

  // -------------------------------------------------------------------------------- fetching
  async function show(query, { how = "push", only = null, scroll = true } = {}) {
    const mine = ++asked;
    page.setAttribute("aria-busy", "true");
    let text;
    try {
      // Not aborted when the next letter comes: that would close the connection, and the next answer would wait for a new one.
      const answer = await fetch("page" + query, { headers: { accept: "text/html" } });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      text = await answer.text();
    } catch (error) {
      if (mine !== asked) return;
      page.removeAttribute("aria-busy");
      say(`That could not be loaded: ${error.message}. Try again in a moment.`);
      said.classList.add("shown");
      return;
    }
    if (mine !== asked) return;
    said.classList.remove("shown");
    draw(text, only);
    if (how === "push") history.pushState({ y: 0, fromList: isList(new URLSearchParams(location.search)) }, "", query || "?");
    if (how === "replace") history.replaceState(history.state, "", query || "?");
    tellParent();
    if (!only) showTab();
    if (scroll && how === "push") window.scrollTo(0, 0);
    page.removeAttribute("aria-busy");
    document.dispatchEvent(new CustomEvent("doesitrun:shown"));
  }

  // What the server sent is its own escaped HTML; it is parsed off the page first.
  function draw(text, only) {
    const made = new DOMParser().parseFromString(text, "text/html");
    document.title = made.title || document.title;
    const part = only && document.getElementById(only);
    const fresh = only && made.getElementById(only);
    if (part && fresh) {
      part.replaceWith(fresh);
      const tabs = made.querySelector("nav.tabs");
      if (tabs) page.querySelector("nav.tabs").replaceWith(tabs);
    } else {
      const focused = page.contains(document.activeElement) ? document.activeElement.id : "";
      page.replaceChildren(...made.body.childNodes);
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    }
    const sum = page.querySelector("#results .sum p");
    say(sum ? sum.textContent : document.title);
  }

  // Where the tabs do not fit, the one that is shown is scrolled to.
  const showTab = () => page.querySelector("nav.tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  showTab();

  // A Space is shown in a frame: its parent keeps the address that people copy.
  function tellParent() {
    if (window.parent !== window) {
      window.parent.postMessage({ queryString: location.search.slice(1), hash: location.hash.slice(1) }, "https://huggingface.co");
    }
  }

  // -------------------------------------------------------------------------------- typing
  function typed() {
    const now = new URLSearchParams(location.search);
    const onList = isList(now);
    const wanted = onList ? now : new URLSearchParams();
    wanted.delete("offset");
    if (search.value.trim()) wanted.set("q", search.value.trim());
    else wanted.delete("q");
    const query = "?" + wanted.toString().replaceAll("%2F", "/").replaceAll("+", "%20");
    // One entry of the history a search, not one a letter.
    show(query, onList ? { how: "replace", only: "results" } : { how: "push" });
  }
  search.addEventListener("input", typed);
  search.form.addEventListener("submit", (event) => {
    event.preventDefault();
    page.querySelector("a.model")?.focus();
  });

  // -------------------------------------------------------------------------------- links and filters
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-go]");
    if (link && !event.defaultPrevented && event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)) {
      event.preventDefault();
      const query = new URL(link.href).search;
      remember();
      if (link.hasAttribute("data-back") && history.state?.fromList) { history.back(); return; }
      show(query, { scroll: !link.hasAttribute("data-keep") }).then(() => {
        if (!link.hasAttribute("data-keep") && document.activeElement === document.body) page.focus({ preventScroll: true });
        syncSearch();
      });
      return;
    }
    const button = event.target.closest("button[data-copy]");
    if (button) copy(button);
  });
  page.addEventListener("change", (event) => {
    const form = event.target.closest("form.filters");
    if (!form) return;
    const wanted = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) wanted.set(name, value);
    if (search.value.trim() && isList(wanted)) wanted.set("q", search.value.trim());
    // Versions belong to a target: another one begins with its newest.
    if (event.target.name === "target") { wanted.delete("compiler"); wanted.delete("transformers"); }
    show("?" + wanted.toString().replaceAll("%2F", "/").replaceAll("+", "%20"), { scroll: false });
  });
  const remember = () => history.replaceState({ ...history.state, y: window.scrollY }, "");
  addEventListener("popstate", (event) => {
    show(location.search, { how: "none" }).then(() => { syncSearch(); window.scrollTo(0, event.state?.y || 0); });
  });
  function syncSearch() {
    const now = new URLSearchParams(location.search);
    if (document.activeElement !== search) search.value = isList(now) ? now.get("q") || "" : "";
  }

  // -------------------------------------------------------------------------------- keys
  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input, textarea, select");
    if (event.key === "/" && !typing && !event.metaKey && !event.ctrlKey && !event.altKey) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "Escape" && event.target === search && search.value) {
      event.preventDefault();
      search.value = "";
      typed();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const links = [...page.querySelectorAll("a.model")];
      const at = links.indexOf(document.activeElement);
      if (at < 0 && !(event.target === search && event.key === "ArrowDown")) return;
      event.preventDefault();
      const to = event.key === "ArrowDown" ? at + 1 : at - 1;
      (to < 0 ? search : links[Math.min(to, links.length - 1)])?.focus();
    }
  });

  // -------------------------------------------------------------------------------- copying and colours
  async function copy(button) {
    const text = document.getElementById(button.dataset.copy).textContent;
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      area.style.position = "fixed";
      document.body.append(area);
      area.select();
      document.execCommand("copy"); // where a frame or plain http has no clipboard
      area.remove();
    }
    button.textContent = "Copied";
    say("Copied.");
    button.classList.add("done");
    setTimeout(() => { button.textContent = label; button.classList.remove("done"); }, 1600);
  }
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it lasts as long as the page, then */ }
  });
})();
