"use strict";

const $ = id => document.getElementById(id);

// which timeout bounds a phase, for the bars of the time left; null if it has no option
const LIMITS = {
  handshake: "handshake", header: "read_header", body: "body_grace", handler: "handler", write: "write_grace",
  idle: "idle", drain: "drain", websocket: "ws_ping", tunnel: "idle", closing: null,
};

const REASONS = {
  handshake_timeout: "The TLS handshake took too long.",
  header_timeout: "The head of a request was not complete in time. Slow or silent clients.",
  read_timeout: "A request was not complete in time.",
  body_rate: "The body of a request came too slowly.",
  write_timeout: "The client did not take the response in time.",
  idle_timeout: "No further request, or byte of a tunnel, came in time. This is normal.",
  handler_timeout: "The application did not answer in time.",
  connection_age: "The connection was old enough to be closed.",
  drain_timeout: "The drain was over, and the connection was not.",
  pong_timeout: "The client of a websocket was silent, and did not answer a ping.",
  close_timeout: "The client of a websocket did not take or answer the close in time.",
  client_closed: "The client has closed. This is normal.",
  client_reset: "The client has reset the connection, or has left before its answer.",
  protocol_error: "The client has sent what is not HTTP, or what two readers could read in two ways.",
  header_too_large: "The head of a request was larger than the limit.",
  message_too_large: "A message of a websocket, or a frame of one, was larger than the limit.",
  keepalive_limit: "The connection had as many requests as it may have.",
  server_error: "The application has failed; its log says why.",
  upstream_failed: "The upstream of a proxy has failed in the middle of a response or a tunnel; the log says how.",
  done: "One side has asked for the end after a response, or both have ended a tunnel. This is normal.",
};

const STATES = { starting: "starts", serving: "serves", waiting: "waits for its command", draining: "drains" };

// milliseconds without an event before the next try: after a refusal there may be room for another page then, and a
// connection whose server is blocked or gone has no error that would end it
const AGAIN = 5000;

// milliseconds after which the configuration is asked for again: a reload changes it while the stream goes on
const RELOADED = 10000;

let limits = {};
// when the configuration was asked for, in milliseconds; -Infinity to ask with the next event
let asked = -Infinity;
let before = null;
let source = null;
let again = null;

const number = value => value.toLocaleString("en");
const seconds = value =>
  value < 0.001 ? `${Math.round(value * 1e6)} µs` : value < 1 ? `${+(value * 1000).toPrecision(3)} ms` : `${value.toFixed(1)} s`;
const megabytes = value => `${(value / 1048576).toFixed(0)} MiB`;
const sum = values => values.reduce((total, value) => total + value, 0);

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function bar(share, near) {
  const made = element("div", undefined, near ? "bar near" : "bar");
  // the property, not the attribute: the policy of this page forbids inline styles
  made.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
  return made;
}

function bars(place, rows) {
  const most = Math.max(1, ...rows.map(([, value]) => value));
  place.replaceChildren(...rows.flatMap(([name, value]) =>
    [element("span", name), element("span", number(value), "number"), bar(value / most, false)]));
}

function rates(totals) {
  const now = { at: performance.now() / 1000, requests: sum(Object.values(totals.requests).flatMap(Object.values)),
    resets: totals.resets, fired: totals.fired };
  const passed = before && now.at > before.at ? now.at - before.at : 0;
  const rate = name => (passed ? number(Math.max(0, Math.round((now[name] - before[name]) / passed))) : "–");
  const found = { requests: rate("requests"), resets: rate("resets"), fired: rate("fired") };
  before = now;
  return found;
}

function facts(now) {
  const totals = now.totals;
  const open = sum(Object.values(now.phases));
  const rows = [["open connections", number(open)], ["armed timers", number(now.timers.armed)],
    ["zombie timers", number(now.timers.zombie)],
    ["until the next timer", now.wakes_in === null ? "none" : seconds(Math.max(now.wakes_in, 0))]];
  if (totals) {
    const rate = rates(totals);
    rows.push(["requests / s", rate.requests], ["deadlines set / s", rate.resets], ["timers fired / s", rate.fired],
      ["accepted in all", number(totals.accepted)]);
  }
  $("facts").replaceChildren(...rows.map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
}

function connection(one, several) {
  const row = element("tr");
  const id = several ? `${one.worker}.${one.id}` : one.id;
  for (const text of [id, one.peer, one.phase, number(one.requests), seconds(one.age)]) row.append(element("td", text));
  const left = row.appendChild(element("td", one.left === null ? "no deadline" : seconds(one.left), "left"));
  // a share of what is not limited (the text "off"), or of a limit that is not known yet, cannot be shown
  const limit = limits[LIMITS[one.phase]];
  if (one.left !== null && limit > 0) left.append(bar(one.left / limit, one.left < 2));
  return row;
}

function lateness(found) {
  const rows = found.counts.map((count, index) =>
    [index < found.bounds.length ? `≤ ${seconds(found.bounds[index])}` : `> ${seconds(found.bounds.at(-1))}`, count]);
  const last = rows.reduce((kept, [, count], index) => (count ? index : kept), 0);
  bars($("lateness"), rows.slice(0, last + 1));
}

function reasons(closed) {
  const rows = Object.entries(closed).filter(([, count]) => count).sort((a, b) => b[1] - a[1]);
  $("reasons").replaceChildren(...rows.map(([reason, count]) => {
    const pair = element("div");
    pair.append(element("dd", number(count), "number"), element("dt", reason), element("dd", REASONS[reason] || "", "quiet"));
    return pair;
  }));
  if (!rows.length) $("reasons").append(element("p", "None has ended yet.", "quiet"));
}

function worker(one) {
  const row = element("tr");
  // others are not asked before they serve, and may be busy with the end of their last requests
  const state = one.ready && !one.up ? "does not answer" : STATES[one.state];
  for (const text of [one.worker, one.pid, state, one.open ?? "–", one.resident === null ? "–" : megabytes(one.resident)])
    row.append(element("td", text));
  return row;
}

function say(text, bad) {
  $("status").textContent = text;
  $("status").className = bad ? "bad" : "";
}

function show({ statistics, connections }) {
  const isUnable = statistics.status === "ready" && !statistics.ready;
  say(isUnable ? "not ready" : statistics.status, !statistics.ready);
  facts(statistics);
  bars($("phases"), Object.entries(statistics.phases));
  $("rows").replaceChildren(...connections.connections.map(one => connection(one, statistics.workers.length > 1)));
  $("shown").textContent = `${number(connections.connections.length)} of ${number(connections.matching)} shown`;
  if (statistics.totals) {
    lateness(statistics.totals.lateness);
    reasons(statistics.totals.closed);
  }
  $("workers").replaceChildren(...statistics.workers.map(worker));
}

function stop() {
  clearTimeout(again);
  if (source) source.close();
}

function complain() {
  say("the server does not answer; trying again", true);
}

function expect() {
  clearTimeout(again);
  again = setTimeout(() => {
    complain();
    listen();
  }, AGAIN);
}

async function configure() {
  asked = performance.now();
  try {
    const answer = await fetch("config");
    if (!answer.ok) throw new Error(answer.statusText);
    limits = (await answer.json()).timeouts || {};
  } catch {
    asked = -Infinity;
  }
}

function listen() {
  stop();
  const query = new URLSearchParams({ sort: $("sort").value, limit: $("limit").value });
  if ($("phase").value) query.set("phase", $("phase").value);
  source = new EventSource(`events?${query}`);
  // also when the browser has opened it again: perhaps by another server
  source.onopen = configure;
  source.onmessage = event => {
    expect();
    if (performance.now() - asked > RELOADED) configure();
    show(JSON.parse(event.data));
  };
  source.onerror = complain;
  expect();
}

function pause() {
  const paused = $("pause").getAttribute("aria-pressed") !== "true";
  $("pause").setAttribute("aria-pressed", paused);
  $("pause").textContent = paused ? "Resume" : "Pause";
  if (paused) {
    stop();
    say("paused", false);
  } else {
    before = null;
    listen();
  }
}

function start() {
  for (const phase of Object.keys(LIMITS)) $("phase").append(new Option(phase, phase));
  $("ask").addEventListener("submit", event => event.preventDefault());
  $("ask").addEventListener("change", () => $("pause").getAttribute("aria-pressed") === "true" || listen());
  $("pause").addEventListener("click", pause);
  listen();
}

start();
