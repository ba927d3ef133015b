// The page of a Fairway dashboard. It keeps one stream open, that of the view in the address bar, and brings the document
// up to date with what comes: elements stay the same while their content changes, so focus, selection, scroll and typed
// text survive. Rows are not reordered while the pointer or the focus is among them. The token stays in tabs of this page.
"use strict";

const KEY = "fairway-token", LATE = 10_000, ONE = id => document.getElementById(id);
const main = ONE("main"), banner = ONE("banner"), asOf = ONE("as-of"), login = ONE("login"), search = ONE("search"), dialog = ONE("dialog");
const isCalm = matchMedia("(prefers-reduced-motion: reduce)"), isDark = matchMedia("(prefers-color-scheme: dark)"), MINUTE = {hour: "2-digit", minute: "2-digit", hourCycle: "h23"};
const FORM = Intl.DateTimeFormat, MINUTES = new FORM([], MINUTE), SECONDS = new FORM([], {...MINUTE, second: "2-digit"}), DAYS = new FORM([], {month: "short", day: "numeric"});
const pages = {lists: {}, waiting: new Set(), changed: [], desk: null};  // waiting: lists to be put in order once nothing is among them
let stream = null, rights = "", last = "", heard = 0, at = 0, view = "", trouble = "", lasting = "", untried = null, isFocused = false, typing = 0, nap = 0, recalled = null, proposal = null, trial = null;

// Who looks

function signIn(token) {
  sessionStorage.setItem(KEY, token);
  login.hidden = true;
  main.hidden = false;
  open();
}

function start() {
  const found = /(?:^#|&)token=([^&]+)/.exec(location.hash);
  if (found) history.replaceState(null, "", location.pathname + location.search);
  signIn(found ? decodeURIComponent(found[1]) : sessionStorage.getItem(KEY) || "");
}

function ask(path, options = {}) {
  const headers = {authorization: `Bearer ${sessionStorage.getItem(KEY)}`, ...options.headers};
  return fetch(path, {...options, headers, cache: "no-store"});
}

const post = (path, asked) => ask(path, {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(asked)});

// The key of a dashboard stays in the memory of its tabs. After a cut it is shown to what answers here, once that has
// proved that it has the key, and this port; the token of the new start then comes with the stream.
async function known() {
  const words = crypto.randomUUID(), bytes = text => new TextEncoder().encode(text);
  const answer = await fetch(`/proof?of=${words}`, {cache: "no-store"});
  const sealed = await crypto.subtle.importKey("raw", bytes(lasting), {name: "HMAC", hash: "SHA-256"}, false, ["verify"]);
  const isSame = answer.ok && await crypto.subtle.verify("HMAC", sealed, await answer.arrayBuffer(), bytes(`${words} ${location.port}`));
  if (!isSame) throw new Error("another program answers at this address");
  return {authorization: `Bearer ${lasting}`};
}

// A tab that is refused asks the others of its browser and address for their token. One answers that hears the dashboard,
// or to which it proves that it has the key: a page of another program, which took the port, is told nothing.
const tabs = new BroadcastChannel(KEY);
tabs.onmessage = async ({data}) => {
  const token = sessionStorage.getItem(KEY);
  if (data) { if (!login.hidden && data !== token) signIn(data); }
  else if (login.hidden && (lasting ? await known().catch(() => false) : stream && !trouble)) tabs.postMessage(token);
};

function refuse(why) {
  stop();
  login.hidden = false;
  ONE("login-why").textContent = why;
  main.hidden = banner.hidden = true;
  document.body.classList.add("stale");
  asOf.textContent = "not connected";
  login.elements.token.focus();
  tabs.postMessage("");
}

// The stream

const stop = () => { stream?.abort(); stream = null; };

async function open(isAgain = false) {
  stop();
  const own = stream = new AbortController();
  if (!isAgain) { rights = ""; view = location.pathname + location.search; last = ""; markMenu(); }
  for (let pause = 500; own === stream; pause = Math.min(pause * 2, 8000)) {
    const began = Date.now();
    try {
      const headers = {...(last && {"last-event-id": last}), ...(trouble && lasting && await known())};
      const answer = await ask(`/stream?at=${encodeURIComponent(view)}`, {headers, signal: own.signal});
      if (answer.status === 401) return refuse((await answer.json()).message);
      if (!answer.ok) throw new Error((await answer.json()).message);
      for await (const part of pieces(answer.body, "\n\n")) if (own === stream) take(part); else return;
      if (own === stream) trouble = "the dashboard has ended the stream";
    } catch (error) {
      if (own !== stream) return;
      trouble = error.name === "TypeError" ? "the dashboard does not answer" : error.message;
      warn();
    }
    if (Date.now() - began > 10_000) pause = 500;
    await new Promise(done => setTimeout(done, pause * (0.5 + Math.random() / 2)));
  }
}

// A browser has six connections to one host for all its tabs: one that is hidden gives its own back, and goes on when it is seen.
function doze() {
  if (document.hidden) nap = setTimeout(() => { if (stream) { stop(); own.log?.abort(); own.log = null; nap = -1; trouble = "this tab was hidden"; } }, 2000);
  else { clearTimeout(nap); if (nap === -1) open(true); nap = 0; }
}

// What comes between two marks, and is whole.
async function* pieces(body, mark) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let held = ""; ;) {
      const {value, done} = await reader.read();
      if (done) return;
      const parts = (held + value).split(mark);
      held = parts.pop();
      yield* parts;
    }
  } finally { reader.cancel().catch(() => {}); }
}

function take(text) {
  const fields = Object.fromEntries(text.split("\n").map(line => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
  const content = JSON.parse(fields.data), {event} = fields;
  if (event === "rights") { rights = content.message; return warn(); }
  if (event === "own") { sessionStorage.setItem(KEY, content.token); lasting = content.key; return; }
  heard = Date.now();
  at = content.at ? content.at * 1000 : heard;
  if (trouble || !(banner.hidden || rights)) { trouble = ""; warn(); if (own.key && !own.log) readLog(); }
  if (event === "refused") return refuse(content.message);
  if (event !== "beat") draw(content, event === "page");
  if (fields.id) last = fields.id;
  if (untried?.isConnected) attempt(untried, true);
  document.body.classList.remove("stale");
  asOf.textContent = `as of ${clock(new Date(at), true)}`;
}

function warn() {
  const isLate = heard > 0 && Date.now() - heard > LATE;
  const text = trouble ? `${trouble}; if it stays so, fairway dashboard prints a new link` : "nothing was heard from the dashboard, or by it from the API server";
  document.querySelectorAll("button[data-act], button[data-many]").forEach(it => { it.disabled = isLate || ("many" in it.dataset && !chosen(it.dataset.many).length); });
  document.body.classList.toggle("stale", isLate || Boolean(trouble && !heard));
  banner.hidden = !(isLate || (trouble && !heard) || rights);
  banner.textContent = rights && !isLate ? rights : heard ? `Not live: this page is as of ${clock(new Date(at), true)}; ${text}. Trying again; actions are off.` : `Cannot connect: ${text}. Trying again.`;
}

setInterval(() => { logs(); if (stream) warn(); }, 1000);

// Drawing

function draw(content, isWhole) {
  const had = document.activeElement, row = had.closest("[data-key]"), near = [row, row?.nextElementSibling, row?.previousElementSibling];
  if (content.title) document.title = `${content.title} · Fairway`;
  if (isWhole) pages.lists = {};
  if (content.frame !== undefined) morph(main, parsed(content.frame), true);
  for (const [name, change] of Object.entries(content.lists || {})) {
    const known = pages.lists[name] ||= {rows: {}, order: []};
    Object.assign(known.rows, change.rows);
    if (change.order) known.order = change.order;
  }
  for (const box of main.querySelectorAll("[data-list]")) {
    const name = box.dataset.list, known = pages.lists[name], change = content.lists?.[name], isNew = !box.children.length;
    if (known && (isNew || change)) fill(box, known, isNew ? known.rows : change.rows, isNew || isWhole);
  }
  if (!had.isConnected) (near.find(it => it?.isConnected)?.querySelector("button, input, a") || main).focus({preventScroll: true});
  if (isWhole && isFocused) { isFocused = false; main.focus({preventScroll: true}); scrollTo(0, 0); }
  if (desk() !== recalled) recall(desk());
  for (const name in content.lists?.map?.rows) map.changed.add(name);
  if (ONE("map") && (isWhole || content.lists?.map)) dueMap();
  for (const it of pages.changed.splice(0)) it.animate([{boxShadow: "0 0 0 2px var(--focus)"}, {boxShadow: "none"}], 1200);
  countChosen();
  logs();
}

function parsed(html) {
  const made = document.createElement("template");
  made.innerHTML = html;
  for (const it of made.content.querySelectorAll("time[datetime]")) {
    const dash = it.previousSibling, from = dash?.data === " – " && dash.previousSibling?.dateTime, date = new Date(it.dateTime);
    it.textContent = clock(date, false, from && new Date(from).toDateString() === date.toDateString());
  }
  for (const it of made.content.querySelectorAll("[data-time]")) it.textContent = clock(new Date(it.dataset.time));
  return made.content;
}

function clock(date, hasSeconds, isSameDay) {
  const time = (hasSeconds ? SECONDS : MINUTES).format(date);
  return isSameDay || date.toDateString() === new Date().toDateString() ? time : `${DAYS.format(date)} ${time}`;
}

// Makes `old` the same as `made`, and keeps every element that is alike; what is in a list is left to `fill`.
function morph(old, made, isRoot) {
  if (!isRoot) {
    if (old.matches("canvas")) return;  // its size is its content
    for (const {name} of [...old.attributes]) if (!made.hasAttribute(name) && !(name === "open" || name === "data-own")) old.removeAttribute(name);
    for (const {name, value} of made.attributes) if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
    if (old.matches("[data-list], [data-own]") || (old === document.activeElement && old.matches("input, select, textarea"))) return;
  }
  const next = [...made.childNodes];
  let here = old.firstChild;
  for (const node of next) {
    const found = alike(here, node) ? here : node.nodeType === 1 && node.id ? [...old.children].find(it => it.id === node.id) : null;
    if (!found) { old.insertBefore(node, here); continue; }
    if (found !== here) old.insertBefore(found, here);
    if (node.nodeType === 1) morph(found, node);
    else if (found.data !== node.data) found.data = node.data;
    here = found.nextSibling;
  }
  while (here) { const gone = here; here = here.nextSibling; gone.remove(); }
}

const alike = (old, made) => old && old.nodeType === made.nodeType && (made.nodeType !== 1 || (old.tagName === made.tagName && old.id === made.id && old.dataset.list === made.dataset.list && old.getAttribute("href") === made.getAttribute("href")));

function fill(box, known, changed, isWhole) {
  const there = new Map([...box.children].map(it => [it.dataset.key, it]));
  for (const [key, html] of Object.entries(changed)) {
    const made = parsed(html).querySelector("[data-key]"), old = there.get(key);
    if (!made) continue;
    if (old) morph(old, made);
    else { box.append(made); there.set(key, made); }
    if (!isWhole && !isCalm.matches) pages.changed.push(there.get(key));
  }
  const wanted = new Set(known.order);
  for (const [key, it] of there) if (!wanted.has(key)) { it.remove(); delete known.rows[key]; }
  if (!isWhole && isBusy(box)) pages.waiting.add(box);
  else order(box, known);
}

const isBusy = box => box.matches(":hover") || box.contains(document.activeElement);

function order(box, known) {
  const there = new Map([...box.children].map(it => [it.dataset.key, it]));
  let here = box.firstElementChild;
  for (const key of known.order) {
    const it = there.get(key);
    if (it && it === here) here = here.nextElementSibling;
    else if (it) box.insertBefore(it, here);
  }
  pages.waiting.delete(box);
}

setInterval(() => pages.waiting.forEach(box => { if (!isBusy(box)) order(box, pages.lists[box.dataset.list] || {order: []}); }), 500);

// The map: each GPU a cell, each with a shape of its own, so that colour is not needed

const map = {places: new Map(), pitch: 0, at: -1, shape: "", order: [], changed: new Set(), isDue: false};
const SHAPES = {
  r: ["held", "--held-edge", (pen, x, y, d) => pen.fillRect(x, y, d, d)],
  i: ["idle", "--warn", (pen, x, y, d) => { pen.fillRect(x, y, d, d / 3); pen.fillRect(x, y + d * 2 / 3, d, d / 3); }],
  s: ["starting or stopping", "--moving-edge", (pen, x, y, d) => { pen.fillRect(x, y, d / 2, d); pen.fillRect(x, y + d / 2, d, d / 2); }],
  f: ["free", "--free-edge", (pen, x, y, d) => { pen.fillRect(x, y, d, d); pen.clearRect(x + 1, y + 1, d - 2, d - 2); }],
  c: ["closed", "--closed-edge", (pen, x, y, d) => pen.fillRect(x, y + d / 2 - .5, d, 1)],
  o: ["held by others", "--closed-edge", (pen, x, y, d) => pen.fillRect(x, y + d / 2, d, d / 2)],
};

function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1, pen = canvas.getContext("2d");
  Object.assign(canvas, {width: width * ratio, height: height * ratio});
  Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
  pen.scale(ratio, ratio);
  return pen;
}

function paint(pen, cells) {
  const style = getComputedStyle(document.body);
  for (const letter in cells) {
    const [, colour, put] = SHAPES[letter], them = cells[letter];
    pen.fillStyle = style.getPropertyValue(colour);
    for (let at = 0; at < them.length; at += 3) put(pen, them[at], them[at + 1], them[at + 2]);
  }
}

const dueMap = () => { if (!map.isDue) requestAnimationFrame(drawMap); map.isDue = true; };

addEventListener("resize", dueMap);
isDark.addEventListener("change", dueMap);

// Draws the nodes that changed, or all where the places of nodes, the width or the theme did.
function drawMap() {
  const box = ONE("map"), {rows, order} = pages.lists.map || {};
  map.isDue = false;
  if (!box || !rows) return;
  const shape = `${box.clientWidth} ${box.dataset.groups} ${devicePixelRatio} ${isDark.matches}`;
  performance.mark("map");
  const canvas = box.firstChild || box.appendChild(document.createElement("canvas")), cells = {};
  const isWhole = shape !== map.shape || order !== map.order;
  if (isWhole) layOut(box, canvas, rows, order);
  const pen = canvas.getContext("2d");
  for (const name of isWhole ? order : map.changed) {
    const it = map.places.get(name), letters = rows[name] || "";
    if (!it) continue;
    if (!isWhole) pen.clearRect(it.x, it.y, map.pitch, it.step);
    for (let at = 0; at < letters.length; at++) (cells[letters[at]] ||= []).push(it.x + at * it.step, it.y, it.step - 1);
  }
  paint(pen, cells);
  Object.assign(map, {shape, order, changed: new Set()});
  performance.measure("map", "map");
}

// Few nodes are named, each above its cells; of many the first of each row is, or of every third one.
function layOut(box, canvas, rows, order) {
  const isNamed = "named" in box.dataset, step = order.length > 1000 ? 4 : 9, places = new Map(), width = box.clientWidth;
  const [gutter, head, every] = isNamed ? [0, 12, 1] : [100, 2, step > 4 ? 1 : 3], texts = [];
  const pitch = Math.max(isNamed ? 81 : 0, step * (1 + Math.max(...order.map(name => rows[name].length))));
  const columns = Math.max(1, Math.floor((width - gutter) / pitch));
  let y = 0;
  for (const [group, count] of JSON.parse(box.dataset.groups)) {
    texts.push(["600 12px", group, y + 11]);
    for (let at = 0; at < count; at++) {
      const name = order[places.size], column = at % columns, row = Math.floor(at / columns), x = gutter + column * pitch;
      const top = y + 16 + row * (step + head);
      places.set(name, {name, x, y: top + (isNamed && 11), step});
      if (isNamed || !(column || row % every)) texts.push(["10px", name.length > 16 ? `…${name.slice(-15)}` : name, top + 9, isNamed && x, (gutter || pitch) - 6]);
    }
    y += 20 + Math.ceil(count / columns) * (step + head);
  }
  const pen = sized(canvas, width, y);
  pen.fillStyle = getComputedStyle(box).color;
  for (const [font, text, y, x = 0, most] of texts) { pen.font = `${font} system-ui, sans-serif`; pen.fillText(text, Number(x), y, most); }
  Object.assign(map, {places, pitch, head: isNamed ? 11 : 0});
  for (const key of main.querySelectorAll("[data-cell]")) paint(sized(key, 10, 10), {[key.dataset.cell]: [1, 1, 8]});
}

// What is known of a node, or of a GPU; the list has words for the holders of the nodes that it shows.
function point(at, gpu) {
  map.at = Math.max(0, Math.min(at, map.order.length - 1));
  const name = map.order[map.at], cells = [...pages.lists.map?.rows[name] || ""];
  const counts = Object.entries(Object.groupBy(cells, it => it)).map(([letter, them]) => `${them.length} ${SHAPES[letter][0]}`).join(", ");
  const card = main.querySelector(`article[data-key="${CSS.escape(name)}"] [data-gpus~="${gpu}"]`);
  const who = [...card?.querySelectorAll("strong, .by, .when") || []].map(it => it.innerText).join(" · ");
  ONE("map-says").textContent = `${name}: ${cells[gpu] ? `GPU ${gpu} is ${SHAPES[cells[gpu]][0]}${who && `: ${who}`}; ` : ""}${counts}`;
}

main.addEventListener("pointermove", event => {
  if (event.target.parentElement?.id !== "map") return;
  const at = map.order.findLastIndex(name => map.places.get(name).y <= event.offsetY + map.head && map.places.get(name).x <= event.offsetX);
  if (at >= 0) point(at, Math.floor((event.offsetX - map.places.get(map.order[at]).x) / map.places.get(map.order[at]).step));
});
main.addEventListener("keydown", event => {
  const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10}[event.key];
  if (event.target.id !== "map" || !(step || event.key === "Enter")) return;
  event.preventDefault();
  if (step) point(map.at + step); else showNode();
});

const showNode = () => { if (map.order[map.at]) visit(`/now?q=${encodeURIComponent(map.order[map.at])}`); };

// Going about

const visit = address => { isFocused = true; history.pushState(null, "", address); open(); };

function markMenu() {
  const name = location.pathname.split("/")[1];
  search.elements.q.value = name === "find" ? new URLSearchParams(location.search).get("q") : "";
  for (const it of document.querySelectorAll("nav a")) it.ariaCurrent = it.pathname === `/${name}` ? "page" : null;
}

document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  visit(link.getAttribute("href"));
});
addEventListener("popstate", () => open());

function filter(form) {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  const kept = new URLSearchParams(location.search);
  for (const name of ["by", "since", "until", "q"]) if (kept.has(name) && !form.elements[name]) query.set(name, kept.get(name));
  const address = location.pathname + (query.size ? `?${query}` : "");
  if (address !== location.pathname + location.search) { history.replaceState(null, "", address); open(); }
}

main.addEventListener("input", ({target}) => {
  if (target.form?.matches("[data-submit]")) change(target);
  if (!target.form?.matches("[data-filter]")) return;
  clearTimeout(typing);
  typing = setTimeout(() => filter(target.form), target.type === "search" ? 300 : 0);
});
document.addEventListener("submit", event => {
  const form = event.target;
  event.preventDefault();
  if (form === login) { signIn(form.elements.token.value.trim()); form.reset(); }
  else if (form === search) visit(`/find?${new URLSearchParams(new FormData(form))}`);
  else if (form.matches("[data-submit]")) attempt(form, true);
  else filter(form);
});
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  const links = [...document.querySelectorAll("nav a")];
  if (event.key === "/") { event.preventDefault(); (main.querySelector("[type=search]") || search.elements.q).focus(); }
  else if (/^[1-9]$/.test(event.key) && links[event.key - 1]) links[event.key - 1].click();
});

// One workload: what is fetched beside the stream

const own = {key: "", version: "", log: null, run: "", newest: "", tail: 1000, lines: 0, fetched: 0};

function logs() {
  const box = main.querySelector("[data-detail]"), key = box ? box.dataset.detail : "";
  if (key !== own.key) {
    Object.assign(own, {key, version: "", run: "", newest: "", tail: 1000, fetched: 0});
    if (key) readLog(); else own.log?.abort();
  }
  if (key && own.version !== box.dataset.version && Date.now() > own.fetched + 2000) fetchDetail(key, box.dataset.version);
}

async function fetchDetail(key, version) {
  own.fetched = Date.now();
  try {
    const answer = await ask(`/detail?workload=${encodeURIComponent(key)}`);
    if (!answer.ok || own.key !== key) return;
    morph(ONE("detail"), parsed(await answer.text()), true);
    own.version = version;
    const choice = main.querySelector("[data-runs]"), had = choice.value;
    const made = [...document.querySelectorAll("[data-run]")].map(it => new Option(it.dataset.label, it.dataset.run));
    choice.replaceChildren(choice.options[0], ...made);
    choice.value = had;
    if (own.newest && made[0] && made[0].value !== own.newest && !own.run) readLog();  // a new attempt is the last one
    own.newest = made[0]?.value || own.newest;
  } catch (error) { /* the stream says that the dashboard is away; the next change asks again */ }
}

async function readLog() {
  own.log?.abort();
  const cut = own.log = new AbortController(), box = ONE("log");
  box.textContent = "";
  own.lines = 0;
  try {
    const answer = await ask(`/log?workload=${encodeURIComponent(own.key)}&run=${encodeURIComponent(own.run)}&tail=${own.tail}`, {signal: cut.signal});
    if (!answer.ok) { box.textContent = (await answer.json()).message; setTimeout(() => { if (own.log === cut) readLog(); }, 5000); return; }
    for await (const part of pieces(answer.body, "\n")) if (own.log === cut) append(box, JSON.parse(part)); else return;
    if (own.log === cut) own.log = null;
  } catch (error) { if (own.log === cut) { own.log = null; box.append(`== ${error.message}\n`); } }
}

function append(box, {lines, skipped}) {
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  if (skipped) lines.unshift(`== ${skipped} lines are left out here: it writes faster than a page can show`);
  if (!lines.length) return;
  box.append(lines.join("\n") + "\n");
  own.lines += lines.length;
  const isHeld = getSelection().type === "Range" && box.contains(getSelection().anchorNode);
  for (let first; !isHeld && own.lines - (first = box.firstChild.data.split("\n").length - 1) >= own.tail; own.lines -= first) box.firstChild.remove();
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

main.addEventListener("change", event => {
  if (event.target.matches("[data-runs]")) { own.run = event.target.value; readLog(); }
  if (event.target.name === "chosen") countChosen();
});

// Actions

main.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (button?.matches("[data-earlier]")) { own.tail = Math.min(own.tail * 4, 20_000); readLog(); }
  if (button?.dataset.act) propose(button.dataset.act, [button.dataset.of]);
  if (button?.matches("[data-all]")) chooseAll([...main.querySelectorAll("[name=chosen]")]);
  if (button?.dataset.many) propose(button.dataset.many, chosen(button.dataset.many));
  if (button?.dataset.helps) helps(button);
  if (button?.matches("[data-make]")) attempt(button.form, false);
  if (event.target.parentElement?.id === "map") showNode();
});

const answered = asking => asking.then(it => it.json()).catch(error => error);

async function helps({dataset, nextElementSibling: words}) {
  words.textContent = "working it out";
  words.textContent = (await answered(ask(`/helps?workload=${encodeURIComponent(dataset.helps)}`))).message;
}

const checked = () => [...main.querySelectorAll("input[name=chosen]:checked")], chosen = action => checked().filter(it => it.dataset.can.split(" ").includes(action)).map(it => it.value);

const chooseAll = them => { const isOn = !them.every(it => it.checked); them.forEach(it => { it.checked = isOn; }); countChosen(); };

// Each action is offered for those of the chosen that it can be done to, with how many they are.
function countChosen() {
  const bar = ONE("many"), count = checked().length;
  if (bar) bar.querySelector("[role=status]").textContent = count ? `${count} chosen:` : "or some, to";
  for (const it of bar?.querySelectorAll("[data-many]") || []) it.textContent = it.textContent.replace(/( \d+)?$/, ` ${chosen(it.dataset.many).length || ""}`.trimEnd());
  warn();
}

// Opens the dialog of an action, and draws it anew with each choice: what a choice changes nothing for is not named.
async function propose(action, workloads, chosen, isForeseen = false) {
  const own = proposal = {};
  const told = await post("/say", {action, workloads, value: chosen, isForeseen}).then(it => it.ok ? it.text() : it.json()).catch(error => error);
  if (own !== proposal || (isForeseen && told.message)) return;  // it was chosen anew, sent or closed meanwhile
  morph(dialog, parsed(told.message ? '<p class="bad"></p><p class="actions"><button value="no">close</button></p>' : told), true);
  if (told.message) dialog.firstChild.textContent = told.message;
  const value = dialog.querySelector("select");
  if (value && !chosen) value.value = value.querySelector("[selected]")?.value;
  dialog.onchange = () => propose(action, workloads, value.value);
  dialog.onclick = event => { if (event.target.value === "no") dialog.close(); if (event.target.value === "yes") send(proposal = {action, workloads: event.target.dataset.of.split(" "), value: value?.value}, event.target); };
  if (!dialog.open) dialog.showModal();
  if (dialog.querySelector("[data-foresee]") && !isForeseen) propose(action, workloads, value.value, true);
}

dialog.addEventListener("close", () => { proposal = null; if (document.activeElement === document.body) main.focus({preventScroll: true}); });

async function send(asked, button) {
  const words = dialog.querySelector("[role=status]");
  button.disabled = true;
  words.textContent = "sending";
  const answer = await answered(post("/act", asked)), failed = answer.message || answer.done.flatMap(it => it.error || []).join("; ");
  Object.assign(words, {textContent: failed, className: "bad"});
  button.disabled = false;
  if (failed) return;
  for (const it of checked()) if (asked.workloads.includes(it.value)) it.checked = false;
  countChosen();
  dialog.close();
}

// Submitting: what is tried is what is made; a change asks for a new trial; one without an answer is repeated

async function attempt(form, isTrial) {
  const words = form.querySelector("[role=status]"), fields = form.elements, [tryIt, make] = form.querySelectorAll("button");
  const asked = trial = {...Object.fromEntries(new FormData(form)), ...(!isTrial && {command: ""}), try: isTrial};
  untried = null;
  Object.assign(words, {className: "", textContent: isTrial ? "trying" : "sending"});
  tryIt.disabled = make.disabled = true;
  try {
    const answer = await post("/submit", asked);
    const told = await answer.json();
    if (answer.status === 503) throw new Error(told.message);
    Object.assign(words, {textContent: told.message || "", className: told.message ? "bad" : ""});
    if (answer.ok) fields.manifest.value = told.manifest;
    if (told.is_fit && !isTrial) for (const it of form.querySelectorAll("select")) localStorage.setItem(it.name, it.value);
    for (const [name, value] of Object.entries(told.form || {})) {
      offer(fields[name], value);
      fields[name].value = value;
    }
    form.nextElementSibling.replaceChildren(parsed(told.html || ""));
    make.disabled = !(answer.ok && isTrial && told.is_fit && asked === trial);
    if (!make.disabled) make.focus();
  } catch (error) { untried = isTrial && form; words.textContent = error.message + (untried ? "; it is tried again once there is an answer" : ""); }
  tryIt.disabled = false;
}

// A manifest says itself what inputs would; a command that follows it has the usual ones again.
const clear = form => { form.dataset.cleared = "yes"; form.querySelectorAll("input").forEach(it => { it.value = ""; it.readOnly = it.name !== "command"; }); };
const renew = form => { delete form.dataset.cleared; form.querySelectorAll("input").forEach(it => { it.value ||= it.defaultValue; it.readOnly = false; }); };
function change({form, name}) {
  form.querySelector("[data-make]").disabled = true;
  trial = null;
  if (name === "manifest") clear(form); else if (form.dataset.cleared && name === "command") renew(form);
}

const desk = () => main.querySelector("[data-submit]");

const offer = (field, value) => { if (![...field.options || [{value}]].some(it => it.value === value)) field.append(new Option(value)); };

// Brings back the form as it was left, with the choices of now. A new one has the queue and the namespace that were
// submitted to last, where the address says nothing.
function recall(form) {
  const made = form?.parentElement, kept = made && (pages.desk ||= made);
  if (made !== kept) made.replaceWith(kept);
  recalled = desk();
  for (const it of form?.querySelectorAll("option") || []) {
    if (made !== kept) offer(recalled.elements[it.parentElement.name], it.value);
    else if (!location.search) it.selected ||= it.value === localStorage.getItem(it.parentElement.name);
  }
}

document.addEventListener("dragover", event => { if (desk()) event.preventDefault(); });
document.addEventListener("drop", async event => {
  const form = desk(), files = [...event.dataTransfer.files];
  if (!form || !files.length) return;
  event.preventDefault();
  clear(form);
  form.elements.manifest.value = (await Promise.all(files.map(it => it.text()))).join("\n---\n");
  attempt(form, true);
});

addEventListener("hashchange", start);
document.addEventListener("visibilitychange", doze);
start(); doze();
